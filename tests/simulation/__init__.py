"""The real relay between a database and a broker in memory, on an event loop without time: a seed replays a run exactly."""
