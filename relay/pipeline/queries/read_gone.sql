-- Whether a partition was dropped.
SELECT to_regclass(format('%%I.%%I', %(schema)s::text, %(partition)s::text)) IS NULL
