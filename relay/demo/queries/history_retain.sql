-- What every relay runs from time to time: at most one day for each call.
SELECT action, target FROM queue_message_retain()
