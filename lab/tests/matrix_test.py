"""A matrix is judged and planned. What crashes: crashes_test.py; what is resumed: resume_test.py."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.errors import LabError
from hakmem_lab.measure.calibrate import Work
from hakmem_lab.measure.rounds import RoundPlan
from hakmem_lab.reports.matrix_lines import turns_lines, warning_lines
from hakmem_lab.statistics.estimate import Verdict
from hakmem_lab.studies.bench import KIND
from hakmem_lab.studies.candidates import Candidate
from hakmem_lab.studies.comparing import NOT_MEASURED, peers_left
from hakmem_lab.studies.goals import MANY_SLOTS
from hakmem_lab.studies.judging import NOT_SELECTED, TOO_FEW_ROUNDS, Matrix, Outcome, judge
from hakmem_lab.studies.matrix import SAME, MatrixPlan, Row
from hakmem_lab.studies.matrix_prepare import rows_plan
from lab_matrix import (
    PEERS,
    ROW,
    SETTINGS,
    NoTask,
    crashing,
    observed_make,
    plan_make,
    row_make,
    sample_make,
    samples_make,
)

CANDIDATE = Candidate("cell", "small", "program", "1", lambda _: NoTask(), 1)  # type: ignore[arg-type,return-value]  # no run is made


def judged(row: Row = ROW, **ratios: float) -> Matrix:
    return judge(plan_make(row), samples_make(row, **ratios))


@pytest.mark.parametrize(
    ("mimalloc3", "verdict"),
    [(1.50, Verdict.AHEAD), (1.00, Verdict.EQUAL), (0.97, Verdict.UNCLEAR), (0.90, Verdict.BEHIND)],
)
def test_verdicts_are_of_intervals_and_a_margin(mimalloc3: float, verdict: Verdict) -> None:
    result = judged(mimalloc3=mimalloc3).result("cell", "mimalloc3")
    assert result is not None
    assert result.verdict is verdict


@pytest.mark.parametrize(
    ("ratios", "outcome", "best"),
    [
        ({"glibc": 2.0, "mimalloc3": 0.7, "jemalloc": 1.5}, Outcome.LOST, "mimalloc3"),
        ({"glibc": 2.0, "mimalloc3": 1.6, "jemalloc": 1.3}, Outcome.WON, "jemalloc"),
        ({"glibc": 2.0, "mimalloc3": 1.0, "jemalloc": 1.3}, Outcome.TIE, "mimalloc3"),
        ({"glibc": 2.0, "mimalloc3": 1.032, "jemalloc": 1.3}, Outcome.OPEN, "mimalloc3"),
    ],
)
def test_a_cell_is_judged_against_its_best_peer(
    ratios: dict[str, float], outcome: Outcome, best: str
) -> None:
    (cell,) = judged(**ratios).cells
    assert cell.best is not None
    assert (cell.outcome, cell.best.peer) == (outcome, best)


def test_the_rounds_that_select_a_peer_do_not_compare_it() -> None:
    """Nor do the others change what was selected."""
    first = samples_make(ROW, glibc=2.0, mimalloc3=1.5, jemalloc=0.5)
    later = samples_make(ROW, glibc=2.0, mimalloc3=0.5, jemalloc=1.5)
    selection = ROW.rounds.selection
    samples = [a if a.slot < selection else b for a, b in zip(first, later, strict=True)]
    best = judge(plan_make(ROW), samples).cells[0].best
    assert best is not None
    assert (best.peer, best.estimate.pairs) == ("jemalloc", ROW.rounds.rounds - selection)
    assert best.estimate.ratio == pytest.approx(1.5, rel=0.01)


def test_whom_a_goal_names_is_judged_without_the_rounds_that_did_not_select_it() -> None:
    """It was not selected since it looked slow there."""
    row = replace(ROW, rounds=replace(ROW.rounds, named=("glibc",)))
    slow = samples_make(row, glibc=3.0, mimalloc3=1.0, jemalloc=2.0)
    later = samples_make(row, glibc=1.5, mimalloc3=1.0, jemalloc=2.0)
    samples = [a if a.slot < row.rounds.selection else b for a, b in zip(slow, later, strict=True)]
    result = judge(plan_make(row), samples).result("cell", "glibc")
    assert result is not None and result.estimate is not None
    assert result.estimate.ratio == pytest.approx(1.5, rel=0.01)
    few = [one for one in samples if one.slot < row.rounds.selection + 3]
    result = judge(plan_make(row), few).result("cell", "glibc")
    assert result is not None and result.estimate is not None
    assert result.estimate.pairs == row.rounds.selection + 3


def test_a_single_peer_needs_no_selection() -> None:
    row = row_make("cell", peers=("glibc",))
    row = replace(row, rounds=RoundPlan(row.rounds.rounds, row.rounds.arms))
    best = judge(plan_make(row, peers=("glibc",)), samples_make(row, glibc=1.5)).cells[0].best
    assert best is not None
    assert (best.peer, best.estimate.pairs) == ("glibc", row.rounds.rounds)


@pytest.mark.parametrize(
    ("rounds", "selection", "glibc_fails", "note"),
    [(24, 0, False, NOT_SELECTED), (2, 2, False, TOO_FEW_ROUNDS), (1, 0, True, TOO_FEW_ROUNDS)],
    ids=["none of two is selected", "few rounds after the selection", "one is left"],
)
def test_why_there_is_no_best_peer(rounds: int, selection: int, glibc_fails: bool, note: str) -> None:
    """A row that rests has everybody in all its rounds: it has no best peer, and not for want of rounds."""
    row = row_make("rests", peers=("glibc", "mimalloc3"), rounds=rounds)
    row = replace(row, rounds=replace(row.rounds, selection=selection))
    samples = samples_make(row, glibc=2.0, mimalloc3=2.0)
    matrix = judge(
        plan_make(row, peers=("glibc", "mimalloc3")), crashing(samples, "glibc") if glibc_fails else samples
    )
    (cell,) = matrix.cells
    assert (cell.outcome, cell.best, cell.note) == (Outcome.OPEN, None, note)
    told = [line for line in warning_lines(matrix) if line.startswith("Too few rounds")]
    assert bool(told) == (note == TOO_FEW_ROUNDS)


def test_what_was_not_measured_has_no_rounds_rather_than_too_few() -> None:
    matrix = judge(plan_make(ROW), [])
    assert (matrix.cells[0].outcome, matrix.cells[0].note) == (Outcome.OPEN, NOT_MEASURED)
    assert warning_lines(matrix) == ["No round was measured of cell."]


def test_what_a_page_fault_cost_is_said_where_it_is_known() -> None:
    row = row_make("cell")
    runs = [sample_make(row, slot, arm) for slot in range(10) for arm in row.rounds.arms]
    plan = plan_make(row)
    assert not any("first touch" in line for line in warning_lines(judge(plan, runs)))
    priced = [replace(one, touch_us=1.0 + number) for number, one in enumerate(runs)]
    (line,) = [line for line in warning_lines(judge(plan, priced)) if "first touch" in line]
    middle = (len(runs) + 1) / 2
    assert f" {middle:.2g} µs in the median" in line


def test_where_processes_took_turns_is_said() -> None:
    rows = row_make("cell"), row_make("server")
    plan = plan_make(*rows)
    runs = [sample_make(row, slot, arm) for row in rows for slot in range(10) for arm in row.rounds.arms]
    assert turns_lines(judge(plan, runs)) == []
    in_turns = [replace(one, in_turns=one.task == "cell") for one in runs]
    (line,) = turns_lines(judge(plan, in_turns))
    assert line.startswith("The processes of a round took turns of 10 to 50 ms")
    assert line.endswith(" One after the other ran those of server.")
    assert turns_lines(judge(plan, [replace(one, in_turns=True) for one in runs]))[0].endswith(
        "all of them alike."
    )


def test_a_workload_in_which_every_allocator_fails_stays_in_the_plan() -> None:
    """Without rounds: it takes nothing from the others, and is no loss."""
    failures = {"hakmem": "hung: 120 s", "glibc": "crashed: signal 11"}
    works = {"cell": Work(1, PEER_WALLS, {}), "nobody": Work(1, {}, failures)}
    alone, nobody = (
        rows_plan(candidates, works, SETTINGS, 200.0, 300.0, True)
        for candidates in ([CANDIDATE], [replace(CANDIDATE, name="nobody"), CANDIDATE])
    )
    assert [row.name for row in nobody] == ["nobody", "cell"]
    assert nobody[1] == alone[0]
    assert (nobody[0].rounds, nobody[0].failures, nobody[0].seconds) == (RoundPlan(0, ()), failures, 0.0)
    matrix = judge(plan_make(*nobody, peers=("glibc",)), [])
    (cell,) = [one for one in matrix.cells if one.row.name == "nobody"]
    assert (cell.outcome, cell.note) == (Outcome.OPEN, "every allocator fails in it: hung: 120 s")
    assert matrix.failures == {("nobody", arm): what for arm, what in failures.items()}


def test_a_negative_control_in_which_every_allocator_fails_makes_the_run_void() -> None:
    still = replace(CANDIDATE, name="still", control=True)
    works = {"still": Work(1, {}, dict.fromkeys(("hakmem", *PEERS), "crashed: signal 11"))}
    rows = rows_plan([still], works, SETTINGS, 200.0, 300.0, True)
    matrix = judge(plan_make(ROW, *rows), samples_make(ROW, glibc=2.0))
    assert matrix.cells[0].outcome is Outcome.VOID


PEER_WALLS = {"hakmem": 1.0, "glibc": 3.0, "mimalloc3": 1.0, "jemalloc": 2.0, SAME: 1.0, SETTINGS.slowed: 1.0}


@pytest.mark.parametrize(
    ("walls", "changes", "best_only", "selects"),
    [
        (PEER_WALLS, {}, True, True),
        (PEER_WALLS, {}, False, False),
        (PEER_WALLS, {"control": True}, True, False),
        (PEER_WALLS, {"memory": True}, True, False),
        (dict.fromkeys(PEER_WALLS, 6.0), {}, True, False),
        ({arm: PEER_WALLS[arm] for arm in PEER_WALLS if arm not in PEERS[1:]}, {}, True, False),
    ],
    ids=["many", "each has a figure", "a control", "about memory", "it rests", "one peer"],
)
def test_where_the_best_peer_is_selected(
    walls: dict[str, float], changes: dict[str, bool], best_only: bool, selects: bool
) -> None:
    candidate = replace(CANDIDATE, **changes)
    (row,) = rows_plan([candidate], {"cell": Work(1, walls, {})}, SETTINGS, 200.0, 300.0, best_only)
    assert row.rounds.selection == (8 if selects else 0)
    assert row.rounds.always == (("hakmem", SAME, SETTINGS.slowed) if selects else ())
    assert row.rounds.near == (("mimalloc3",) if selects else ())
    assert row.rounds.named == ()
    left = {
        slot: ["jemalloc" if slot >= row.rounds.selection else "mimalloc3"]
        for slot in range(row.rounds.rounds)
    }
    runs = [sum(walls[arm] for arm in row.rounds.arms_at(slot, left[slot])) for slot in left]
    assert row.seconds == pytest.approx(sum(runs))


def test_whom_a_goal_is_about_takes_part_in_all_rounds() -> None:
    candidate = replace(CANDIDATE, name=MANY_SLOTS[0])
    walls = PEER_WALLS | {"mimalloc3": 3.0, "jemalloc": 1.0}
    (row,) = rows_plan([candidate], {candidate.name: Work(1, walls, {})}, SETTINGS, 200.0, 300.0, True)
    assert row.rounds.named == ("mimalloc3",)
    last = row.rounds.arms_at(row.rounds.rounds - 1, ["jemalloc"])
    assert set(last) == {"hakmem", SAME, SETTINGS.slowed, "mimalloc3", "jemalloc"}
    (alike,) = rows_plan([candidate], {candidate.name: Work(1, walls, {})}, SETTINGS, 200.0, 300.0, False)
    assert alike.rounds.named == ()


def test_who_came_near_the_fastest_is_left_and_then_the_best_alone() -> None:
    row = row_make("cell", rounds=12)
    row = replace(row, rounds=replace(row.rounds, selection=2))
    samples = samples_make(row, glibc=1.4, mimalloc3=1.6, jemalloc=1.0)
    assert peers_left(row, samples, 1) == ["glibc", "jemalloc"]
    assert peers_left(row, samples, 2) == ["jemalloc"]
    failing = [replace(one, outcome="crashed") if one.arm == "mimalloc3" else one for one in samples]
    assert peers_left(row, failing, 1) == ["glibc", "jemalloc"]
    nobody = [one for one in samples if one.arm == "hakmem"]
    assert peers_left(row, nobody, 2) == []


def test_many_cells_make_a_doubtful_win_open() -> None:
    """Alone it is won; as one of many that are equal it may be luck."""
    doubtful = row_make("doubtful")
    samples = samples_make(doubtful, noise=0.03, glibc=1.11, mimalloc3=1.5)
    alone = judge(plan_make(doubtful), samples).cells[0]
    assert alone.outcome is Outcome.WON
    others = [row_make(f"equal {number}") for number in range(60)]
    equal = [sample for row in others for sample in samples_make(row, glibc=1.0, mimalloc3=1.5)]
    among = judge(plan_make(doubtful, *others), samples + equal).cells
    (cell,) = [one for one in among if one.row.name == "doubtful"]
    assert cell.p_adjusted > alone.p_adjusted
    assert cell.outcome is Outcome.OPEN


def test_losses_come_first() -> None:
    rows = [row_make(name) for name in ("won", "lost", "tie")]
    ratios = {"won": 1.5, "lost": 0.5, "tie": 1.0}
    samples = [one for row in rows for one in samples_make(row, mimalloc3=ratios[row.name])]
    matrix = judge(plan_make(*rows), samples)
    assert [cell.row.name for cell in matrix.cells] == ["lost", "tie", "won"]
    assert matrix.losses_first[0].row.name == "lost"


def test_a_false_win_makes_the_cell_void() -> None:
    matrix = judged(**{SAME: 1.1, "glibc": 2.0, "mimalloc3": 0.5})
    assert {one.verdict for one in matrix.results} == {Verdict.VOID}
    assert matrix.cells[0].outcome is Outcome.VOID
    assert [one.passed for one in matrix.controls] == [False, True]


def test_a_missed_slowdown_leaves_wins_but_no_equality() -> None:
    matrix = judged(**{SETTINGS.slowed: 1.0, "glibc": 2.0, "mimalloc3": 1.0})
    assert [one.verdict for one in matrix.results] == [Verdict.AHEAD, Verdict.UNCLEAR, Verdict.AHEAD]
    assert matrix.cells[0].outcome is Outcome.OPEN


@pytest.mark.parametrize(("jemalloc", "void"), [(1.0, False), (1.2, True)])
def test_a_negative_control_that_moves_makes_the_run_void(jemalloc: float, void: bool) -> None:
    still = row_make("still", control=True)
    samples = samples_make(ROW, glibc=2.0) + samples_make(still, glibc=1.0, mimalloc3=1.0, jemalloc=jemalloc)
    matrix = judge(plan_make(ROW, still), samples)
    assert [cell.row.name for cell in matrix.cells] == ["cell"]
    assert (matrix.cells[0].outcome is Outcome.VOID) == void


def test_a_negative_control_that_nobody_ran_is_none() -> None:
    still = row_make("still", control=True)
    samples = samples_make(still)
    for peer in PEERS:
        samples = crashing(samples, peer)
    matrix = judge(plan_make(ROW, still), [*samples_make(ROW, glibc=2.0), *samples])
    assert matrix.cells[0].outcome is Outcome.VOID
    assert any("could not be run, under every peer" in line for line in warning_lines(matrix))


def test_a_negative_control_in_which_hakmem_fails_makes_the_run_void() -> None:
    still = row_make("still", control=True)
    samples = [*samples_make(ROW, glibc=2.0), *crashing(samples_make(still), "hakmem")]
    matrix = judge(plan_make(ROW, still), samples)
    assert matrix.cells[0].outcome is Outcome.VOID
    assert [(one.name, one.passed) for one in matrix.controls if one.row.control] == [("hakmem", False)]
    assert any("could not be run, under hakmem" in line for line in warning_lines(matrix))


def test_a_negative_control_that_is_still_to_be_measured_makes_nothing_void() -> None:
    still = row_make("still", control=True)
    matrix = judge(plan_make(ROW, still), samples_make(ROW, glibc=2.0, mimalloc3=2.0))
    assert matrix.cells[0].outcome is Outcome.WON


def test_disturbed_pairs_do_not_count_where_enough_are_quiet() -> None:
    samples = [
        replace(one, seconds=9.0, disturbed="steal") if one.arm == "glibc" and one.slot < 3 else one
        for one in samples_make(ROW, glibc=1.0, jemalloc=0.8)
    ]
    result = judge(plan_make(ROW), samples).result("cell", "glibc")
    assert result is not None and result.estimate is not None
    assert result.estimate.ratio == pytest.approx(1.0, rel=0.01)
    assert (result.disturbed, result.estimate.pairs) == (3, 21)


def test_a_round_that_was_measured_again_counts_once() -> None:
    again = [replace(one, attempt=1) for one in samples_make(ROW, glibc=1.0, jemalloc=0.8) if one.slot == 0]
    spoilt = [
        replace(one, disturbed="steal") if one.slot == 0 else one
        for one in samples_make(ROW, glibc=1.0, jemalloc=0.8)
    ]
    result = judge(plan_make(ROW), spoilt + again).result("cell", "glibc")
    assert result is not None and result.estimate is not None
    assert result.estimate.pairs == 24


def test_memory_has_its_own_margin() -> None:
    matrix = judge(plan_make(ROW), samples_make(ROW, rss={"glibc": 2.0, "mimalloc3": 1.04, "jemalloc": 0.5}))
    verdicts = {one.against: one.memory.verdict for one in matrix.results if one.memory}
    assert verdicts == {
        "glibc": Verdict.BEHIND,
        "mimalloc3": Verdict.EQUAL,
        "jemalloc": Verdict.AHEAD,
    }


def test_instruments_are_kept_apart_from_times() -> None:
    slow = replace(observed_make(ROW, "glibc"), seconds=99.0)
    matrix = judge(plan_make(ROW), [*samples_make(ROW, glibc=1.0), slow])
    result = matrix.result("cell", "glibc")
    assert result is not None and result.estimate is not None
    assert result.estimate.ratio == pytest.approx(1.0, rel=0.01)
    assert matrix.observed["cell", "glibc"].system_calls == 50


# ---- the plan on the disk -----------------------------------------------------------------------------


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = plan_make(ROW, row_make("other", failures={"glibc": "hung"}, memory=True))
    plan.save(tmp_path)
    assert MatrixPlan.load(tmp_path, KIND) == plan


def test_a_plan_of_another_kind_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="holds no run"):
        MatrixPlan.load(tmp_path, KIND)
    for text, why in (
        ("{}", "it does not name the command that made it"),
        (json.dumps({"kind": KIND}), "'source'"),
        ("3", ""),
    ):
        (tmp_path / "plan.json").write_text(text)
        with pytest.raises(LabError, match=f"is not a plan of this version: {why}"):
            MatrixPlan.load(tmp_path, KIND)
