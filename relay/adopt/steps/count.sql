-- Rows of each state, as the old relay has them.
SELECT found.state, count(*) AS rows FROM @kept@ AS given CROSS JOIN LATERAL (
@mapping@
) AS found GROUP BY found.state ORDER BY found.state
