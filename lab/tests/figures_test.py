from __future__ import annotations

from dataclasses import replace

import pytest
from hakmem_lab.measure.pairs import Budget, Comparison, Pair
from hakmem_lab.reports.report import figures_grids, ratio_text, suite_lines, warning_lines
from hakmem_lab.statistics.estimate import Verdict
from hakmem_lab.studies.figures import SAME, SLOWED, Control, Figures, Result, Settings, cell_judge
from hakmem_lab.workloads.cells import NOT_BEHIND, Cell, Target
from lab_pairs import GLIBC, HAKMEM, pair_make, pairs_make

SETTINGS = Settings(Budget())
CELL = Cell("cell", "program", (), 1, targets={"glibc": Target(1.2), "mimalloc3": NOT_BEHIND})


def judge(
    cell: Cell = CELL, same: float = 1.0, slowed: float = 1.06, **ratios: float
) -> tuple[list[Result], list[Control]]:
    pairs: list[Pair] = []
    measured = ratios if cell.control else {**ratios, SAME: same, SLOWED: slowed}
    for name, ratio in measured.items():
        pairs += pairs_make(name, ratio)
    comparisons = [Comparison(name, HAKMEM, GLIBC) for name in measured]
    return cell_judge(cell, comparisons, pairs, SETTINGS)


@pytest.mark.parametrize(
    ("glibc", "verdict", "state"),
    [
        (1.50, Verdict.AHEAD, "met"),
        (1.10, Verdict.AHEAD, "missed"),
        (1.20, Verdict.AHEAD, "open"),
        (1.00, Verdict.EQUAL, "missed"),
        (0.50, Verdict.BEHIND, "missed"),
    ],
)
def test_a_ratio_that_must_be_reached(glibc: float, verdict: Verdict, state: str) -> None:
    results, _ = judge(glibc=glibc)
    assert (results[0].verdict, results[0].target_state) == (verdict, state)


@pytest.mark.parametrize(
    ("mimalloc3", "verdict", "state"),
    [
        (1.50, Verdict.AHEAD, "met"),
        (1.00, Verdict.EQUAL, "met"),
        (0.97, Verdict.UNCLEAR, "open"),
        (0.90, Verdict.BEHIND, "missed"),
    ],
)
def test_not_behind(mimalloc3: float, verdict: Verdict, state: str) -> None:
    results, _ = judge(mimalloc3=mimalloc3)
    assert (results[0].verdict, results[0].target_state) == (verdict, state)


def test_controls_are_not_results() -> None:
    results, controls = judge(glibc=1.5)
    assert [result.against for result in results] == ["glibc"]
    assert [(control.name, control.passed) for control in controls] == [(SAME, True), (SLOWED, True)]


def test_a_false_win_makes_the_cell_void() -> None:
    results, controls = judge(same=1.1, glibc=2.0, mimalloc3=0.5)
    assert {result.verdict for result in results} == {Verdict.VOID}
    assert {result.target_state for result in results} == {"open"}
    assert not controls[0].passed


def test_a_missed_slowdown_leaves_wins_but_no_equality() -> None:
    results, _ = judge(slowed=1.0, glibc=2.0, mimalloc3=1.0)
    assert [result.verdict for result in results] == [Verdict.AHEAD, Verdict.UNCLEAR]


def test_a_negative_control_that_moves_makes_the_run_void() -> None:
    results, controls = judge(glibc=2.0)
    more_results, more_controls = judge(replace(CELL, control=True, targets={}), glibc=1.2)
    assert not more_controls[0].passed
    figures = Figures.of(SETTINGS, results + more_results, controls + more_controls)
    assert {result.verdict for result in figures.results} == {Verdict.VOID}


def test_losses_come_first() -> None:
    results: list[Result] = []
    for name, ratio in [("fast", 3.0), ("lost", 0.5), ("equal", 1.0), ("short", 1.1)]:
        more, _ = judge(replace(CELL, name=name), glibc=ratio)
        results += more
    figures = Figures.of(SETTINGS, results, [])
    assert [result.cell.name for result in figures.losses_first] == ["lost", "equal", "short", "fast"]
    assert [result.cell.name for result in figures.missed] == ["lost", "equal", "short"]
    rows = figures_grids(figures)[0].rows
    assert [row[0] for row in rows] == ["lost", "equal", "short", "fast"]
    assert rows[0][3] == "missed: at least 1.2"


def test_the_suite_leaves_the_negative_control_out() -> None:
    results: list[Result] = []
    for cell, ratio in [(CELL, 1.0), (CELL, 4.0), (replace(CELL, control=True), 9.0)]:
        more, _ = judge(cell, glibc=ratio)
        results += more
    figures = Figures(SETTINGS, tuple(results), ())
    suite = figures.suite("glibc", 1)
    assert suite is not None
    assert suite.ratio == pytest.approx(2.0, rel=0.01)
    assert "glibc" in suite_lines(figures, 1)[0]


def test_disturbed_pairs_do_not_count_but_are_counted() -> None:
    pairs = [*pairs_make("glibc", 1.0), *(pair_make("glibc", 9.0, 90 + n, "steal") for n in range(3))]
    results, _ = cell_judge(CELL, [Comparison("glibc", HAKMEM, GLIBC)], pairs, SETTINGS)
    assert results[0].estimate.ratio == pytest.approx(1.0, rel=1e-6)
    assert results[0].disturbed == 3


def test_memory_is_compared_too() -> None:
    pairs = pairs_make("glibc", 1.0)
    pairs = [replace(pair, subject=replace(pair.subject, peak_rss_kib=1000)) for pair in pairs]
    results, _ = cell_judge(CELL, [Comparison("glibc", HAKMEM, GLIBC)], pairs, SETTINGS)
    memory = results[0].memory
    assert memory.rss is not None
    assert memory.rss.ratio == pytest.approx(0.5)
    grid = figures_grids(Figures.of(SETTINGS, results, []))[1]
    assert grid.rows[0][2] == "smaller"


def test_a_program_that_does_not_tell_its_memory_has_no_memory_row() -> None:
    pairs = pairs_make("glibc", 1.0)
    blank = [
        replace(
            pair,
            subject=replace(pair.subject, peak_rss_kib=None),
            other=replace(pair.other, peak_rss_kib=None),
        )
        for pair in pairs
    ]
    results, _ = cell_judge(CELL, [Comparison("glibc", HAKMEM, GLIBC)], blank, SETTINGS)
    assert results[0].memory.rss is None
    assert figures_grids(Figures.of(SETTINGS, results, []))[1].rows == ()


def test_a_crowded_or_busy_machine_is_mentioned() -> None:
    quiet, _ = judge(replace(CELL, threads=2), glibc=2.0)
    figures = Figures.of(SETTINGS, quiet, [])
    assert warning_lines(figures, 2) == []
    assert warning_lines(figures, 1) == ["cell: its 2 threads had to share 1 processor."]
    loud = [replace(pair, disturbed="steal") for pair in pairs_make("glibc", 2.0)]
    results, _ = cell_judge(CELL, [Comparison("glibc", HAKMEM, GLIBC)], loud, SETTINGS)
    assert "busy" in warning_lines(Figures.of(SETTINGS, results, []), 2)[0]


def test_too_few_pairs_are_said_in_words() -> None:
    results, _ = cell_judge(
        CELL, [Comparison("glibc", HAKMEM, GLIBC)], pairs_make("glibc", 2.0, count=3), SETTINGS
    )
    assert ratio_text(results[0].estimate) == "2.00 (too few pairs)"
