/* Bytes that a message may take in memory, at the most: the formula of relay/memory.py. No value is read for it: what is stored compressed
   may be a hundred times larger (lz4: 255 times), and the few messages of a claim that is cut for nothing cost less than a relay without
   memory. What numbers print beyond that the claim itself finds out, see claim_columns.sql. */
        @kept@ + @widest@ * (octet_length(exchange) + octet_length(routing_key) + coalesce(octet_length(ordering_key), 0))
            + pg_column_size(content) * CASE pg_column_compression(content) WHEN 'lz4' THEN 255::bigint WHEN 'pglz' THEN 100 ELSE 1 END
            + pg_column_size(options) * CASE pg_column_compression(options) WHEN 'lz4' THEN 255::bigint WHEN 'pglz' THEN 100 ELSE 1 END
            + coalesce(octet_length(body), 0) AS size
