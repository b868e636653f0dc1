"""What else the relay does for an application, one scene for each: contracts, schedules, keys, traces, an inbox, dead messages answered."""
