"""The process that checks contents, asked through its pipes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

from tests import ROOT

MIB = 1 << 20


def test_a_limit_that_the_machines_owner_has_set_is_kept() -> None:
    """Who is not root may not raise it: the process would end with each request. The lower one holds, and contents are checked."""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path]))}
    command = [sys.executable, "-P", "-m", "relay.contracts.check_process", str(os.getpid())]
    request = {"size": 2, "seconds": 5, "memory": 4096 * MIB, "schemas": ['{"type": "object"}']}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (1024 * MIB, 1024 * MIB))
        process.stdin.write(json.dumps(request).encode() + b"\n{}")
        process.stdin.flush()
        assert b"null\n" == process.stdout.readline()
        assert (1024 * MIB, 1024 * MIB) == resource.prlimit(process.pid, resource.RLIMIT_DATA)
        process.stdin.close()
