"""The soak: a steady load, a random fault each minute, for hours; in the end the ledger must add up and every line must be flat.

`python -m tests.soak --hours 2` plays it on servers of its own, and writes what it saw to `build/soak.jsonl`, one JSON object a line:
`begin` (plan, machine, versions), `fault`, `sample`, `ledger` and `verdict`. `--page FILE` writes `docs/soak.md` from such a file.
"""
