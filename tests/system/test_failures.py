"""Calls to the kernel that fail under the stress test and real programs: the first of each kind, and some others, another
choice each day; FAILURES_DAY, which a failure shows, makes that of another day. By ./hakmem soak --failures all of them
fail in turn."""

import os
import random
import re
from datetime import date
from pathlib import Path

import pytest
import sweep
from programs import Program, programs
from toolbox import Build, tool

SURE = ("mmap", "mprotect", "any")
"""What no program can do without; python3's script makes all those that get and return memory, at any speed."""
FIRST = 1
FIRST_SURE = 2
OTHERS = 6
NAMES = ("stress", "sqlite3", "python3", "git", "perl")


@pytest.fixture
def failing(build: Build) -> sweep.Build:
    return sweep.Build(build.directory)


def chosen(program: Program, calls: dict[str, int]) -> list[sweep.Case]:
    cases = list(sweep.cases(program, calls))
    made = [case for case in cases if calls.get(case.kind) or case.kind == sweep.ANY]
    first = [case for case in made if case.at <= (FIRST_SURE if case.kind in SURE else FIRST)]
    others = [case for case in cases if case not in first]
    day = os.environ.get("FAILURES_DAY", str(date.today()))
    print(f"FAILURES_DAY={day}")
    return first + random.Random(day).sample(others, OTHERS)


@pytest.mark.parametrize("name", NAMES)
def test_failing_calls_under(failing: sweep.Build, tmp_path: Path, name: str) -> None:
    if name != "stress":
        tool(name)
    (program,) = [program for program in programs(tmp_path, failing.directory) if program.name == name]
    calls = sweep.count(failing, program)
    sure = SURE
    if name == "python3":
        assert all(calls[kind] for kind in sweep.MEMORY), f"its script makes every kind of call: {calls}"
        sure = (*sweep.MEMORY, *SURE)
    for outcome in sweep.try_all(failing, chosen(program, calls)):
        assert outcome.fault is None, outcome.told()
        if outcome.case.at == 1 and outcome.case.kind in sure:
            assert outcome.ending.failed != 0, f"{outcome.case.told()}: nothing failed"


ENDINGS = {
    "hung": sweep.Ending(None, "", "", {}, -1),
    "died of signal 11": sweep.Ending(-11, "", "", {}, -1),
    "wrong output": sweep.Ending(0, "1\n3\n", "", {}, 1),
    "complained": sweep.Ending(0, "1\n2\n", "no memory", {}, 1),
    "what is wrong before": sweep.Ending(1, "2\n", "no memory", {}, 1),
    "without its words": sweep.Ending(1, "1\n", "", {}, 1),
    "although nothing failed": sweep.Ending(1, "1\n", "no memory", {}, 0),
}


@pytest.mark.parametrize("kind", sweep.KINDS)
def test_lack_of_memory_is_judged_by_the_call(kind: str) -> None:
    program = Program("counter", (), "1\n2\n", re.compile("no memory"))
    outcome = sweep.Outcome(sweep.Case(program, kind, 1, False), sweep.Ending(1, "1\n", "no memory", {}, 1))
    assert (outcome.fault is None) == (kind in sweep.NEEDED)


def test_who_began_may_not_end_without_a_word() -> None:
    program = Program("counter", (), "1\n2\n", re.compile("no memory"), begins_silently=True)
    assert sweep.Ending(1, "", "", {}, 1).fault(program) is None
    assert "without its words" in (sweep.Ending(1, "1\n", "", {}, 1).fault(program) or "")


@pytest.mark.parametrize("words", ENDINGS)
def test_an_ending_is_judged(words: str) -> None:
    program = Program("counter", (), "1\n2\n", re.compile("no memory"))
    assert words in (ENDINGS[words].fault(program) or "")
    assert sweep.Ending(1, "1\n", "no memory", {}, 1).fault(program) is None
