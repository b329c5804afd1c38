"""What the commands share: their options, and how results are shown.

Commands that look at processes must start immediately, so this imports nothing of studies/, and no library that
takes long to import.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import CallbackParam

from hakmem_lab.checkout import path_here
from hakmem_lab.errors import LabError, shown
from hakmem_lab.files import target_check
from hakmem_lab.grid import Grid, grids_print
from hakmem_lab.measure.tree import children_of, kernel_check
from hakmem_lab.sight.process import Process, process_open

TABLE_WIDTH = 150
"""Width if the output is not a terminal."""

LAUNCHER = "hakmem-launch"
"""The process that `hakmem run` becomes: it waits for its program, and the shell reports its PID."""

PROOF = "HAKMEM_PROOF"
"""The variable that the launcher sets for its program."""

PID_DIGITS_MAX = 10
"""More than the number of any process has."""

BESIDE = (".html", ".csv", ".parquet")
"""Files that may be written beside a report, under its name."""

OUTPUTS = "hakmem_lab.outputs"
"""Of a command's context: the files that it will write, and the option that names each."""

BESIDE_FROM = ("kept", "report", "json_file")
"""Parameters that a run which is judged again may have."""


def output_check(ctx: typer.Context, param: CallbackParam, path: Path | None) -> Path | None:
    """Like target_check; also, no other output of the command goes to that file."""
    target_check(path)
    _outputs_claim(ctx, param.opts[0], [path] if path is not None else [])
    return path


def report_check(ctx: typer.Context, param: CallbackParam, path: Path | None) -> Path | None:
    """Like output_check; also, the path must not be the name of a file that is written beside the report."""
    if path is None:
        return None
    if path.suffix in BESIDE:
        raise LabError(
            f"--report {path}: a report is Markdown, as {path.with_suffix('.md').name}; {', '.join(BESIDE)} of that name are"
            " for what is written beside it"
        )
    target_check(path)
    _outputs_claim(ctx, param.opts[0], [path, *(path.with_suffix(suffix) for suffix in BESIDE)])
    return path


def _outputs_claim(ctx: typer.Context, option: str, paths: Sequence[Path]) -> None:
    """For OPTION; an error if another one has claimed one of these files. A device or a pipe takes what comes from both."""
    claimed: dict[Path, str] = ctx.meta.setdefault(OUTPUTS, {})
    for path in paths:
        if not path.exists() or path.is_file():
            other = claimed.setdefault(path.resolve(), option)
            if other != option:
                raise LabError(f"{other} and {option} would both write {path}")


def peers_check(text: str) -> str:
    """A study compares: an empty list of peers is an error."""
    if not words_split(text):
        raise LabError("--peers names none: give at least one, such as glibc")
    return text


BuildOption = Annotated[
    Path | None,
    typer.Option("--build", help="Use the library and bench/ of this build directory."),
]
PeersOption = Annotated[
    str, typer.Option(help="Comma-separated peers to compare with.", callback=peers_check)
]
SeedOption = Annotated[
    int | None, typer.Option(min=0, help="Random seed, to repeat an earlier run. Default: a new one.")
]
ReportOption = Annotated[
    Path | None,
    typer.Option(
        help="Write a Markdown report to this file, and its raw samples beside it.", callback=report_check
    ),
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write the results to this file as JSON.", callback=output_check)
]
OnlyOption = Annotated[
    str,
    typer.Option(
        help="Only these workloads: comma-separated parts of names, programs or groups, or whole names separated by"
        " semicolons."
    ),
]


TargetArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="PID | -- CMD...", help="A running process, or a program to start on hakmem."),
]


def again_check(ctx: typer.Context) -> None:
    """A kept run is judged by its own plan: beside --from an option of a new run would do nothing, and is an error."""
    for option in ctx.command.params:
        source = ctx.get_parameter_source(option.name or "")
        if option.name not in BESIDE_FROM and source is not None and source.name == "COMMANDLINE":
            raise LabError(f"{option.opts[0]} is for a new run, and --from judges a kept one by its own plan")


def words_split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def samples_text(samples: Path) -> str:
    return f"samples: {path_here(samples)}"


def target_pid(target: Sequence[str] | None) -> int | None:
    """The PID that is meant; None: a command."""
    if not target:
        raise LabError("give the number of a process, or a command after --")
    if not all(word.isdecimal() and word.isascii() for word in target):
        return None
    if len(target) > 1:
        raise LabError("one process at a time: give one number")
    digits = target[0].lstrip("0")
    if len(digits) > PID_DIGITS_MAX:
        raise LabError(f"there is no process {digits[:PID_DIGITS_MAX]}...")
    return int(digits or "0")


def process_asked(pid: int) -> Process:
    """The process with the PID that a user gave; if that is the launcher, its program."""
    process = process_open(pid)
    if process.name != LAUNCHER:
        return process
    kernel_check()
    children = children_of(pid)
    if not children:
        raise LabError(f"{pid} is the launcher, and its program is not running")
    told = [child for child in children if _proof_of(child) not in ("", _proof_of(pid))]
    program = (told or children)[0]
    others = [] if told else children[1:]
    unsure = f", or another of its children: {', '.join(map(str, others))}" if others else ""
    print(f"hakmem: {pid} is the launcher; its program is process {program}{unsure}", file=sys.stderr)
    return process_open(program)


def _proof_of(pid: int) -> str:
    """The file in which the library answers the launcher. The program is its first child with another one than its own:
    the shell that became the launcher may have started processes, and orphans of the program come to it where it is
    process 1. Empty also if the environment cannot be read, or was overwritten, as by a program that sets its title."""
    try:
        return Process(pid).environment().get(PROOF, "")
    except LabError:
        return ""


def grids_show(grids: Sequence[Grid], lines: Sequence[str], to_errors: bool = False) -> None:
    stream = sys.stderr if to_errors else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else TABLE_WIDTH)
    grids_print(console, grids)
    for line in lines:
        console.print(shown(line), markup=False, highlight=False)
