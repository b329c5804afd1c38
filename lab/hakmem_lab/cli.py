"""The command line of the laboratory: one module of commands/ for each of its commands.

Exit status: 0 for no loss and all limits met, 1 for a loss or a missed limit, 2 for an error, 3 if a comparison stayed
inconclusive, 130 if interrupted, 141 if nobody reads the output.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from hakmem_lab.errors import LabError, RunInterruptedError, UnreadError, shown
from hakmem_lab.output import errors_open, output_open
from hakmem_lab.processes import ending_as_interrupted

COMMANDS = (
    "bench",
    "ab",
    "sweep",
    "canned",
    "honesty",
    "ceiling",
    "where",
    "scaling",
    "sharing",
    "builds",
    "report",
    "faults",
    "footprint",
    "bgsave",
    "instructions",
    "peers",
    "explain",
    "doctor",
    "stats",
    "show-config",
    "compare",
    "baseline",
)
"""In the order of the help."""
LEAVES_THE_REST = {"allow_interspersed_args": False}
"""All that follows the command's first word belongs to that command."""


class Commands(TyperGroup):
    """A command's module is imported when the command is requested, because importing what measures takes seconds."""

    def list_commands(self, ctx: typer.Context) -> list[str]:
        return [*super().list_commands(ctx), *COMMANDS]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | TyperGroup | None:
        return _command_make(cmd_name) if cmd_name in COMMANDS else super().get_command(ctx, cmd_name)

    def invoke(self, ctx: typer.Context) -> object:
        """Typer itself would end without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise RunInterruptedError("interrupted") from None


def _command_make(name: str) -> TyperCommand | TyperGroup:
    """Of the function, or the group of them, that has the name of its module."""
    word = name.replace("-", "_")
    try:
        found = getattr(import_module(f"hakmem_lab.commands.{word}"), word)
    except KeyboardInterrupt:  # as in __main__
        print("hakmem: interrupted", file=sys.stderr, flush=True)
        os._exit(RunInterruptedError.exit_status)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
        found.command(name, context_settings=LEAVES_THE_REST if name == "compare" else None)(function)
    return get_command(found)


app = typer.Typer(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},  # of every command, too
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def laboratory() -> None:
    """The laboratory: compares hakmem with other allocators, with controls, so that noise is rarely mistaken for a win."""


def main() -> None:
    if sys.stderr is sys.__stderr__:
        sys.stderr = errors_open(sys.stderr)
    if sys.stdout is None:  # as `>&-` has it: the next file that is opened would take its place
        print("hakmem: the standard output is closed", file=sys.stderr)
        sys.exit(LabError.exit_status)
    if sys.stdout is sys.__stdout__:
        sys.stdout = output_open(sys.stdout)
    try:
        with ending_as_interrupted():
            try:
                app(prog_name="./hakmem")
            finally:
                sys.stdout.flush()
    except UnreadError as error:
        sys.exit(error.exit_status)
    except LabError as error:
        print(f"hakmem: {shown(str(error))}", file=sys.stderr)
        sys.exit(error.exit_status)
    except OSError as error:  # a full disk, a file that cannot be read
        print(f"hakmem: {_about(error)}{error.strerror or error}", file=sys.stderr)
        sys.exit(LabError.exit_status)


def _about(error: OSError) -> str:
    """The name of what could not be used, and a colon; empty if that is not known."""
    if isinstance(error.filename, str):
        return f"{Path(error.filename).name}: "
    if isinstance(error, FileNotFoundError):  # it was deleted, and a path of the user's begins there
        return "the current folder: "
    return ""
