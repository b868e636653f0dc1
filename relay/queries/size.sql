/* Bytes that a message may take in memory, at the most. content is not read for it: where it is stored compressed it may be
   a hundred times larger, and the few messages of a claim that is cut for nothing cost less than a relay without memory. */
        pg_column_size(content) * CASE WHEN pg_column_compression(content) IS NULL THEN 1::bigint ELSE 100 END + coalesce(octet_length(body), 0) AS size
