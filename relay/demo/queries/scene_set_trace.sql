-- As SET LOCAL, which takes no parameters.
SELECT set_config('relay.traceparent', %(trace)s, true)
