INSERT INTO booking (total) VALUES (%(total)s)
