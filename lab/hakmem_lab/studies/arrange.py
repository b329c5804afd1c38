"""From what a user names to what can be run: arms from staged copies, a task that runs long enough, controls."""

from __future__ import annotations

import math
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hakmem_lab.allocators.arms import arm_stage
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.errors import LabError
from hakmem_lab.measure import launch
from hakmem_lab.measure.command import CommandTask
from hakmem_lab.measure.launch import Start
from hakmem_lab.measure.pairs import (
    CALIBRATION_RESERVE,
    Calibrated,
    Comparison,
    cell_calibrate,
    conditions_draw,
    cpus_allowed,
)
from hakmem_lab.measure.runner import Arm, Measured
from hakmem_lab.measure.stage import Stage
from hakmem_lab.studies.ab import SAME, SLOWED, Design
from hakmem_lab.studies.compare import ObservedTask
from hakmem_lab.workloads.cells import CELLS, Cell
from hakmem_lab.workloads.find import workload_find
from hakmem_lab.workloads.programs.task import program_prepare

Calibrate = Callable[[Stage, Sequence[Arm], Design, random.Random], Calibrated]


@dataclass(frozen=True)
class Arranged:
    base: Arm
    others: tuple[Arm, ...]
    calibrated: Calibrated
    questions: tuple[Comparison, ...]
    controls: dict[str, Comparison]


def calibrator(bench: str, command: Sequence[str], turns: bool = False) -> Calibrate:
    """For the user's COMMAND, if there is one, whose runs may take TURNS; or for the workload that BENCH names: a cell,
    a program, a program file. Fails immediately if there is no such workload."""
    if command:
        return _command_calibrator(command, turns)
    found = workload_find(bench, CELLS)
    if isinstance(found, Cell):
        return cell_calibrator(found)

    def calibrate(stage: Stage, arms: Sequence[Arm], _design: Design, rng: random.Random) -> Calibrated:
        task = program_prepare(stage.checkout, stage, found, rng.getrandbits(32))
        runs = _observed(task, arms, rng)
        return Calibrated(task, {arm: run.wall_seconds for arm, run in runs.items()})

    return calibrate


def cell_calibrator(cell: Cell) -> Calibrate:
    def calibrate(stage: Stage, arms: Sequence[Arm], design: Design, rng: random.Random) -> Calibrated:
        return cell_calibrate(stage, cell, arms, design.run_seconds_min, rng)

    return calibrate


def _command_calibrator(command: Sequence[str], turns: bool) -> Calibrate:
    """A command that is too short for a run is run several times in a row, starts included."""
    if shutil.which(command[0]) is None:
        raise LabError(f"{command[0]}: there is no such command")

    def calibrate(stage: Stage, arms: Sequence[Arm], design: Design, rng: random.Random) -> Calibrated:
        tool = stage.program(launch.TOOL)
        start = Start(tool, tuple(command), stage.folder, users=dict(os.environ))
        task = CommandTask(start, threads=len(cpus_allowed()), takes_turns=turns)
        _observed(task, arms, rng)
        conditions = conditions_draw(task, rng)
        runs = {arm: task.run(arm, conditions) for arm in arms}
        fastest = min(run.seconds for run in runs.values())
        count = max(1, math.ceil(CALIBRATION_RESERVE * design.run_seconds_min / fastest))
        if fastest >= design.run_seconds_min:
            count = 1
        repeated = task.repeated(count) if count > 1 else task
        return Calibrated(repeated, {arm: count * run.wall_seconds for arm, run in runs.items()})

    return calibrate


def _observed(task: ObservedTask, arms: Sequence[Arm], rng: random.Random) -> dict[Arm, Measured]:
    """A watched run of each arm: proof that it serves the program, before anything is measured."""
    runs = {}
    for arm in arms:
        runs[arm], service = task.observe(arm, conditions_draw(task, rng))
        if service.complaint:
            raise LabError(f"{arm.name} does not serve {task.name}: {service.complaint}")
    return runs


def arrange(
    stage: Stage,
    base: Peer,
    others: Sequence[Peer],
    calibrate: Calibrate,
    design: Design,
    rng: random.Random,
) -> Arranged:
    """Every library is copied, also if two arms name the same one: an A/A run has two files, as its control has."""
    staged = Arm(arm_stage(stage, base, "a"))
    taken = {base.name}
    arms = []
    for index, other in enumerate(others):
        name = other.name if other.name not in taken else f"{other.name} (B)"
        taken.add(name)
        arms.append(Arm(arm_stage(stage, other, f"b{index}", name)))
    again = arm_stage(stage, base, "a-again", f"{base.name} again")
    same, slowed = Arm(again), Arm(again, design.slowdown_percent)
    calibrated = calibrate(stage, [staged, *arms], design, rng)
    # The controls are the base: they need no runs of their own to know how long theirs take.
    walls = calibrated.wall_seconds
    walls |= {same: walls[staged], slowed: walls[staged] * (1 + design.slowdown_percent / 100)}
    return Arranged(
        base=staged,
        others=tuple(arms),
        calibrated=calibrated,
        questions=tuple(Comparison(arm.name, arm, staged) for arm in arms),
        controls={SAME: Comparison(SAME, same, staged), SLOWED: Comparison(SLOWED, slowed, staged)},
    )
