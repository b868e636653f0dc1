-- Notifications that a relay sends itself, to prove that it would hear one.
LISTEN queue_message_proof
