from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.errors import LabError
from hakmem_lab.measure import pairs, task
from hakmem_lab.measure.pairs import Comparison, Pair, cell_calibrate, disturbance, round_run
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.task import CellTask
from hakmem_lab.measure.turns import Seat
from hakmem_lab.workloads.cells import COUNT_PLACE, SEED_PLACE, Cell
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

    def run(
        self,
        program: Path,
        arguments: Sequence[str],
        arm: Arm,
        conditions: Conditions,
        _seat: Seat | None = None,
    ) -> Measured:
        assert program == Path("program")
        self.runs.append((arm.name, list(arguments), conditions))
        seconds = int(arguments[0]) * self._seconds_per_count
        switches = self._switches.pop(0) if self._switches else 0
        return replace(RUN, seconds=seconds, wall_seconds=seconds + 0.001, involuntary_switches=switches)


def machine_install(monkeypatch: pytest.MonkeyPatch, machine: FakeMachine) -> None:
    monkeypatch.setattr(task, "workload_run", machine.run)
    monkeypatch.setattr(CellTask, "takes_turns", False)


def run_all(task: CellTask, count: int, seed: int = 1) -> list[Pair]:
    rng = random.Random(seed)
    return [pair for number in range(count) for pair in round_run(task, COMPARISONS, number, rng)]


def task_make(cell: Cell = CELL, count: int = 1000) -> CellTask:
    return CellTask(FakeStage(), cell, count)  # type: ignore[arg-type]  # the fake has all that is asked of a stage


def test_all_runs_of_a_round_share_their_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine()
    machine_install(monkeypatch, machine)
    done = run_all(task_make(), 20)
    assert [pair.number for pair in done[::2]] == list(range(20))
    for one, two in zip(machine.runs[::2], machine.runs[1::2], strict=True):
        assert one[1:] == two[1:]
        assert {one[0], two[0]} == {"hakmem", "glibc"}
    assert len({conditions.seed for _, _, conditions in machine.runs}) == 20
    assert len({conditions.padding for _, _, conditions in machine.runs}) > 10
    assert {pair.subject_first for pair in done} == {True, False}


def test_the_same_seed_draws_the_same_study(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [FakeMachine(), FakeMachine(), FakeMachine()]
    for machine, seed in zip(machines, (5, 5, 6), strict=True):
        machine_install(monkeypatch, machine)
        run_all(task_make(), 10, seed)
    assert machines[0].runs == machines[1].runs != machines[2].runs


def test_a_pair_is_disturbed_when_one_of_its_runs_was(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_install(monkeypatch, FakeMachine(switches=[0, 10_000]))
    done = run_all(task_make(count=200_000), 2)
    assert [pair.disturbed for pair in done if pair.comparison.name == "glibc"] == ["switches", ""]


def test_work_that_differs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    checksums = iter("ab")
    monkeypatch.setattr(task, "workload_run", lambda *_: replace(RUN, checksum=next(checksums)))
    with pytest.raises(LabError, match="did different work"):
        run_all(task_make(), 1)


def test_the_fastest_arm_runs_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_install(monkeypatch, FakeMachine(seconds_per_count=1e-7))
    found = cell_calibrate(FakeStage(), CELL, [HAKMEM, GLIBC], 0.2, random.Random(1))  # type: ignore[arg-type]  # as above
    assert isinstance(found.task, CellTask)
    seconds = found.task.count * 1e-7
    assert 0.2 <= seconds < 0.3
    assert found.pair_seconds(COMPARISONS[0]) == pytest.approx(2 * (seconds + 0.001))


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
