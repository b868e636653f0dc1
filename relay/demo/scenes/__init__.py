"""What else the relay does for an application, a scene for each: contracts, schedules, keys, traces, an inbox, requests, dead answered."""
