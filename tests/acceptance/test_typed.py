"""The installed package as a type checker sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RIGHT = """\
import uuid
from datetime import timedelta
import psycopg
from sqlalchemy.orm import Session
from relay.client import Message, Options, OutboxModel, enqueue, enqueue_many
from relay.integrations import sqlalchemy

def place_order(connection: psycopg.Connection[tuple[object, ...]], order: int) -> uuid.UUID:
    connection.execute("SELECT 1")
    return enqueue(connection, Message(exchange="orders", routing_key="order.placed", content={"order": order}, ordering_key="k"))

class Placed(OutboxModel, exchange="orders", routing_key="order.placed", options=Options(priority=3)):
    order: int

def place_model(session: Session, order: int) -> uuid.UUID:
    return sqlalchemy.enqueue(session, Placed(order=order))

class Level(OutboxModel, exchange="stock", coalesce_key="item"):
    item: int

def place_level(connection: psycopg.Connection[tuple[object, ...]]) -> list[uuid.UUID]:
    once = Message(exchange="billing", dedup_key="charge-7", dedup_seconds=60, delay=timedelta(minutes=5))
    return enqueue_many(connection, [once, Level(item=3).to_message(dedup_key="a"), Message(exchange="audit", bundle_key="b")])
"""
WRONG = """\
from relay.client import Message

Message(exchange=7)
Message(exchange="orders", routing_kee="order.placed")
Message()
Message(exchange="orders", dedup_key=7)
Message(exchange="orders", dedup_seconds="60")
Message(exchange="orders", available_at=5)
Message(exchange="orders", delay=5)
"""


def check(python: Path, folder: Path, text: str) -> str:
    """What mypy --strict says of an app's module, which sees the package as installed for that Python."""
    (folder / "app.py").write_text(text)
    words = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", f"--python-executable={python}", "app.py"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=110)
    return done.stdout + done.stderr


@pytest.mark.ids("B1", "B11", "A38")
def test_an_app_that_enqueues_is_type_checked(wheel_relay: Path, tmp_path: Path) -> None:
    """The wheel says that it is typed: correct use passes `mypy --strict`, and mypy reports each wrong use."""
    python = wheel_relay.parent / "python"

    assert "Success" in check(python, tmp_path, RIGHT)

    told = check(python, tmp_path, WRONG)
    assert [3, 4, 5, 6, 7, 8, 9] == [int(line.split(":")[1]) for line in told.splitlines() if ": error: " in line], told
