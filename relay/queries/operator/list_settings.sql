-- The policy that the database carries out, and for each setting the value of a new database.
SELECT rule.name, @schema@.queue_message_setting_value(rule.name) AS value, rule.fallback AS "default", setting.changed_at
FROM @schema@.queue_message_setting_rule() AS rule LEFT JOIN @schema@.queue_message_setting AS setting USING (name)
ORDER BY rule.name
