from __future__ import annotations

from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.task import CellTask
from hakmem_lab.statistics.estimate import Estimate, Verdict
from hakmem_lab.studies.ab import Answer
from hakmem_lab.studies.opinion import Opinion, opinion_possible
from hakmem_lab.workloads.cells import CELLS, PROCESS_START


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


def test_of_a_tool_that_starts_other_processes_nothing_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    stage = Stage(tmp_path, Checkout(tmp_path, tmp_path))
    tiny = next(cell for cell in CELLS if cell.name.startswith("tiny and hot"))
    assert opinion_possible(CellTask(stage, tiny, 1))
    assert not opinion_possible(CellTask(stage, PROCESS_START, 1))
    (still,) = [cell for cell in CELLS if cell.control]
    assert not opinion_possible(CellTask(stage, still, 1))
