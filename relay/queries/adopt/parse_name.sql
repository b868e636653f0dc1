-- The parts of a name as SQL writes it.
SELECT parse_ident(%(name)s) AS parts
