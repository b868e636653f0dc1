-- Be the one watch with these handlers, for as long as this session lasts; false while another is.
SELECT pg_try_advisory_lock(724017726, hashtext(%(handlers)s)) AS taken
