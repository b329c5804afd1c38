"""`hakmem compare`."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.allocators.arms import arms_parse, peer_stage
from hakmem_lab.allocators.peers import Peer, glibc_version
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.asking import INCONCLUSIVE, TurnsOption
from hakmem_lab.commands.common import (
    BuildOption,
    JsonOption,
    SeedOption,
    grids_show,
    samples_text,
    words_split,
)
from hakmem_lab.commands.units import seconds_parse, share_parse
from hakmem_lab.errors import LabError
from hakmem_lab.measure import launch, provenance
from hakmem_lab.measure.command import CommandTask, command_task
from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.samples import RowWriter
from hakmem_lab.measure.service import LIBC, Service, libc_preloaded
from hakmem_lab.reports.compare import (
    medians_grid,
    note_lines,
    plan_line,
    result_content,
    result_write,
    sentence,
    short_line,
    verdict_grid,
)
from hakmem_lab.studies.compare import Arms, Comparing, Course, ObservedTask, Plan, Sample, observe_first
from hakmem_lab.studies.compare_samples import COLUMNS, sample_row
from hakmem_lab.studies.compare_verdicts import TIME, Outcome, medians_of, outcome_make
from hakmem_lab.studies.study import Study, study_open
from hakmem_lab.workloads.find import program_find
from hakmem_lab.workloads.programs.task import program_prepare

ALPHA = 0.01
LATE_SHARE = 1.1
"""Multiple of the budget: what was planned may take this long."""
OWN = "as it is"
SUBJECT = "hakmem"

CommandArgument = Annotated[list[str] | None, typer.Argument(metavar="[--] CMD...", help="Your program.")]


def compare(
    command: CommandArgument = None,
    program: Annotated[
        str, typer.Option(help="Instead of CMD: a program of the checkout, such as redis, or a FILE.toml.")
    ] = "",
    allocators: Annotated[
        str,
        typer.Option(
            help="Comma-separated allocator names or library paths. Default: every allocator available."
        ),
    ] = "",
    budget: Annotated[str, typer.Option(help="Total time, fixed in advance, such as 60s or 5m.")] = "60s",
    margin: Annotated[
        str, typer.Option(help="Times this close are equivalent. The margin of memory is 5%.")
    ] = "3%",
    repeat: Annotated[
        int, typer.Option(min=1, help="Run CMD this many times in a row and count it as one run.")
    ] = 1,
    stdin: Annotated[Path | None, typer.Option(help="The standard input of CMD. Default: empty.")] = None,
    allow_status: Annotated[
        int, typer.Option(min=0, max=255, help="The exit status of CMD that means success.")
    ] = 0,
    turns: TurnsOption = False,
    seed: SeedOption = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """Which allocator is best for your program? Compares each with the one it has now, in interleaved rounds.

    CMD runs in this folder with your environment, again and again; its output is discarded. The last line says what to
    use, what it gains and how sure that is. Exit status: 0 for an answer, 2 for an error, 3 if inconclusive, 130 if
    interrupted.
    """
    if bool(command) == bool(program):
        raise LabError("give either a command, as in: hakmem compare -- python3 script.py, or --program NAME")
    if program:
        _command_only(
            {
                "--repeat": repeat > 1,
                "--stdin": stdin is not None,
                "--allow-status": allow_status > 0,
                "--turns": turns,
            }
        )
    seconds, share = seconds_parse(budget), share_parse(margin)
    seed = secrets.randbits(32) if seed is None else seed
    words = ["./hakmem", "compare", "--budget", budget, "--margin", margin, "--seed", str(seed)]
    words += ["--allocators", allocators] if allocators else []
    words += ["--repeat", str(repeat)] if repeat > 1 else []
    words += ["--stdin", str(stdin)] if stdin is not None else []
    words += ["--allow-status", str(allow_status)] if allow_status else []
    words += ["--turns"] if turns else []
    words += ["--program", program] if program else ["--", *(command or [])]
    checkout = Checkout.find(build)
    with (
        study_open(checkout, "compare", seed) as study,
        closing(RowWriter(study.samples.path, COLUMNS)) as writer,
    ):
        task: ObservedTask  # before the peers, which may take minutes to obtain
        if program:
            task = program_prepare(checkout, study.stage, program_find(program), seed)
        else:
            task = command_task(study.stage, command or [], repeat, stdin, allow_status, turns)
        peers, missing = _peers(study, words_split(allocators))
        shown = study.progress.add_task(task.name, total=seconds)
        begun = time.monotonic()

        def keep(sample: Sample) -> None:
            writer.write(sample_row(task, sample))
            study.progress.update(shown, completed=min(seconds, time.monotonic() - begun))

        own = Arm(Peer(OWN, glibc_version(), None, "the C library"))
        first = observe_first(task, own, study.rng)
        baseline = replace(own, peer=replace(own.peer, name=_baseline_name(first.service)))
        if baseline.peer.name != LIBC and not any(peer.name == LIBC for peer in peers) and not allocators:
            peers.append(study.store.obtain(LIBC))
        candidates = [libc_preloaded(Arm(peer)) for peer in peers if peer.name != baseline.peer.name]
        arms = Arms.of(baseline, candidates, 200 * share)
        source = provenance.collect(
            checkout, shlex.join(words), launch.TOOL, [arm.peer for arm in (baseline, *candidates)]
        )
        comparing = Comparing(task.limited(first.hangs_seconds), first, arms, ALPHA, study.rng, keep)
        course = Course()
        comparing.observe(course)
        plan = comparing.plan(course, seconds - (time.monotonic() - begun))
        comparing.screen(course, plan)

        def judge() -> Outcome:
            return outcome_make(course, arms, task, share, ALPHA)

        comparing.judge_rounds(
            course,
            plan,
            decided=lambda: judge().is_decided and not judge().blind,
            is_late=lambda: time.monotonic() - begun > LATE_SHARE * seconds,
        )
        outcome = judge()
    _show(study, source, task, course, plan, outcome, missing, json_file)
    if not outcome.decision.is_conclusive:
        raise typer.Exit(INCONCLUSIVE)


def _command_only(given: Mapping[str, bool]) -> None:
    """An error if one of these is, since the program's file says all of that."""
    names = [name for name, is_given in given.items() if is_given]
    if names:
        raise LabError(
            f"{' and '.join(names)}: for a command, not for --program, whose file says how it runs"
        )


def _peers(study: Study, names: Sequence[str]) -> tuple[list[Peer], list[str]]:
    """Staged peers; also those of the default set that are not available. A named peer that is not available is an
    error."""
    missing: list[str] = []
    if names:
        peers = arms_parse(names, study.store)
    else:
        own = study.store.obtain(SUBJECT)
        found, without = study.store.obtain_default()
        peers = [own, *(peer for peer in found if peer.name != LIBC)]
        missing = [f"not measured: {one.name}: {one.why.removeprefix(f'{one.name}: ')}" for one in without]
    return [peer_stage(study.stage, peer, f"arm-{number}") for number, peer in enumerate(peers)], missing


def _baseline_name(service: Service) -> str:
    if service.is_libc:
        return LIBC
    return f"{OWN} ({service.owner})" if service.owner else OWN


def _show(
    study: Study,
    source: provenance.Provenance,
    task: ObservedTask,
    course: Course,
    plan: Plan,
    outcome: Outcome,
    missing: Sequence[str],
    json_file: Path | None,
) -> None:
    each = medians_of(course, outcome.baseline).get(TIME.name)  # none where no round was undisturbed
    lines = [plan_line(plan, course, outcome), *note_lines(outcome), *missing]
    if isinstance(task, CommandTask) and each is not None:
        lines += filter(None, [short_line(each, task.start.repeat)])
    last = sentence(outcome, plan)
    content = result_content(source, course, plan, outcome, last)
    samples = study.checkout.shown(study.samples.path)
    try:
        result_write(study.samples.path.with_name("outcome.json"), content, samples)
        if json_file is not None:
            result_write(json_file, content, samples)
    finally:  # also when the disk is full: the answer is there
        grids_show(
            [verdict_grid(outcome), medians_grid(course, outcome)], [*lines, samples_text(study.samples.path)]
        )
        typer.echo(last)
