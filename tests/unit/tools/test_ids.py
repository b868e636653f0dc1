"""The record of documented behaviours."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

_TESTS = """
import pytest

@pytest.mark.ids("A1", "C6")
def test_one():
    pass

@pytest.mark.ids("A1")
def test_two():
    assert False

def test_without_an_id():
    pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with tests of which some have ids."""
    pytester.makeini("[pytest]\nmarkers = ids(*ids): documented behaviours\nasyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(_TESTS)
    return pytester


def test_each_id_is_shown_with_its_tests_and_their_outcome(run: pytest.Pytester) -> None:
    """One line for each pair of id and test, then the ids that are owed."""
    result = run.runpytest("-p", "tests.support.pages.conventions", "--conventions")

    result.assert_outcomes(passed=1, failed=1, deselected=1)
    result.stdout.fnmatch_lines(
        ["A1 * passed * *test_one", "A1 * failed * *test_two", "C6 * passed * *test_one", "without a test (* of *): A2 A3 *"]
    )


def test_without_the_option_every_test_runs(run: pytest.Pytester) -> None:
    """Nothing is left out, nothing is printed."""
    result = run.runpytest("-p", "tests.support.pages.conventions")

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.no_fnmatch_line("*without a test*")


def test_a_word_that_is_no_id_is_refused(run: pytest.Pytester) -> None:
    """A slip of the pen does not count as a proof."""
    run.makepyfile(test_slip="import pytest\n\n@pytest.mark.ids('a1')\ndef test_three():\n    pass\n")

    result = run.runpytest("-p", "tests.support.pages.conventions", "--conventions")

    assert pytest.ExitCode.USAGE_ERROR == result.ret
    result.stderr.fnmatch_lines(["*'a1' is no id; write it like A1*"])
