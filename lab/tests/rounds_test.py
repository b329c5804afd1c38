from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.errors import LabError, ProcessFailedError, RunFailedError
from hakmem_lab.measure.backing import Backing
from hakmem_lab.measure.calibrate import SLOWEST_RUN_SECONDS, Work, work_find
from hakmem_lab.measure.rounds import (
    OTHER_WORK,
    SELECTION_MIN,
    UNDECIDED,
    Demand,
    Failure,
    Round,
    RoundPlan,
    rounds_cost,
    rounds_run,
    rounds_share,
    slots_pending,
    work_compare,
)
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.turns import Seat
from hakmem_lab.workloads.cells import Measure
from hypothesis import given
from hypothesis import strategies as st
from lab_pairs import RUN

NAMES = ("hakmem", "glibc", "slow", "bad")
MORE_NAMES = (*NAMES, "other")
ARMS = {name: Arm(Peer(name, "0", None, f"id of {name}")) for name in MORE_NAMES}


@dataclass
class FakeTask:
    """Runs nothing; remembers what it was asked for."""

    seconds_per_count: dict[str, float] = field(default_factory=dict)
    count: int = 1
    name: str = "task"
    threads: int = 1
    measure: Measure = Measure.TIME
    switches_are_noise: bool = True
    takes_turns: bool = False
    backing: Backing = field(default_factory=Backing)
    failing: dict[str, LabError] = field(default_factory=dict)
    switches: dict[int, int] = field(default_factory=dict)
    """By number of the run."""
    runs: list[tuple[str, Conditions]] = field(default_factory=list)

    def run(self, arm: Arm, conditions: Conditions, _seat: Seat | None = None) -> Measured:
        self.runs.append((arm.name, conditions))
        if arm.name in self.failing:
            raise self.failing[arm.name]
        seconds = self.count * self.seconds_per_count.get(arm.name, 0.25)
        switches = self.switches.get(len(self.runs), 0)
        return replace(RUN, seconds=seconds, wall_seconds=seconds + 0.001, involuntary_switches=switches)


def run_all(task: FakeTask, plan: RoundPlan, done: Sequence[Round] = ()) -> list[Round]:
    return rounds_run(task, plan, ARMS, "7", lambda _: None, done)


def test_a_round_has_everyone_once_under_the_same_conditions() -> None:
    task = FakeTask()
    rounds = run_all(task, RoundPlan(8, NAMES))
    assert [sorted(one.runs) for one in rounds] == [sorted(NAMES)] * 8
    for number in range(8):
        asked = task.runs[4 * number : 4 * number + 4]
        assert len({conditions for _, conditions in asked}) == 1
    assert len({one.conditions.seed for one in rounds}) == 8
    assert len({tuple(one.runs) for one in rounds}) > 1  # in random order


SELECTING = RoundPlan(12, NAMES, 4, ("hakmem",))
SELECTING_FAST = replace(SELECTING, selection=SELECTION_MIN)


def test_who_is_far_behind_leaves_first_and_then_all_but_who_is_selected() -> None:
    left = {1: ["glibc", "slow"], 4: ["glibc"]}
    asked: list[tuple[int, list[int]]] = []

    def select(before: int, rounds: Sequence[Round]) -> list[str]:
        asked.append((before, sorted(one.slot for one in rounds)))
        return left[before]

    rounds = rounds_run(FakeTask(), SELECTING, ARMS, "7", lambda _: None, (), select)
    ran = Counter(name for one in rounds for name in one.runs)
    assert ran == {"hakmem": 12, "glibc": 12, "slow": 4, "bad": 1}
    assert [one.slot < 4 for one in rounds] == [True] * 4 + [False] * 8
    assert asked == [(1, [0])] * 3 + [(4, [0, 1, 2, 3])] * 8


def test_two_rounds_select_at_least() -> None:
    left = {1: ["glibc", "slow"], 2: ["slow"]}
    rounds = rounds_run(
        FakeTask(), SELECTING_FAST, ARMS, "7", lambda _: None, (), lambda before, _: left[before]
    )
    assert [one.slot for one in rounds[:2]] == [0, 1]
    ran = Counter(name for one in rounds for name in one.runs)
    assert ran == {"hakmem": 12, "slow": 12, "glibc": 2, "bad": 1}


def test_who_was_near_alone_is_not_sent_away_by_one_round() -> None:
    plan = replace(SELECTING_FAST, near=("bad", "slow"))
    rounds = rounds_run(FakeTask(), plan, ARMS, "7", lambda _: None, (), lambda _, __: ["slow"])
    ran = Counter(name for one in rounds for name in one.runs)
    assert ran == {"hakmem": 12, "slow": 12, "bad": 2, "glibc": 1}


def test_who_is_named_stays_to_the_end() -> None:
    plan = replace(SELECTING_FAST, named=("bad",))
    rounds = rounds_run(FakeTask(), plan, ARMS, "7", lambda _: None, (), lambda _, __: ["slow"])
    ran = Counter(name for one in rounds for name in one.runs)
    assert ran == {"hakmem": 12, "slow": 12, "bad": 12, "glibc": 1}


def test_where_nobody_can_be_selected_the_selection_was_all() -> None:
    left = {1: ["slow"], 4: []}
    rounds = rounds_run(FakeTask(), SELECTING, ARMS, "7", lambda _: None, (), lambda before, _: left[before])
    assert sorted(one.slot for one in rounds) == [0, 1, 2, 3]


def test_the_selection_is_over_before_what_it_selects_is_compared() -> None:
    """Its disturbed rounds, too, are measured again first."""
    disturbed = FakeTask(switches=dict.fromkeys(range(1, 13), 10_000))
    plan = replace(SELECTING, selection=5)
    rounds = rounds_run(disturbed, plan, ARMS, "7", lambda _: None, (), lambda _, __: ["slow"])
    assert [one.slot < 5 for one in rounds] == [True] * 6 + [False] * 7


@pytest.mark.parametrize(
    "plan", [RoundPlan(12, NAMES), SELECTING, SELECTING_FAST, replace(SELECTING_FAST, named=("bad",))]
)
def test_the_shares_of_all_rounds_are_the_whole(plan: RoundPlan) -> None:
    assert sum(plan.share(slot) for slot in range(plan.rounds)) == pytest.approx(1)
    assert plan.share(0) >= plan.share(11)


def test_who_crashes_is_a_result_and_the_others_go_on() -> None:
    crash = ProcessFailedError("program was ended by signal 11", "crashed: signal 11")
    task = FakeTask(failing={"bad": crash, "slow": RunFailedError("no service")})
    rounds = run_all(task, RoundPlan(5, NAMES))
    assert rounds[0].runs["bad"] == Failure("crashed: signal 11")
    assert rounds[0].runs["slow"] == Failure("failed: no service")
    ran = Counter(name for name, _ in task.runs)
    assert ran == {"hakmem": 5, "glibc": 5, "bad": 2, "slow": 2}


def test_what_the_laboratory_cannot_do_is_nobodys_result_and_ends_the_rounds() -> None:
    full = LabError("cannot copy random_mixed aside: No space left on device")
    with pytest.raises(LabError, match=f"^{full}$"):
        run_all(FakeTask(failing={"glibc": full}), RoundPlan(5, NAMES))


def test_other_work_than_most_is_a_failure() -> None:
    class Cheat(FakeTask):
        def run(self, arm: Arm, conditions: Conditions, _seat: Seat | None = None) -> Measured:
            run = super().run(arm, conditions)
            return replace(run, checksum="zz") if arm.name == "bad" else run

    rounds = run_all(Cheat(), RoundPlan(1, NAMES))
    assert rounds[0].runs["bad"] == Failure(OTHER_WORK)
    assert isinstance(rounds[0].runs["glibc"], Measured)


@pytest.mark.parametrize("order", [("hakmem", "glibc"), ("glibc", "hakmem")])
def test_of_two_that_do_different_work_neither_is_the_usual(order: tuple[str, ...]) -> None:
    runs = {name: replace(RUN, checksum=name) for name in order}
    assert set(work_compare(dict(runs), ARMS).values()) == {Failure(UNDECIDED)}


def test_copies_of_one_library_have_one_vote() -> None:
    """Else a peer that was right would be outvoted by hakmem and its two controls."""
    own = ARMS["hakmem"]
    again = Arm(replace(own.peer, name="hakmem-again"))
    slowed = replace(again, slowdown_percent=6.0)
    arms = {arm.name: arm for arm in (own, again, slowed, ARMS["glibc"])}
    runs = {name: replace(RUN, checksum="y" if name == "glibc" else "x") for name in arms}
    assert set(work_compare(dict(runs), arms).values()) == {Failure(UNDECIDED)}
    right = work_compare(dict(runs) | {"slow": replace(RUN, checksum="y")}, arms | {"slow": ARMS["slow"]})
    assert {name for name, run in right.items() if isinstance(run, Measured)} == {"glibc", "slow"}
    assert right["hakmem"] == Failure(OTHER_WORK)


def test_where_only_the_controls_are_left_there_are_no_more_rounds() -> None:
    crash = ProcessFailedError("program was ended by signal 11", "crashed: signal 11")
    task = FakeTask(failing=dict.fromkeys(("glibc", "bad", "slow"), crash))
    assert len(run_all(task, RoundPlan(8, NAMES, always=("hakmem",)))) == 2


def test_a_round_is_measured_again_when_the_subject_was_disturbed() -> None:
    order = [name for name, _ in _runs_of(FakeTask())]
    at = order.index("hakmem") + 1
    rounds = run_all(FakeTask(switches={at: 10_000}), RoundPlan(8, NAMES))
    assert len(rounds) == 9
    again = [one for one in rounds if one.again]
    assert len(again) == 1
    assert again[0].marks == {"hakmem": "switches"}
    assert sum(1 for one in rounds if one.slot == again[0].slot) == 2


def _runs_of(task: FakeTask, names: Sequence[str] = NAMES) -> list[tuple[str, Conditions]]:
    run_all(task, RoundPlan(8, tuple(names)))
    return task.runs[: len(names)]


def test_one_disturbed_peer_of_many_spoils_its_own_comparison_only() -> None:
    order = [name for name, _ in _runs_of(FakeTask(), MORE_NAMES)]
    at = order.index("glibc") + 1
    rounds = run_all(FakeTask(switches={at: 10_000}), RoundPlan(8, MORE_NAMES))
    assert len(rounds) == 8
    assert [one.marks for one in rounds if one.marks] == [{"glibc": "switches"}]


def test_a_quarter_of_the_rounds_at_most_is_measured_again() -> None:
    task = FakeTask(switches=dict.fromkeys(range(1, 200), 10000))
    assert len(run_all(task, RoundPlan(8, NAMES))) == 10


@pytest.mark.parametrize("kept", [0, 3, 9])
def test_an_interrupted_run_ends_as_if_it_had_not_been(kept: int) -> None:
    """The same rounds with the same draws."""
    disturbed = {1: 10_000, 2: 10_000, 3: 10_000, 4: 10_000}
    whole = run_all(FakeTask(switches=disturbed), RoundPlan(8, NAMES))
    task = FakeTask(switches={} if kept else disturbed)
    resumed = run_all(task, RoundPlan(8, NAMES), whole[:kept])
    assert [(one.slot, one.attempt, one.conditions, list(one.runs)) for one in resumed] == [
        (one.slot, one.attempt, one.conditions, list(one.runs)) for one in whole
    ]
    assert len(task.runs) == 4 * (len(whole) - kept)


def test_what_is_done_is_not_pending() -> None:
    plan = RoundPlan(4, NAMES)
    done = run_all(FakeTask(), plan)
    assert slots_pending(plan, done) == [[]]
    assert slots_pending(plan, [one for one in done if one.slot != 2]) == [[2]]
    assert slots_pending(SELECTING, []) == [[0], [1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11]]
    assert slots_pending(SELECTING_FAST, []) == [[0], [1], [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]]


# ---- how many rounds ----------------------------------------------------------------------------------


DEMANDS = st.lists(
    st.builds(Demand, st.floats(0.1, 20), st.just(8), st.none() | st.floats(0.01, 0.1), st.floats(0.05, 0.1)),
    min_size=1,
    max_size=12,
)


@given(DEMANDS, st.floats(1, 5000))
def test_the_share_keeps_to_the_budget_and_its_bounds(demands: list[Demand], seconds: float) -> None:
    least = [demand.least for demand in demands]
    rounds = rounds_share(demands, seconds, 1e9, 60)
    assert all(demand.least <= count <= 60 for demand, count in zip(demands, rounds, strict=True))
    assert rounds_cost(demands, rounds) <= max(seconds, rounds_cost(demands, least)) * 1.0001


@given(DEMANDS, st.floats(1, 5000))
def test_the_limit_is_kept_with_fewer_rounds_than_are_of_use(demands: list[Demand], limit: float) -> None:
    rounds = rounds_share(demands, limit / 2, limit, 60)
    assert all(count >= demand.fewest >= 2 for demand, count in zip(demands, rounds, strict=True))
    least = rounds_cost(demands, [demand.fewest for demand in demands])
    assert rounds_cost(demands, rounds) <= max(limit, least) * 1.0001


def test_what_cheap_tasks_leave_goes_to_the_others() -> None:
    assert rounds_share([Demand(0.1, 8), Demand(10, 8)], 400, 400, 60) == [60, 39]


def test_time_goes_to_the_comparison_first_and_then_to_the_others() -> None:
    """Two rounds to select, twice as many to compare as an interval needs; then more to select; then comparisons only."""
    demand = Demand(10, 8, 1, 4)
    assert [demand.selection(rounds) for rounds in (4, 10, 18, 19, 24, 40)] == [2, 2, 2, 3, 8, 8]
    assert demand.total(10) == 10 + 4 + 8
    assert demand.total(19) == 10 + 2 * 4 + 16
    assert demand.fitting(22, 60) == 10
    assert demand.fitting(9, 60) == 0
    assert demand.fitting(1e6, 60) == 60
    assert Demand(10, 8).selection(30) == 0


# ---- calibration --------------------------------------------------------------------------------------


def calibrated(per_count: dict[str, float], **more: object) -> tuple[int, dict[str, float], dict[str, str]]:
    failing = {"bad": ProcessFailedError("x", "crashed: signal 6")}

    def task_of(count: int) -> FakeTask:
        return FakeTask(per_count, count, failing=failing if "bad" not in per_count else {})

    arms = [ARMS[name] for name in ("hakmem", "glibc", "bad")]
    work = work_find(task_of, 10, arms, Conditions(1, 2, (0,)), 0.2, **more)  # type: ignore[arg-type]  # its defaults, by name
    return work.count, dict(work.walls), dict(work.failures)


def test_the_fastest_arm_runs_long_enough() -> None:
    count, walls, failures = calibrated({"hakmem": 1e-6, "glibc": 3e-6})
    assert 0.2 <= count * 1e-6 < 0.3
    assert walls["glibc"] == pytest.approx(count * 3e-6 + 0.001)
    assert failures == {"bad": "crashed: signal 6"}


def test_the_slowest_arm_does_not_run_for_minutes() -> None:
    count, walls, _ = calibrated({"hakmem": 1e-6, "glibc": 1e-3, "bad": 1e-6})
    assert walls["glibc"] == pytest.approx(SLOWEST_RUN_SECONDS, rel=0.01)
    assert count * 1e-6 < 0.2


def test_an_arm_that_is_slow_from_the_first_says_nothing_of_the_others() -> None:
    count, walls, _ = calibrated({"hakmem": 0.02, "glibc": 0.8, "bad": 0.02})
    assert walls["glibc"] == pytest.approx(SLOWEST_RUN_SECONDS, rel=0.2)
    assert walls["hakmem"] == walls["bad"] == pytest.approx(count * 0.02 + 0.001)


def test_what_the_rounds_of_those_that_are_left_will_cost() -> None:
    """A peer is near that takes no more than half as long again as the fastest alone; hakmem itself is no peer."""
    walls = {"hakmem": 1.0, "glibc": 9.0, "mimalloc3": 2.0, "jemalloc": 3.0, "scudo": 3.1}
    work = Work(1, walls, {})
    assert work.near(("hakmem",)) == ("mimalloc3", "jemalloc")
    demand = work.demand(8, ("hakmem",))
    assert demand == Demand(18.1, 8, pytest.approx(1 + 3.05), pytest.approx(1 + 5.0))
    named = work.demand(8, ("hakmem",), ("jemalloc", "scudo"))
    assert named == Demand(18.1, 8, pytest.approx(1 + 6.1 + 3.05), pytest.approx(1 + 6.1 + 2.0))


def test_a_program_that_runs_by_the_clock_gets_what_it_needs() -> None:
    assert calibrated({"hakmem": 1.0, "glibc": 1.0}, count_min=4)[0] == 4


def test_of_what_rests_one_arm_is_enough() -> None:
    """It rests as long under every other."""
    tasks: list[FakeTask] = []

    def task_of(count: int) -> FakeTask:
        tasks.append(FakeTask({"hakmem": 6.0}, count))
        return tasks[-1]

    arms = [ARMS["hakmem"], ARMS["glibc"]]
    work = work_find(task_of, 1, arms, Conditions(1, 2, (0,)), 0.2)
    assert [name for task in tasks for name, _ in task.runs] == ["hakmem"]
    assert work.walls["glibc"] == work.walls["hakmem"] >= 5
