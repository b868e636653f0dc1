"""What `spark-submit` runs: `spark-submit … relay_pipeline.py export --json` is `relay pipeline export --json` where Spark's settings say.

It stands in a folder of its own because Python looks for modules first beside the script it runs, and the package beside it has an `http`.
"""

from __future__ import annotations

import sys

from relay.cli.main import app

if __name__ == "__main__":
    sys.argv[1:1] = ["pipeline"]
    app()
