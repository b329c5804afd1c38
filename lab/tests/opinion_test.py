from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.measure.runner import Arm, Line
from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.task import CellTask
from hakmem_lab.statistics.estimate import Estimate, Verdict
from hakmem_lab.studies import callgrind
from hakmem_lab.studies.ab import Answer
from hakmem_lab.studies.callgrind import Place, Profile
from hakmem_lab.studies.opinion import Opinion, opinion_ask, opinion_obstacle
from hakmem_lab.workloads.cells import CELLS, PROCESS_START, SERVER_PEAKS
from lab_pairs import GLIBC, HAKMEM


def answer(verdict: Verdict) -> Answer:
    return Answer("B", Estimate(1.0, 0.99, 1.01, 20), verdict, 1.04, 0)


@pytest.mark.parametrize(
    ("base", "other", "word"),
    [(100, 80, "better"), (100, 120, "worse"), (100, 101, "equivalent"), (100, 97.1, "equivalent")],
)
def test_fewer_instructions_are_better(base: float, other: float, word: str) -> None:
    assert Opinion(base, other).word(0.03) == word


def test_where_clock_and_count_differ_both_are_shown() -> None:
    opinion = Opinion(100.0, 80.0)
    assert "they agree (1.25)" in opinion.line(answer(Verdict.AHEAD), 0.03)
    disagreeing = opinion.line(answer(Verdict.EQUAL), 0.03)
    assert "100.0 and 80.0" in disagreeing
    assert disagreeing.endswith("they DISAGREE: by instructions better (1.25), by the clock equivalent")


@pytest.mark.parametrize("verdict", [Verdict.UNCLEAR, Verdict.VOID])
def test_without_a_verdict_there_is_nothing_to_disagree_with(verdict: Verdict) -> None:
    line = Opinion(100.0, 80.0).line(answer(verdict), 0.03)
    assert line.endswith("; by them better (1.25)")


TINY = next(cell for cell in CELLS if cell.name.startswith("tiny and hot"))


def stage_of(folder: Path) -> Stage:
    """It holds the program that is counted, which is not run."""
    (folder / "bench").mkdir()
    (folder / "bench" / TINY.program).touch()
    return Stage(folder, Checkout(folder, folder))


def count_by(monkeypatch: pytest.MonkeyPatch, operations_of: Callable[[int], int]) -> None:
    """Each operation costs glibc 50 instructions and hakmem 35, and the start costs 90 000. OPERATIONS_OF tells how
    many there are in so many cycles."""

    def profile(
        _stage: Stage, _program: str, arguments: Sequence[str], arm: Arm, _cpus: tuple[int, ...]
    ) -> tuple[Profile, Line]:
        operations = operations_of(int(arguments[2]))
        cost = {"glibc": 50, "hakmem": 35}[arm.name]
        place = Place("/lib/liballocator.so", "malloc", "malloc.c", 1, 0)
        return Profile(Counter({place: 90_000 + cost * operations})), Line(ops=operations)

    monkeypatch.setattr(callgrind, "workload_profile", profile)


def test_an_operation_is_what_the_program_counts_as_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A count is a cycle of a hundred blocks here."""
    count_by(monkeypatch, lambda cycles: 100 * cycles)
    task = CellTask(stage_of(tmp_path), TINY, 10_000)
    assert opinion_ask(task, GLIBC, HAKMEM) == Opinion(50.0, 35.0)


def test_what_does_no_more_work_when_twice_is_asked_has_no_figure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count_by(monkeypatch, lambda _: 1000)
    with pytest.raises(LabError, match=r"^twice the work was no more work: 1000 and 1000 operations$"):
        opinion_ask(CellTask(stage_of(tmp_path), TINY, 10_000), GLIBC, HAKMEM)


def test_only_workloads_that_do_the_same_work_each_time_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not those by the clock, those that allocate nothing, and tools that start other processes."""
    monkeypatch.setattr("shutil.which", lambda name: name)
    stage = Stage(tmp_path, Checkout(tmp_path, tmp_path))
    assert opinion_obstacle(CellTask(stage, TINY, 1)) == ""
    larsons = [cell for cell in CELLS if cell.program == "larson"]
    others = [PROCESS_START, SERVER_PEAKS, *(cell for cell in CELLS if cell.control)]
    assert larsons
    assert [cell for cell in (*larsons, *others) if opinion_obstacle(CellTask(stage, cell, 4)) == ""] == []
