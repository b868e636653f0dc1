"""JSON that is only looked at: what it may hold, and how little of it is kept meanwhile."""

from __future__ import annotations

import json
import tracemalloc
from itertools import product

import pytest

from relay.codec.json_text import check_json

SPELLED = ["\\ud83d", "\\uDE00", "\\u0041", "\\\\", '\\"', "ud800", "\\n", "é", "\\uD7ff", "\\ue000"]
"""Halves of a surrogate pair, and what may stand before or after one."""
NOT_UTF8 = r"^content holds text that is not valid UTF-8"
SIZE = 300_000


def _is_valid(text: str) -> bool:
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def test_half_of_a_surrogate_pair_is_found_wherever_it_stands() -> None:
    """Of each three parts, as a value and as a name; after backslashes that are escaped themselves."""
    for parts in product(SPELLED, repeat=3):
        for text in (f'["{"".join(parts)}"]', f'{{"{"".join(parts)}": 0}}'):
            if _is_valid(text):
                check_json(text)
            else:
                with pytest.raises(ValueError, match=NOT_UTF8):
                    check_json(text)


def test_half_of_a_pair_that_no_escape_spells_is_found() -> None:
    """A text of Python's may hold one, as PostgreSQL may not."""
    with pytest.raises(ValueError, match=NOT_UTF8):
        check_json('"\ud800"')


@pytest.mark.parametrize("one", ['{"":0}', '{"a":1,"b":"x"}', '{"a":{"b":{}}}', '{"\\ud83d\\ude00":1}', "12345678.9"])
def test_numbers_and_objects_take_little_memory_while_they_are_checked(one: str) -> None:
    """A few times the text, however small they are; each of them is forgotten where it ends."""
    text = f"[{','.join([one] * (SIZE // len(one)))}]"
    tracemalloc.start()
    check_json(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 6 * SIZE > peak
