"""`python -m relay.demo.history FOLDER`: check ledger and lake that `relay pipeline demo --folder FOLDER` has kept."""

from __future__ import annotations

import sys
from pathlib import Path

from relay.demo.history.run import check
from relay.errors import RelayError

if __name__ == "__main__":
    try:
        sys.exit(check(Path(*sys.argv[1:])))
    except RelayError as error:
        sys.exit(str(error))
