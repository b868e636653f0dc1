"""How many messages a queue may send, by the bytes that are here."""

from __future__ import annotations

from relay.amqp.consuming.prefetch import PrefetchWindow


def test_as_many_come_as_the_setting_says_while_they_fit() -> None:
    """Whatever their sizes."""
    window = PrefetchWindow(most=1000, most_bytes=1000)
    assert [False] * 4 == [window.take(tag, 250) for tag in range(1, 5)]
    assert (1000, 1000) == (window.prefetch, window.bytes)
    window.settle([1, 2, 3])
    assert 250 == window.bytes


def test_too_much_lowers_the_number_to_what_fits_of_the_largest() -> None:
    """By half at the least, and never below one."""
    window = PrefetchWindow(most=1000, most_bytes=1000)
    assert [False, False, False, True] == [window.take(tag, 300) for tag in range(1, 5)]
    assert 3 == window.prefetch
    window.forget()
    assert [False, True] == [window.take(1, 5000), window.take(2, 1)]
    assert 1 == window.prefetch


def test_one_message_is_never_too_much() -> None:
    """It could not come in otherwise."""
    assert not PrefetchWindow(most=10, most_bytes=1000).take(1, 5000)


def test_the_number_doubles_when_nothing_is_here_and_twice_as_many_would_fit() -> None:
    """Up to the setting's; not while a doubling would not fit, nor while something is here."""
    window = PrefetchWindow(most=10, most_bytes=1000)
    for tag in (1, 2):
        window.take(tag, 900)
    window.forget()
    told = []
    for tag in range(1, 40):
        window.take(tag, 100 if tag > 3 else 900)
        window.settle([tag])
        told.append(window.prefetch)
    assert [1, 2, 4, 8] == sorted(set(told))[:4]
    assert [1, 1, 1, 2] == told[:4]
    assert 8 == told[-1]

    held = PrefetchWindow(most=10, most_bytes=1000)
    held.prefetch = 1
    held.take(1, 1)
    held.take(2, 1)
    held.settle([1])
    assert 1 == held.prefetch
    held.settle([2])
    assert 2 == held.prefetch
