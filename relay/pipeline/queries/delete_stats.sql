-- Delete numbers of the computed days that no longer apply: those of routing keys that their day no longer names.
DELETE FROM @schema@.queue_message_stats_@grain@ AS kept
WHERE kept.start >= (%(first)s::date)::timestamp AT TIME ZONE 'UTC' AND kept.start < (%(last)s::date + 1)::timestamp AT TIME ZONE 'UTC'
  AND (kept.start AT TIME ZONE 'UTC')::date = ANY (%(days)s::date[])
  AND NOT EXISTS (
      SELECT FROM pg_temp.queue_message_stats_staged_@grain@ AS new
      WHERE (new.start, new.exchange, new.routing_key) = (kept.start, kept.exchange, kept.routing_key))
