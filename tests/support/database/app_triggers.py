"""Triggers of the application's that refuse something."""

REFUSALS = {
    "raises": "RAISE EXCEPTION 'not this one'",
    "has-a-state-of-its-own": "RAISE EXCEPTION 'not this one' USING ERRCODE = 'AB123'",
    "breaks-a-constraint": "RAISE EXCEPTION 'not this one' USING ERRCODE = 'check_violation'",
    "names-what-is-not-there": "PERFORM FROM nowhere; RETURN NEW",
    "lacks-a-right": "RAISE EXCEPTION 'not this one' USING ERRCODE = 'insufficient_privilege'",
    "skips": "RETURN NULL",
}
"""What the trigger does to one message."""
