"""The command line of the laboratory: one module of commands/ for each of its commands.

Exit status: 0 when nothing was clearly lost and every limit was met, 1 when something was or one was not, 2 for an error,
3 when a comparison stayed inconclusive, 130 when interrupted.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import typer
from typer.core import TyperGroup

from hakmem_lab.commands.ab import ab
from hakmem_lab.commands.baseline import baseline
from hakmem_lab.commands.bench import bench
from hakmem_lab.commands.bgsave import bgsave
from hakmem_lab.commands.builds import builds
from hakmem_lab.commands.canned import canned
from hakmem_lab.commands.ceiling import ceiling
from hakmem_lab.commands.compare import compare
from hakmem_lab.commands.doctor import doctor
from hakmem_lab.commands.explain import explain
from hakmem_lab.commands.faults import faults
from hakmem_lab.commands.footprint import footprint
from hakmem_lab.commands.honesty import honesty
from hakmem_lab.commands.instructions import instructions
from hakmem_lab.commands.peers import peers
from hakmem_lab.commands.report import report
from hakmem_lab.commands.scaling import scaling
from hakmem_lab.commands.sharing import sharing
from hakmem_lab.commands.show_config import show_config
from hakmem_lab.commands.stats import stats
from hakmem_lab.commands.sweep import sweep
from hakmem_lab.commands.where import where
from hakmem_lab.errors import LabError, RunInterruptedError
from hakmem_lab.processes import ending_as_interrupted


class Commands(TyperGroup):
    def invoke(self, ctx: typer.Context) -> object:
        """Typer itself would end without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise RunInterruptedError("interrupted") from None


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="The laboratory: hakmem beside other allocators, so that noise is never called a win.",
)

COMMANDS = (
    bench,
    ab,
    sweep,
    canned,
    honesty,
    ceiling,
    where,
    scaling,
    sharing,
    builds,
    report,
    faults,
    footprint,
    bgsave,
    instructions,
    peers,
    explain,
    doctor,
    stats,
)
for command in COMMANDS:
    app.command()(command)
app.command("show-config")(show_config)


app.add_typer(baseline, name="baseline")

# What follows the command's first word is the command's own.
app.command(context_settings={"allow_interspersed_args": False})(compare)


def main() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):  # standard error does so by itself
        sys.stdout.reconfigure(errors="replace")  # a file's or a terminal's encoding may be narrower
    try:
        with ending_as_interrupted():
            app(prog_name="./hakmem")
    except LabError as error:
        print(f"hakmem: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except OSError as error:  # a full disk, a file that cannot be read
        where = f"{Path(error.filename).name}: " if isinstance(error.filename, str) else ""
        print(f"hakmem: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(LabError.exit_status)
