"""What hakmem is to reach, held against made-up matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hakmem_lab.measure.store import Sample
from hakmem_lab.studies.answers import Answer, State
from hakmem_lab.studies.goals import (
    EVERY_CLASS,
    GOALS,
    LARGE,
    MANY_SLOTS,
    MID,
    PHASES,
    START,
    STARTING_ROWS,
    goals_reached,
    is_named,
)
from hakmem_lab.studies.judging import Matrix, judge
from hakmem_lab.studies.matrix import SAME, Row
from hakmem_lab.studies.suites import group_means
from hakmem_lab.workloads.cells import CELLS
from lab_matrix import crashing, observed_make, plan_make, row_make, samples_make, tails_make, unserved

PEERS = ("glibc", "mimalloc3", "mimalloc3-nothp", "snmalloc")


def matrix_of(rows: Mapping[str, Mapping[str, float]], group: str = "small", **more: object) -> Matrix:
    """hakmem's speed in each workload over each peer's."""
    made = [row_make(name, PEERS, group=group) for name in rows]
    samples = [
        one
        for row in made
        for one in samples_make(row, **rows[row.name], **more)  # type: ignore[arg-type]  # what samples_make takes, by name
    ]
    return judge(plan_make(*made, peers=PEERS), samples)


def answer_of(matrix: Matrix, area: str, wanted: str = "") -> Answer | None:
    found = [
        one.answer
        for one in goals_reached(matrix, group_means(matrix))
        if one.goal.area == area and wanted in one.goal.wanted
    ]
    return found[0] if found else None


def state_of(matrix: Matrix, area: str, wanted: str = "") -> State | None:
    answer = answer_of(matrix, area, wanted)
    return answer.state if answer else None


def level(**ratios: float) -> dict[str, float]:
    return dict.fromkeys(PEERS, 1.5) | {name.replace("_", "-"): ratio for name, ratio in ratios.items()}


def test_every_workload_that_a_goal_names_exists() -> None:
    assert {EVERY_CLASS, *MANY_SLOTS, *MID, LARGE, PHASES, START} <= {cell.name for cell in CELLS}
    known = {cell.name for cell in CELLS} | {cell.group.value for cell in CELLS}
    assert {row for goal in GOALS for row in goal.rows} <= known


@pytest.mark.parametrize(
    ("peer", "row", "group", "named"),
    [
        ("mimalloc3", MANY_SLOTS[0], "small", True),
        ("mimalloc2", MANY_SLOTS[0], "small", False),
        ("snmalloc", "1 producer, 3 consumers", "hand-over", True),
        ("snmalloc", "larson, 2 threads, 8-128 B", "threads", False),
        ("scudo", START, "start", True),
        ("glibc", START, "start", False),
        ("glibc", "tiny and hot, 16 B", "small", True),
        ("glibc", "tiny and hot, 32 B", "small", False),
    ],
)
def test_which_peers_a_goal_is_about(peer: str, row: str, group: str, named: bool) -> None:
    assert is_named(peer, row, group) == named


def test_the_whole_suite_answers_every_goal() -> None:
    rows = [
        row_make(cell.name, PEERS, 4, group=cell.group.value, memory=cell.memory)
        for cell in CELLS
        if not cell.control
    ]
    rows += [row_make(name, PEERS, 4, group="programs") for name in ("one", "two", "three")]
    samples = [
        one
        for row in rows
        for one in samples_make(row, rss=dict.fromkeys(("hakmem", *PEERS), 100.0), **level())
    ]
    seen = [observed_make(row, arm) for row in rows for arm in ("hakmem", *PEERS)]
    clocked = [one for row in rows for one in tails_make(row, dict.fromkeys(("hakmem", *PEERS), [40.0] * 6))]
    matrix = judge(plan_make(*rows, peers=PEERS), [*samples, *seen, *clocked])
    assert len(goals_reached(matrix, group_means(matrix))) == len(GOALS)


def test_what_was_not_measured_is_no_goal() -> None:
    assert goals_reached(judge(plan_make(), []), []) == []


@pytest.mark.parametrize(
    ("ratio", "state"), [(0.8, State.MISSED), (1.0, State.MET), (1.033, State.OPEN), (1.5, State.MET)]
)
def test_behind_in_none(ratio: float, state: State) -> None:
    matrix = matrix_of({"cell": level(snmalloc=ratio), "other": dict.fromkeys(PEERS, 9.0)})
    answer = answer_of(matrix, "blocks to 1 KiB, one thread")
    assert answer is not None
    assert answer.state is state
    assert f"cell, {ratio:.2f}"[:-1] in answer.why  # the slowest is named


@pytest.mark.parametrize(("ratio", "state"), [(1.1, State.OPEN), (1.5, State.OPEN), (1.8, State.MET)])
def test_so_many_times_the_best_peer(ratio: float, state: State) -> None:
    matrix = matrix_of({MID[0]: level(snmalloc=ratio, glibc=9, mimalloc3=9, mimalloc3_nothp=9)}, "mid")
    assert state_of(matrix, "1 to 8 KiB, 8 to 32 KiB") is state


def test_one_workload_that_is_missed_is_enough() -> None:
    rows = {MANY_SLOTS[0]: level(mimalloc3=3), MANY_SLOTS[1]: level(mimalloc3=1.1)}
    assert state_of(matrix_of(rows), "4096 slots and more") is State.MISSED


@pytest.mark.parametrize(("ratio", "state"), [(0.8, State.MISSED), (0.99, State.MET), (0.971, State.OPEN)])
def test_not_behind_one_peer(ratio: float, state: State) -> None:
    matrix = matrix_of({"cell": level(snmalloc=ratio, glibc=0.1)}, "hand-over")
    assert state_of(matrix, "producers and consumers") is state


@pytest.mark.parametrize(("ratio", "state"), [(0.8, State.MISSED), (0.99, State.MET), (0.971, State.OPEN)])
def test_what_is_preloaded_starts_beside_what_is(ratio: float, state: State) -> None:
    matrix = matrix_of({START: level(snmalloc=ratio, glibc=0.1)}, "start")
    assert state_of(matrix, "start of a process") is state


@pytest.mark.parametrize(
    ("names", "group", "area", "wanted"),
    [
        (MID, "mid", "1 to 8 KiB, 8 to 32 KiB", ""),
        (MANY_SLOTS, "small", "4096 slots and more", ""),
        (("one", "two"), "hand-over", "producers and consumers", ""),
        (("one", "two", "three", "four"), "programs", "real programs", "mean"),
    ],
)
def test_what_is_void_does_not_meet_a_goal(
    names: tuple[str, ...], group: str, area: str, wanted: str
) -> None:
    fast = dict.fromkeys(names, level(snmalloc=3, glibc=3, mimalloc3=3, mimalloc3_nothp=3))
    assert state_of(matrix_of(fast, group), area, wanted) is State.MET
    answer = answer_of(matrix_of(fast | {names[0]: fast[names[0]] | {SAME: 1.1}}, group), area, wanted)
    assert answer is not None
    assert answer.state is State.OPEN
    assert f"void: {names[0]}" in answer.why
    nothing = answer_of(matrix_of({name: fast[name] | {SAME: 1.1} for name in names}, group), area, wanted)
    assert nothing is not None
    assert nothing.state is State.OPEN


def test_a_workload_that_is_missed_is_so_beside_one_that_is_void() -> None:
    rows = {MANY_SLOTS[0]: level(mimalloc3=3) | {SAME: 1.1}, MANY_SLOTS[1]: level(mimalloc3=1.1)}
    assert state_of(matrix_of(rows), "4096 slots and more") is State.MISSED


ROWS_OF = pytest.mark.parametrize(
    ("names", "group", "area", "wanted"),
    [
        (("one", "two"), "small", "blocks to 1 KiB, one thread", ""),
        (MANY_SLOTS, "small", "4096 slots and more", ""),
        (MID, "mid", "1 to 8 KiB, 8 to 32 KiB", ""),
        (("one", "two"), "hand-over", "producers and consumers", ""),
        (("one", "two", "three", "four"), "programs", "real programs", "mean"),
        (("one", "two"), "programs", "real programs", "behind in none"),
        (("one", "two"), "any", "peak RSS", "mean"),
        (("one", "two"), "any", "peak RSS", "in no workload"),
        (("one", "two"), "any", "page faults", "in no workload"),
        ((START, "one"), "any", "peak RSS", "mean"),
        (STARTING_ROWS, "any", "the figures it starts from", ""),
    ],
)


def fast_runs(names: tuple[str, ...], group: str) -> tuple[list[Row], list[Sample]]:
    """In which hakmem reaches what a goal asks."""
    rows = [row_make(name, PEERS, group=group) for name in names]
    speeds = level(snmalloc=3, glibc=3, mimalloc3=3, mimalloc3_nothp=3)
    smaller = {"hakmem": 0.5}
    samples = [
        replace(one, minor_faults=900) if one.arm == "hakmem" else one
        for row in rows
        for one in samples_make(row, rss=smaller, **speeds)
    ]
    return rows, samples


def answered(rows: list[Row], samples: list[Sample], area: str, wanted: str = "") -> Answer:
    answer = answer_of(judge(plan_make(*rows, peers=PEERS), samples), area, wanted)
    assert answer is not None
    return answer


@ROWS_OF
def test_a_workload_in_which_hakmem_failed_misses_the_goal(
    names: tuple[str, ...], group: str, area: str, wanted: str
) -> None:
    rows, samples = fast_runs(names, group)
    assert answered(rows, samples, area, wanted).state is State.MET
    first = [one for one in samples if one.task == names[0]]
    others = [one for one in samples if one.task != names[0]]
    for failing in ([*others, *crashing(first, "hakmem")], crashing(samples, "hakmem")):
        answer = answered(rows, failing, area, wanted)
        assert answer.state is State.MISSED
        assert f"hakmem crashed in {names[0]}" in answer.why


@ROWS_OF
def test_a_workload_that_was_not_measured_leaves_the_goal_open(
    names: tuple[str, ...], group: str, area: str, wanted: str
) -> None:
    rows, samples = fast_runs(names, group)
    others = [one for one in samples if one.task != names[0]]
    assert answered(rows, others, area, wanted).state is State.OPEN
    assert answered(rows, [], area, wanted).state is State.OPEN
    nobody = [unserved(rows[0], ("hakmem", *PEERS)), *rows[1:]]
    assert answered(nobody, others, area, wanted).state is State.OPEN


def test_a_peer_that_failed_is_not_the_best_but_leaves_a_goal_about_it_open() -> None:
    rows, samples = fast_runs(MANY_SLOTS, "small")
    some = [one for one in samples if one.task != MANY_SLOTS[0]]
    failing = [*some, *crashing([one for one in samples if one not in some], "mimalloc3")]
    answer = answered(rows, failing, "4096 slots and more")
    assert answer.state is State.OPEN
    assert f"not known: {MANY_SLOTS[0]} (mimalloc3 crashed: signal 11)" in answer.why
    assert answered(rows, failing, "peak RSS", "mean").state is State.MET
    rows, samples = fast_runs((START,), "start")
    assert answered(rows, crashing(samples, "mimalloc3"), "start of a process").state is State.MET


def test_what_is_below_so_many_times_the_best_peer_is_open_but_a_crash_is_missed() -> None:
    rows, samples = fast_runs(MID[:2], "mid")
    slow = [replace(one, seconds=(one.seconds or 0) * 2.5) if one.arm == "hakmem" else one for one in samples]
    assert answered(rows, slow, "1 to 8 KiB, 8 to 32 KiB").state is State.OPEN
    crash = [*slow[: len(slow) // 2], *crashing(slow[len(slow) // 2 :], "hakmem")]
    assert answered(rows, crash, "1 to 8 KiB, 8 to 32 KiB").state is State.MISSED


def test_a_crash_may_be_in_a_workload_above_64_mib() -> None:
    rows, samples = fast_runs(("one", "two"), "any")
    large = [replace(one, peak_rss_kib=100_000) for one in samples]
    area = "page faults, above 64 MiB"
    assert answered(rows, large, area).state is State.MISSED
    few = [replace(one, minor_faults=100) if one.arm == "hakmem" else one for one in large]
    assert answered(rows, few, area).state is State.MET
    crash = [*few[: len(few) // 2], *crashing(few[len(few) // 2 :], "hakmem")]
    answer = answered(rows, crash, area)
    assert answer.state is State.OPEN
    assert "not known: two (hakmem crashed: signal 11)" in answer.why
    assert answered(rows, crashing(few, "hakmem"), area).state is State.OPEN


def test_programs_are_compared_by_their_means() -> None:
    """One that is behind does not lose the mean."""
    matrix = matrix_of(
        {"one": level(glibc=0.9), "two": level(glibc=1.5), "three": level(glibc=1.1)}, "programs"
    )
    assert state_of(matrix, "real programs", "behind in none") is State.MISSED
    assert state_of(matrix, "real programs", "mean") is State.OPEN
    matrix = matrix_of(dict.fromkeys(("one", "two", "three"), level(glibc=1.2)), "programs")
    assert state_of(matrix, "real programs", "mean") is State.MET


@pytest.mark.parametrize(
    ("glibc", "mean", "each"),
    [(1.1, State.MET, State.MET), (0.9, State.MISSED, State.MET), (0.8, State.MISSED, State.MISSED)],
)
def test_peak_memory(glibc: float, mean: State, each: State) -> None:
    """GLIBC's over hakmem's: the smallest of the peers."""
    rss = {"hakmem": 1.0, "glibc": glibc, "mimalloc3": 2.0, "mimalloc3-nothp": 2.0, "snmalloc": 2.0}
    matrix = matrix_of({"cell": level()}, rss=rss)
    assert state_of(matrix, "peak RSS", "mean") is mean
    assert state_of(matrix, "peak RSS", "above") is each


def with_faults(row: Row, **faults: int) -> Matrix:
    by_arm = {name.replace("_", "-"): number for name, number in faults.items()}
    samples = samples_make(row, rss=dict.fromkeys(("hakmem", *PEERS), 100.0), **level())
    changed = [replace(one, minor_faults=by_arm.get(one.arm, 3000)) for one in samples]
    return judge(plan_make(row, peers=PEERS), changed)


def test_page_faults() -> None:
    row = row_make("cell", PEERS)
    everywhere, large = "page faults", "page faults, above 64 MiB"
    few = with_faults(row, hakmem=900)
    assert state_of(few, everywhere, "without huge") is State.MET
    assert state_of(few, large) is State.MET
    some = with_faults(row, hakmem=2900, mimalloc3=10)  # who asks for huge pages does not count
    assert state_of(some, everywhere, "without huge") is State.MET
    assert state_of(some, large) is State.MISSED
    many = with_faults(row, hakmem=3000, glibc=1000)
    assert state_of(many, everywhere, "without huge") is State.MISSED


SHORTER, DOUBTFUL, BEHIND = [36.0] * 4, [50.0] * 3 + [40.0], [90.0] * 4


@pytest.mark.parametrize(
    ("behind", "longer", "of", "state"),
    [
        (0, 0, 53, State.MET),
        (0, 1, 53, State.OPEN),
        (1, 0, 53, State.OPEN),
        (3, 9, 53, State.OPEN),
        (13, 7, 53, State.MISSED),
        (1, 0, 1, State.OPEN),
        (2, 0, 2, State.MISSED),
    ],
)
def test_tails_are_missed_where_chance_does_not_explain_them(
    behind: int, longer: int, of: int, state: State
) -> None:
    """Between equals one of 70 workloads is behind, so of 53 often one, and hardly ever five."""
    own = [*[BEHIND] * behind, *[DOUBTFUL] * longer, *[SHORTER] * (of - behind - longer)]
    rows = [row_make(f"cell {number}", PEERS) for number in range(of)]
    seen = [observed_make(row, arm) for row in rows for arm in ("hakmem", *PEERS)]
    theirs = dict.fromkeys(PEERS, [40.0] * 4)
    clocked = [
        one
        for row, tails in zip(rows, own, strict=True)
        for one in tails_make(row, {"hakmem": tails} | theirs)
    ]
    answer = answer_of(judge(plan_make(*rows, peers=PEERS), [*seen, *clocked]), "latency")
    assert answer is not None
    assert answer.state is state
    assert ("perhaps" in answer.why) == (behind > 0 and state is State.OPEN)


@pytest.mark.parametrize("kind", ["observed", "tail"])
@pytest.mark.parametrize("alone", [False, True])
def test_a_crash_with_a_clock_leaves_the_tails_open(kind: str, alone: bool) -> None:
    rows = [row_make(name, PEERS) for name in (["one"] if alone else ["one", "two"])]
    seen = [observed_make(row, arm) for row in rows for arm in ("hakmem", *PEERS)]
    tails = {"hakmem": SHORTER} | dict.fromkeys(PEERS, [40.0] * 4)
    samples = [*seen, *(one for row in rows for one in tails_make(row, tails))]
    samples += [one for row in rows for one in samples_make(row)]
    assert answered(rows, samples, "latency").state is State.MET
    ended = {"outcome": "hung: 120 s", "latency_p999_ns": None}
    failing = [
        replace(one, **ended)
        if (one.kind, one.task, one.arm, one.slot) == (kind, "one", "hakmem", 0)
        else one
        for one in samples
    ]
    answer = answered(rows, failing, "latency")
    assert answer.state is State.OPEN
    assert "not known: one (hakmem, in the run" in answer.why and "hung: 120 s" in answer.why


def test_tails_are_missed_where_hakmem_crashed_and_open_where_they_were_not_judged() -> None:
    rows = [row_make(name, PEERS) for name in ("one", "two")]
    seen = [observed_make(row, arm) for row in rows for arm in ("hakmem", *PEERS)]
    clocked = tails_make(rows[0], {"hakmem": SHORTER} | dict.fromkeys(PEERS, [40.0] * 4))
    answer = answered(rows, [*seen, *clocked], "latency")
    assert (answer.state, "not known: two (not measured)" in answer.why) == (State.OPEN, True)
    crash = crashing(samples_make(rows[1]), "hakmem")
    peers_alone = [one for one in seen if (one.task, one.arm) != ("two", "hakmem")]
    answer = answered(rows, [*peers_alone, *clocked, *crash], "latency")
    assert (answer.state, "hakmem crashed in two" in answer.why) == (State.MISSED, True)


def test_what_was_missed_comes_first() -> None:
    matrix = matrix_of({MANY_SLOTS[0]: level(mimalloc3=1.1), "other": level()})
    states = [one.answer.state for one in goals_reached(matrix, group_means(matrix))]
    assert states == sorted(states, key=list(State).index)
    assert states[0] is State.MISSED
