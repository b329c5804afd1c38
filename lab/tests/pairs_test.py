from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.errors import LabError
from hakmem_lab.measure import pairs, task
from hakmem_lab.measure.pairs import Budget, Comparison, Pair, Plan, cell_plan, disturbance, pairs_run
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.task import CellTask
from hakmem_lab.workloads.cells import COUNT_PLACE, SEED_PLACE, Cell
from hypothesis import given
from hypothesis import strategies as st
from lab_pairs import GLIBC, HAKMEM, RUN, pair_make

CELL = Cell("cell", "program", (COUNT_PLACE, SEED_PLACE), first_count=1000)
COMPARISONS = [Comparison("glibc", HAKMEM, GLIBC), Comparison("again", HAKMEM, HAKMEM)]


# The stand-ins below have only what the code under test uses: hence the ignored argument types.
class FakeStage:
    def program(self, name: str) -> Path:
        return Path(name)


class FakeMachine:
    """Runs nothing; remembers what it was asked for."""

    def __init__(self, seconds_per_count: float = 1e-6, switches: Sequence[int] = ()) -> None:
        self.runs: list[tuple[str, list[str], Conditions]] = []
        self._seconds_per_count = seconds_per_count
        self._switches = list(switches)

    def run(self, program: Path, arguments: Sequence[str], arm: Arm, conditions: Conditions) -> Measured:
        assert program == Path("program")
        self.runs.append((arm.name, list(arguments), conditions))
        seconds = int(arguments[0]) * self._seconds_per_count
        switches = self._switches.pop(0) if self._switches else 0
        return replace(RUN, seconds=seconds, wall_seconds=seconds + 0.001, involuntary_switches=switches)


def machine_install(monkeypatch: pytest.MonkeyPatch, machine: FakeMachine) -> None:
    monkeypatch.setattr(task, "workload_run", machine.run)


def run_all(plan: Plan, seed: int = 1) -> list[Pair]:
    return pairs_run(plan, COMPARISONS, random.Random(seed), lambda _: None)


def task_make(cell: Cell = CELL, count: int = 1000) -> CellTask:
    return CellTask(FakeStage(), cell, count)  # type: ignore[arg-type]  # the fake has all that is asked of a stage


def plan_make(count: int, planned: dict[str, int]) -> Plan:
    return Plan(task_make(count=count), planned, 1.0)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 30), max_size=4), st.integers())
def test_schedule_is_balanced(planned: dict[str, int], seed: int) -> None:
    schedule = pairs.schedule_make(planned, random.Random(seed))
    counts = Counter(schedule)
    for name, count in planned.items():
        first, second = counts[name, True], counts[name, False]
        assert first + second == count
        assert abs(first - second) <= 1
    assert len(schedule) == sum(planned.values())


def test_both_runs_of_a_pair_share_their_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine()
    machine_install(monkeypatch, machine)
    done = run_all(plan_make(1000, {"glibc": 10, "again": 10}))
    assert len(done) == 20
    for one, two in zip(machine.runs[::2], machine.runs[1::2], strict=True):
        assert one[1:] == two[1:]
    assert len({conditions.seed for _, _, conditions in machine.runs}) == 20
    assert len({conditions.padding for _, _, conditions in machine.runs}) > 10


def test_the_same_seed_draws_the_same_study(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [FakeMachine(), FakeMachine(), FakeMachine()]
    for machine, seed in zip(machines, (5, 5, 6), strict=True):
        machine_install(monkeypatch, machine)
        run_all(plan_make(1000, {"glibc": 10, "again": 10}), seed)
    assert machines[0].runs == machines[1].runs != machines[2].runs


def test_disturbed_pairs_are_kept_and_measured_again_within_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine_install(monkeypatch, FakeMachine(switches=[10_000] * 1000))
    done = run_all(plan_make(200_000, {"glibc": 10}))
    assert len(done) == 15
    assert all(pair.disturbed == "switches" for pair in done)

    machine_install(monkeypatch, FakeMachine(switches=[0, 0, 0, 10_000]))
    done = run_all(plan_make(200_000, {"glibc": 10}))
    assert [bool(pair.disturbed) for pair in done] == [False, True] + [False] * 9


def test_work_that_differs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    checksums = iter("ab")
    monkeypatch.setattr(task, "workload_run", lambda *_: replace(RUN, checksum=next(checksums)))
    with pytest.raises(LabError, match="did different work"):
        run_all(plan_make(1, {"glibc": 1}))


def test_plan_makes_runs_long_enough_and_fills_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_install(monkeypatch, FakeMachine(seconds_per_count=1e-7))
    plan = cell_plan(FakeStage(), CELL, COMPARISONS, Budget(10.0), random.Random(1))  # type: ignore[arg-type]  # as above
    assert isinstance(plan.task, CellTask)
    seconds = plan.task.count * 1e-7
    assert 0.2 <= seconds < 0.3
    assert plan.pairs["glibc"] == int(10 / (2 * (seconds + 0.001)))


def test_plan_never_has_too_few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_install(monkeypatch, FakeMachine(seconds_per_count=1.0))
    plan = cell_plan(FakeStage(), CELL, COMPARISONS, Budget(0.1), random.Random(1))  # type: ignore[arg-type]  # as above
    assert plan.pairs == {"glibc": 8, "again": 8}


@pytest.mark.parametrize(
    ("change", "mark"),
    [
        ({}, ""),
        ({"major_faults": 1}, "major fault"),
        ({"steal_ticks": 50}, "steal"),
        ({"involuntary_switches": 100}, "switches"),
        ({"seconds": 100.0, "wall_seconds": 100.0, "involuntary_switches": 100}, ""),
    ],
)
def test_disturbance(change: dict[str, int], mark: str) -> None:
    assert disturbance(task_make(), replace(RUN, **change), (0,)) == mark  # type: ignore[arg-type]  # any field


def test_disturbance_leaves_switches_to_programs_that_switch() -> None:
    run = replace(RUN, involuntary_switches=10_000)
    assert disturbance(task_make(replace(CELL, switches_are_noise=False)), run, (0,)) == ""
    assert disturbance(task_make(replace(CELL, threads=2)), run, (0,)) == ""


def test_undisturbed_pairs_are_analysed_when_there_are_enough() -> None:
    quiet = [pair_make("glibc", 1.0, number) for number in range(8)]
    loud = [pair_make("glibc", 5.0, 9, "steal")]
    assert pairs.pairs_to_analyse(quiet + loud, 0.99) == quiet
    assert pairs.pairs_to_analyse(quiet[:7] + loud, 0.99) == quiet[:7] + loud
