"""Further services for an application, one scene each: contracts, schedules, keys, traces, an inbox, requests, answers to dead messages."""
