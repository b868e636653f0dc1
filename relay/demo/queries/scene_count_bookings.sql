SELECT count(*) FROM booking
