"""Runs a command in a network of its own, in which another machine answers: each of its ports leads to a socket in a folder.

Run as a file, `elsewhere.py FOLDER COMMAND...`, within `unshare --user --map-root-user --net`; a socket's name is its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

ADDRESS = "192.0.2.7"
"""The other machine's address (RFC 5737: it belongs to no network)."""
_SET_ADDRESS, _SET_FLAGS, _UP = 0x8916, 0x8914, 1
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Make the network, serve it from a child that ends with the command, and become the command."""
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    _make_network()
    ready, told = os.pipe()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        asyncio.run(_serve([*folder.iterdir()], told))
    os.close(told)
    os.read(ready, 1)
    os.close(ready)
    os.execv(command[0], command)  # noqa: S606 - the command is the test's


def _make_network() -> None:
    """Set up loopback, and on it also the other machine's address (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
        address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(sock, _SET_ADDRESS, struct.pack("16s16s", b"lo:1", address))


async def _serve(sockets: Sequence[Path], told: int) -> None:
    for path in sockets:
        await asyncio.start_server(lambda *ends, path=path: _join(ends, path), ADDRESS, int(path.name))
    os.write(told, b"1")
    os.close(told)
    await asyncio.Event().wait()


async def _join(ends: tuple[asyncio.StreamReader, asyncio.StreamWriter], path: Path) -> None:
    await pipe(ends, await asyncio.open_unix_connection(path))


async def pipe(*ends: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Pass on what comes from either of two ends until both have hung up."""
    (left, to_left), (right, to_right) = ends
    await asyncio.gather(_pass(left, to_right), _pass(right, to_left))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    main()
