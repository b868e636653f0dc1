"""Rows of the archive that a reader or a writer may bend: long numbers, control characters, the first and the last year, empty and null."""

from __future__ import annotations

from datetime import timedelta

from tests.support.database.archives import SETTLED, Row

NUMBERS = "".join(str(digit % 10) for digit in range(1, 31))
HOSTILE: list[Row] = [
    {"content": f'{{"n": {NUMBERS}.{NUMBERS}, "e": 1e400, "z": 1.000}}'},
    {
        "content": '{"text": "\\u0001\\u001f\\"\\\\ \\ud83d\\ude00 \\u2028"}',
        "exchange": "a'b\"c\\d;--",
        "routing_key": "\U0001f600\x7f\x01\t\n",
    },
    {"content": "null", "body": b"", "ordering_key": "", "error_code": "", "error_detail": ""},
    {"content": '""', "body": bytes(range(256)) * 3, "handled_by": "\u202ertl"},
    {"expires_at": "0001-01-01 00:00:00+00", "available_at": "9999-12-31 23:59:59.999999+00", "result": "rejected"},
    {"created_at": "1582-10-10 00:00:00.000001+00", "claimed_at": "1969-12-31 23:59:59.999999+00", "result": "lock_expired"},
    {"options": '{"headers": {"x": [1, 2.50, null, {"deep": "\\u00e9"}]}}', "replay_of": "00000000-0000-0000-0000-000000000001"},
    {"archived_at": SETTLED.replace(year=1), "result": "failed"},
    {"archived_at": SETTLED.replace(year=9999), "result": "failed"},
    {"archived_at": SETTLED + timedelta(hours=11, minutes=59, seconds=59, microseconds=999_999)},
    {"archived_at": SETTLED + timedelta(hours=12)},
]
