"""The script for `spark-submit`: `spark-submit … relay_pipeline.py export` runs `relay pipeline export` where Spark's settings say.

The script has a folder of its own, because Python first searches the folder of a script for modules. There, a module of the package could
hide a module of the standard library.
"""

from __future__ import annotations

import sys

from relay.cli.main import app

if __name__ == "__main__":
    sys.argv[1:1] = ["pipeline"]
    app()
