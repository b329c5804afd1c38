"""`hakmem instructions`."""

from __future__ import annotations

from typing import Annotated

import typer

from hakmem_lab.allocators import elf
from hakmem_lab.allocators.peers import PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import BuildOption, grids_show, words_split
from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.stage import staged
from hakmem_lab.studies.baseline import compiler_name
from hakmem_lab.studies.checks import checks_grid
from hakmem_lab.studies.instructions import (
    SIZES,
    instructions_checks,
    instructions_grid,
    instructions_measure,
)
from hakmem_lab.studies.paths import CASES, cases_count, reviewed_text
from hakmem_lab.studies.study import progress_make


def instructions(
    peers: Annotated[
        str, typer.Option(help="Also count these peers, comma-separated; no limits apply to them.")
    ] = "",
    paths: Annotated[
        bool,
        typer.Option("--paths", help="Count every entry point and slow path, as in the reviewed text."),
    ] = False,
    build: BuildOption = None,
) -> None:
    """Counts the instructions of a malloc and free pair, and of a block's refill and spill, by callgrind."""
    checkout = Checkout.find(build)
    if paths:
        typer.echo(paths_text(checkout), nl=False)
        return
    with staged(checkout) as stage, progress_make() as progress:
        store = PeerStore(checkout)
        counted = [stage.peer(store.obtain(name)) for name in ("hakmem", *words_split(peers))]
        task = progress.add_task("callgrind", total=len(counted) * len(SIZES))
        measured = []
        for peer in counted:
            for size in SIZES:
                measured.append(instructions_measure(stage, peer, size))
                progress.advance(task)
    checks = instructions_checks([one for one in measured if one.peer == "hakmem"])
    grids_show([checks_grid(checks), instructions_grid(measured)], [])
    if any(check.state == "missed" for check in checks):
        raise typer.Exit(1)


def paths_text(checkout: Checkout) -> str:
    """tests/golden/paths.release.txt is one."""
    with staged(checkout) as stage, progress_make() as progress:
        task = progress.add_task("callgrind", total=len(CASES))
        peer = stage.peer(PeerStore(checkout).obtain("hakmem"))
        counted = cases_count(stage, Arm(peer), lambda: progress.advance(task))
    return reviewed_text(compiler_name(elf.compilers(checkout.library)), counted)
