"""`hakmem where`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.allocators import builds
from hakmem_lab.allocators.arms import arm_shown, arm_stage
from hakmem_lab.allocators.peers import Peer, PeerStore
from hakmem_lab.checkout import Checkout, path_here
from hakmem_lab.commands.ab import ab
from hakmem_lab.commands.asking import DEFAULT_BENCH, BenchOption, CommandArgument
from hakmem_lab.commands.common import BuildOption, JsonOption, grids_show, output_check
from hakmem_lab.commands.units import seconds_parse
from hakmem_lab.errors import LabError, RunInterruptedError
from hakmem_lab.files import text_write
from hakmem_lab.grid import Grid
from hakmem_lab.measure import provenance
from hakmem_lab.measure.observe import can_observe
from hakmem_lab.measure.provenance import commit_read
from hakmem_lab.measure.stage import Stage, staged
from hakmem_lab.reports.report import report_write
from hakmem_lab.reports.where import (
    change_command,
    confirm_command,
    diff_grid,
    diff_lines,
    grids_of,
    kernel_diff_grid,
    prediction_text,
    where_lines,
)
from hakmem_lab.studies.where import (
    CellWork,
    Diff,
    Where,
    Work,
    command_work,
    profiled_peer,
    same_task_check,
    where_diff,
    where_measure,
    where_read,
)
from hakmem_lab.workloads.cells import CELLS, Cell
from hakmem_lab.workloads.find import workload_find

KIND = "where"
RESULT = "where.json"
DEFAULT_ARM = "hakmem"
TITLE = "Where the work goes:"


def where(
    command: CommandArgument = None,
    bench: BenchOption = "",
    arm: Annotated[
        str, typer.Option(help="The arm to examine, named as for `ab`. For hakmem it is the profiling build.")
    ] = DEFAULT_ARM,
    diff: Annotated[
        str,
        typer.Option(
            metavar="OLD",
            help="Compare with a result kept by --json (FILE.json), or with another arm.",
        ),
    ] = "",
    confirm: Annotated[
        bool, typer.Option("--confirm", help="With --diff: run the ab that confirms the difference.")
    ] = False,
    budget: Annotated[str, typer.Option(help="Time for the ab, such as 60s or 2m.")] = "60s",
    only_instructions: Annotated[
        bool, typer.Option("--only-instructions", help="Do not run perf and strace.")
    ] = False,
    json_file: JsonOption = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a Markdown report to this file.", callback=output_check)
    ] = None,
    build: BuildOption = None,
) -> None:
    """Where does the work go? Functions, hot instructions with their lines, page faults and system calls by caller.

    A share is a hypothesis: the last line is the ab that would confirm it.
    """
    if confirm and not diff:
        raise LabError("--confirm compares two: say with --diff OLD what it was before")
    seconds_parse(budget)
    checkout = Checkout.find(build)
    try:
        with staged(checkout) as stage:
            work = work_choose(stage, bench, command)
            looked = Looker(checkout, stage, PeerStore(checkout), work, not only_instructions)
            kept_before = where_read(Path(diff)) if diff.endswith(".json") else None
            if kept_before is not None:
                same_task_check(kept_before.task, work.name)
                if confirm and not old_arm(kept_before, diff):
                    raise LabError(
                        "the old result is of no commit, or of uncommitted changes: give --diff the library that it was"
                        " measured with"
                    )
            found = looked.at(arm, "new")
            before = kept_before or (looked.at(diff, "old") if diff else None)
            source = provenance.collect(checkout, command_text(arm, diff, bench, command), None, looked.peers)
    except KeyboardInterrupt:
        raise RunInterruptedError("interrupted: nothing was kept") from None
    compared = where_diff(before, found) if before else None
    rest = ["--", *command] if command else ["--bench", found.task]
    if compared is None:
        old, last, grids, lines = "", change_command(rest), grids_of(found), where_lines(found)
    else:
        old = old_arm(compared.before, diff)
        last = confirm_command(compared, old or "OLD", arm, rest)
        grids = [diff_grid(compared), kernel_diff_grid(compared), *grids_of(found)[1:]]
        lines = diff_lines(compared)
    shown = list(lines)
    try:
        shown.append(f"result: {path_here(result_keep(checkout, found, compared, json_file))}")
        if report is not None:
            report_write(report, f"{TITLE} {found.task}", source, [*lines, confirm_note(last)], grids)
    finally:  # also when the disk is full: what was found is there
        show(grids, shown, last)
    if compared is not None and confirm:
        bench = "" if command else found.task
        predict = prediction_text(compared)
        ab(old, arm, command, bench=bench, budget=budget, predict=predict, build=build)


def command_text(arm: str, diff: str, bench: str, command: Sequence[str] | None) -> str:
    """The command in a form that can be given again; paths are reduced to names."""
    words = ["./hakmem", "where"]
    words += ["--arm", arm_shown(arm)] if arm != DEFAULT_ARM else []
    words += ["--diff", arm_shown(diff)] if diff else []
    words += ["--", Path(command[0]).name, *command[1:]] if command else ["--bench", bench or DEFAULT_BENCH]
    return shlex.join(words)


def confirm_note(command: str) -> str:
    return f"What would confirm a change: `{command}`"


def work_choose(stage: Stage, bench: str, command: Sequence[str] | None) -> Work:
    if bench and command:
        raise LabError("give either --bench or a command, not both")
    if command:
        return command_work(stage, command)
    found = workload_find(bench or DEFAULT_BENCH, CELLS)
    if not isinstance(found, Cell):
        raise LabError(f"{found.name} is a program file: give its command after -- instead")
    if not can_observe(found):
        raise LabError(
            f"{found.name} starts other processes, which are not looked at: give a command after -- instead"
        )
    return CellWork(stage, found)


class Looker:
    """Examines one arm after the other."""

    def __init__(self, checkout: Checkout, stage: Stage, store: PeerStore, work: Work, kernel: bool) -> None:
        self.checkout = checkout
        self._stage = stage
        self._store = store
        self._work = work
        self._kernel = kernel
        self.peers: list[Peer] = []

    def at(self, text: str, folder: str) -> Where:
        peer = arm_stage(self._stage, profiled_peer(text, self._store), folder, text)
        self.peers.append(peer)
        commit = commit_of(self.checkout, text)
        return where_measure(self._work, peer, arm_shown(text), commit, self.checkout, self._kernel)


def commit_of(checkout: Checkout, text: str) -> str:
    """The commit that the arm was built from, if that is known."""
    what = text.partition(":")[0]
    if what == "hakmem":
        return commit_read(checkout.root)
    if what.startswith(builds.MARK) and what.removeprefix(builds.MARK) not in builds.presets(checkout):
        return builds.commit_find(checkout, what.removeprefix(builds.MARK))[:12]
    return ""


def old_arm(before: Where, old: str) -> str:
    """Named as for `ab`: the commit of a kept result, built anew. Empty if the result is of no commit, or of uncommitted
    changes."""
    if not old.endswith(".json"):
        return old
    if before.arm.startswith("hakmem") and before.commit and " " not in before.commit:
        return f"{builds.MARK}{before.commit}"
    return "" if before.arm.startswith("hakmem") or before.arm.endswith(".so") else before.arm


def result_keep(checkout: Checkout, found: Where, compared: Diff | None, json_file: Path | None) -> Path:
    path = checkout.results_new(KIND) / RESULT
    text_write(path, found.text())
    if compared is not None:
        text_write(path.with_name("before.json"), compared.before.text())
    if json_file is not None:
        text_write(json_file, found.text())
    return path


def show(grids: Sequence[Grid], lines: Sequence[str], last: str) -> None:
    """The last line is a command: never wrapped."""
    grids_show(grids, lines)
    typer.echo(f"confirm: {last}")
