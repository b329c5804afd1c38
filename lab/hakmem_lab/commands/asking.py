"""What `ab` and `sweep` share: one run, from the names that a user gave to kept samples and an outcome."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.allocators.arms import arm_parse
from hakmem_lab.commands.common import grids_show, samples_text
from hakmem_lab.commands.units import seconds_parse, share_parse
from hakmem_lab.errors import LabError
from hakmem_lab.files import json_write
from hakmem_lab.grid import Grid
from hakmem_lab.measure import launch, provenance
from hakmem_lab.measure.command import CommandTask
from hakmem_lab.measure.pairs import Pair, cpus_allowed
from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.task import CellTask, Task
from hakmem_lab.reports.ab import outcome_content, outcome_grid, vector, vector_grid
from hakmem_lab.studies.ab import Design, Outcome, questions_ask
from hakmem_lab.studies.arrange import Arranged, Calibrate, arrange, calibrator
from hakmem_lab.studies.opinion import SECONDS as OPINION_SECONDS
from hakmem_lab.studies.opinion import Opinion, opinion_ask, opinion_obstacle
from hakmem_lab.studies.study import Study

INCONCLUSIVE = 3

DEFAULT_BENCH = "random mix, 256 slots"

BenchOption = Annotated[str, typer.Option("--bench", help="The name of a workload, or a part of it.")]
TimeBudgetOption = Annotated[
    str, typer.Option("--budget", help="Total time, fixed in advance, such as 60s or 2m.")
]
ShareOption = Annotated[
    str, typer.Option("--margin", help="Speeds this close are equivalent, such as 3% or 0.03.")
]
CommandArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[-- CMD...]", help="Your own program, instead of --bench.")
]
TurnsOption = Annotated[
    bool,
    typer.Option(
        "--turns",
        help="CMD's runs take turns of 10 to 50 ms, for a machine whose speed changes: CMD waits by no clock, and may run several"
        " times at the same time.",
    ),
]


@dataclass(frozen=True)
class Asked:
    arranged: Arranged
    outcome: Outcome
    pairs: tuple[Pair, ...]
    opinions: tuple[Opinion, ...]
    interrupted: bool
    """While instructions were counted: those are left out."""
    source: provenance.Provenance

    def pairs_of(self, name: str) -> list[Pair]:
        return [pair for pair in self.pairs if pair.comparison.name == name]

    def grids(self) -> list[Grid]:
        """The judged figure, and the other figures of each arm."""
        base = self.arranged.base.name
        grids = [outcome_grid(self.outcome, base)]
        confidence = 1 - self.outcome.design.alpha
        for arm in self.arranged.others:
            grids.append(vector_grid(vector(self.pairs_of(arm.name), confidence), base, arm.name))
        return grids


def design_make(budget: str, margin: str) -> Design:
    return Design(seconds_parse(budget), share_parse(margin))


def calibrate_choose(bench: str, command: Sequence[str] | None, turns: bool = False) -> Calibrate:
    if bench and command:
        raise LabError("give either --bench or a command, not both")
    if turns and not command:
        raise LabError("--turns: for a command; workloads take turns without it")
    return calibrator(bench or DEFAULT_BENCH, command or [], turns)


def ask(
    study: Study,
    names: Sequence[str],
    calibrate: Calibrate,
    design: Design,
    command: str,
    instructions: bool,
) -> Asked:
    """The first of NAMES is the base; every other is compared with it."""
    started = time.monotonic()
    base, *others = [arm_parse(name, study.store) for name in names]
    arranged = arrange(study.stage, base, others, calibrate, design, study.rng)
    arms = [arranged.base, *arranged.others]
    task = arranged.calibrated.task
    program = task.cell.program if isinstance(task, CellTask) else launch.TOOL
    source = provenance.collect(study.checkout, command, program, [arm.peer for arm in arms])
    pairs: list[Pair] = []
    shown = study.progress.add_task(task.name, total=design.budget_seconds)

    def keep(pair: Pair) -> None:
        pairs.append(pair)
        study.samples.keep(task.name, pair)
        study.progress.update(shown, completed=time.monotonic() - started)

    outcome = questions_ask(
        arranged.calibrated,
        arranged.questions,
        arranged.controls,
        design,
        study.rng,
        keep,
        seconds_used=time.monotonic() - started,
    )
    study.progress.remove_task(shown)
    left = design.budget_seconds - (time.monotonic() - started)
    wanted = instructions or left > OPINION_SECONDS * len(others)
    opinions, interrupted = opinions_ask(study, arranged, instructions) if wanted else ((), False)
    return Asked(arranged, outcome, tuple(pairs), opinions, interrupted, source)


def opinions_ask(study: Study, arranged: Arranged, requested: bool) -> tuple[tuple[Opinion, ...], bool]:
    """Runs after the clock, which decides: its answer stands even if counting fails, or is interrupted; that is the
    second value. If it was REQUESTED and cannot be, a line says why."""
    task = arranged.calibrated.task
    obstacle = counting_obstacle(task, [arranged.base, *arranged.others])
    if obstacle:
        if requested:
            uncounted_tell(task, obstacle)
        return (), False
    assert isinstance(task, CellTask)
    shown = study.progress.add_task("counting instructions; Ctrl-C leaves them out", total=None)
    interrupted = False
    try:
        return tuple(opinion_ask(task, arranged.base, arm) for arm in arranged.others), False
    except LabError as error:  # as of a program that replaces itself: valgrind cannot follow it
        uncounted_tell(task, str(error))
    except KeyboardInterrupt:
        interrupted = True
        uncounted_tell(task, "interrupted")
    finally:
        study.progress.remove_task(shown)
    return (), interrupted


def counting_obstacle(task: Task, arms: Sequence[Arm]) -> str:
    """Why instructions cannot be counted; empty if they can."""
    if not isinstance(task, CellTask):
        return "only those of a workload of bench/ are"
    if any(arm.peer.programs is not None for arm in arms):
        return "what is the allocator, and what its program, cannot be told where one file has both"
    return opinion_obstacle(task)


def uncounted_tell(task: Task, why: str) -> None:
    print(f"hakmem: {task.name}: its instructions are not counted: {why}", file=sys.stderr)


def circumstance_lines(asked: Asked) -> list[str]:
    """Measurements made under conditions other than intended."""
    task, processors = asked.arranged.calibrated.task, len(cpus_allowed())
    lines = []
    if task.threads > processors:
        some = "1 processor" if processors == 1 else f"{processors} processors"
        lines.append(f"{task.name}: its {task.threads} threads had to share {some}")
    if isinstance(task, CommandTask) and task.start.repeat > 1:
        lines.append(
            f"{task.name} is short: each run is {task.start.repeat} in a row, their starts and ends included"
        )
    if not isinstance(task, CellTask):
        lines.append(
            f"{task.name} cannot slow itself: in the slowed control its run waits on after its end, and that counts"
        )
    return lines


def outcome_keep(study: Study, asked: Asked, further: dict[str, object], json_file: Path | None) -> str:
    """Written beside the samples, also if nothing was found, and where the user wants it. Returns where."""
    content = {
        "task": asked.arranged.calibrated.task.name,
        "base": asked.arranged.base.name,
        **outcome_content(asked.outcome),
        **further,
        "opinions": [asdict(opinion) for opinion in asked.opinions],
        "provenance": asdict(asked.source),
        "samples": study.checkout.shown(study.samples.path),
    }
    json_write(study.samples.path.with_name("outcome.json"), content)
    if json_file is not None:
        json_write(json_file, content)
    return samples_text(study.samples.path)


def answer_show(asked: Asked, lines: Sequence[str], last: str) -> None:
    """The last line is for programs, too: never wrapped."""
    grids_show(asked.grids(), lines)
    typer.echo(last)
