/* Bytes that a message may take in memory, at the most. content is not read for it: where it is stored compressed it may be
   a hundred times larger (lz4: 255 times), and the few messages of a claim that is cut for nothing cost less than a relay without memory. */
        pg_column_size(content) * CASE pg_column_compression(content) WHEN 'lz4' THEN 255::bigint WHEN 'pglz' THEN 100 ELSE 1 END + coalesce(octet_length(body), 0) AS size
