"""From what a user names to what can be run: arms from staged copies, a task that runs long enough, controls."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hakmem_lab.allocators.arms import arm_stage
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.errors import LabError
from hakmem_lab.measure.pairs import Calibrated, Comparison, cell_calibrate
from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.stage import Stage
from hakmem_lab.studies.ab import SAME, SLOWED, Design
from hakmem_lab.workloads.cells import FIRST_FIGURES, SERVER_PEAKS, Cell

BENCHES = (*FIRST_FIGURES, SERVER_PEAKS)

Calibrate = Callable[[Stage, Sequence[Arm], Design, random.Random], Calibrated]


@dataclass(frozen=True)
class Arranged:
    base: Arm
    others: tuple[Arm, ...]
    calibrated: Calibrated
    questions: tuple[Comparison, ...]
    controls: dict[str, Comparison]


def bench_find(text: str) -> Cell:
    """By its name, a part of its name, or its program."""
    word = text.lower()
    exact = [cell for cell in BENCHES if word == cell.name.lower()]
    chosen = exact or [cell for cell in BENCHES if word in cell.name.lower() or word == cell.program]
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        raise LabError(f"several are named like '{text}': {'; '.join(cell.name for cell in chosen)}")
    names = {name.lower(): cell.name for cell in BENCHES for name in (cell.name, cell.program)}
    near = difflib.get_close_matches(word, names, n=1)
    hint = f", did you mean '{names[near[0]]}'?" if near else f"; there are: {'; '.join(names.values())}"
    raise LabError(f"no workload is named like '{text}'{hint}")


def cell_calibrator(cell: Cell) -> Calibrate:
    def calibrate(stage: Stage, arms: Sequence[Arm], design: Design, rng: random.Random) -> Calibrated:
        return cell_calibrate(stage, cell, arms, design.run_seconds_min, rng)

    return calibrate


def arrange(
    stage: Stage,
    base: Peer,
    others: Sequence[Peer],
    calibrate: Calibrate,
    design: Design,
    rng: random.Random,
) -> Arranged:
    """Every library is copied, also where two arms name the same one: an A/A run has two files, as its control has."""
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
