-- Notifications of the triggers: something was inserted or has come free.
LISTEN queue_message_notify
