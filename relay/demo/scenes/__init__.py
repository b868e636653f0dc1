"""Further features for applications, one scene each: contracts, schedules, keys, traces, an inbox, requests, a watch over dead messages."""
