-- Logins that reach this outbox without being admitted: what they own, or what lets them reach every outbox of the server.
SELECT login, administers AS how FROM @schema@.queue_message_logins() WHERE administers IS NOT NULL ORDER BY login
