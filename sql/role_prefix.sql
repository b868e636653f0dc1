-- Why the roles do not have the prefix that is asked for, as one sentence; no row where they have it, or none is asked for.
SELECT coalesce(@schema@.queue_message_prefix_problem(@role_prefix@), format('Their names begin with %s, and RELAY_ROLE_PREFIX is %s: '
    'run `relay migrate` again as the owner.', present, @role_prefix@)) AS sentence
FROM left(@schema@.queue_message_role(''), -1) AS present
WHERE @role_prefix@ <> '' AND present <> @role_prefix@
