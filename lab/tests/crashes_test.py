"""What crashes, hangs or tells nothing: a result of its own, and a loss only where hakmem does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hakmem_lab.measure.rounds import UNDECIDED
from hakmem_lab.reports.matrix_lines import warning_lines
from hakmem_lab.reports.matrix_text import failures_grid
from hakmem_lab.studies.judging import Outcome, judge
from hakmem_lab.studies.matrix import SAME
from lab_matrix import ROW, SETTINGS, crashing, observed_make, plan_make, row_make, samples_make, tails_make


def test_where_every_peer_crashed_it_is_they_who_are_why_there_is_no_best() -> None:
    row = row_make("cell", peers=("glibc", "mimalloc3"))
    samples = crashing(crashing(samples_make(row), "glibc"), "mimalloc3")
    (cell,) = judge(plan_make(row, peers=("glibc", "mimalloc3")), samples).cells
    assert (cell.outcome, cell.note) == (
        Outcome.OPEN,
        "glibc crashed: signal 11; mimalloc3 crashed: signal 11",
    )


def test_a_best_peer_that_crashes_after_it_was_selected_is_why_there_is_none() -> None:
    samples = samples_make(ROW, glibc=2.0, mimalloc3=1.1, jemalloc=2.0)
    late = [one for one in samples if one.slot >= ROW.rounds.rounds - 2]
    kept = [one for one in samples if one not in late]
    (cell,) = judge(plan_make(ROW), [*kept, *crashing(late, "mimalloc3")]).cells
    assert (cell.outcome, cell.note) == (Outcome.OPEN, "mimalloc3, which was selected, crashed: signal 11")


def test_a_peer_that_crashes_is_a_result_and_the_others_are_compared() -> None:
    matrix = judge(plan_make(ROW), crashing(samples_make(ROW, mimalloc3=1.5), "glibc"))
    result = matrix.result("cell", "glibc")
    assert result is not None
    assert (result.failure, result.estimate) == ("glibc crashed: signal 11", None)
    assert matrix.failures == {("cell", "glibc"): "crashed: signal 11"}
    assert matrix.cells[0].outcome is Outcome.WON


def test_a_peer_that_crashes_now_and_then_is_not_compared_by_its_other_runs() -> None:
    samples = samples_make(ROW, glibc=2.0)
    sometimes = [one for one in crashing(samples, "glibc") if one.slot == 5]
    matrix = judge(plan_make(ROW), [one for one in samples if one.slot != 5] + sometimes)
    result = matrix.result("cell", "glibc")
    assert result is not None
    assert (result.failure, result.estimate) == ("glibc crashed: signal 11", None)


def test_a_crash_of_hakmem_is_a_loss() -> None:
    matrix = judge(plan_make(ROW), crashing(samples_make(ROW), "hakmem"))
    assert matrix.cells[0].outcome is Outcome.LOST
    assert matrix.lost == [matrix.cells[0]]
    assert matrix.cells[0].note == "hakmem crashed: signal 11"
    assert matrix.controls == ()


@pytest.mark.parametrize("arm", [SAME, SETTINGS.slowed])
def test_a_crash_of_hakmem_under_a_controls_name_is_one_of_hakmem(arm: str) -> None:
    matrix = judge(plan_make(ROW), crashing(samples_make(ROW, glibc=2.0), arm))
    (cell,) = matrix.cells
    assert (cell.outcome, cell.note) == (Outcome.LOST, "hakmem crashed: signal 11")
    assert matrix.broken == {"cell": "crashed: signal 11"}
    (failed,) = [one for one in matrix.controls if not one.passed]
    assert failed.means == f"{arm} crashed: signal 11"


def test_where_nobody_knows_whose_work_was_right_nothing_is_lost() -> None:
    """A crash of its own is a loss all the same."""
    samples = [
        replace(one, outcome=UNDECIDED, ops=None, seconds=None) if one.slot == 3 else one
        for one in samples_make(ROW)
    ]
    matrix = judge(plan_make(ROW), samples)
    assert (matrix.cells[0].outcome, matrix.broken) == (Outcome.OPEN, {})
    said = "Open, since different work was done and no majority says whose was right: cell."
    assert warning_lines(matrix)[0] == said
    later = [one for one in crashing(samples, "hakmem") if one.slot == 5]
    both = judge(plan_make(ROW), [*(one for one in samples if one.slot != 5), *later])
    assert (both.cells[0].outcome, both.failed("cell")) == (Outcome.LOST, "crashed: signal 11")
    assert said not in warning_lines(both)


def test_what_fails_with_instruments_or_a_clock_is_told_and_loses_nothing() -> None:
    ended = {"outcome": "crashed: signal 11", "latency_p999_ns": None}
    seen = [replace(observed_make(ROW, "hakmem"), **ended), observed_make(ROW, "glibc")]
    clocked = [
        replace(one, **ended) if one.slot == 2 else one for one in tails_make(ROW, {"jemalloc": [40.0] * 4})
    ]
    matrix = judge(plan_make(ROW), [*samples_make(ROW), *seen, *clocked])
    crash = "in the run with instruments: crashed: signal 11"
    assert matrix.failures == {
        ("cell", "hakmem"): crash,
        ("cell", "jemalloc"): "in the runs with a clock: crashed: signal 11",
    }
    assert matrix.cells[0].outcome is Outcome.WON
    assert ("cell", "hakmem") not in matrix.observed
    assert warning_lines(matrix)[0] == f"hakmem failed in cell: {crash}."
    assert ("cell", "hakmem", crash) in failures_grid(matrix).rows
    both = judge(plan_make(ROW), [*crashing(samples_make(ROW), "hakmem"), *seen])
    assert both.failures["cell", "hakmem"] == f"crashed: signal 11; {crash}"


def test_a_peer_that_failed_before_the_rounds_is_named() -> None:
    row = row_make("cell", peers=("glibc", "mimalloc3"), failures={"jemalloc": "hung: 120 s"})
    matrix = judge(plan_make(row), samples_make(row))
    result = matrix.result("cell", "jemalloc")
    assert result is not None
    assert result.failure == "jemalloc hung: 120 s"


def test_a_run_that_told_no_speed_is_a_failure_and_not_the_end_of_the_report() -> None:
    samples = [replace(one, seconds=0.0) if one.arm == "glibc" else one for one in samples_make(ROW)]
    assert judge(plan_make(ROW), samples).failures == {("cell", "glibc"): "failed: told no speed"}
