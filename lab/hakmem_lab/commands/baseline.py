"""`hakmem baseline`."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from hakmem_lab.allocators.builds import MARK, commit_find
from hakmem_lab.allocators.peers import PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.asking import (
    INCONCLUSIVE,
    ask,
    calibrate_choose,
    circumstance_lines,
    design_make,
    outcome_keep,
)
from hakmem_lab.commands.common import BuildOption, JsonOption, grids_show
from hakmem_lab.commands.planted import planted
from hakmem_lab.errors import LabError, RunInterruptedError, shown
from hakmem_lab.files import json_write, text_write
from hakmem_lab.measure import provenance
from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.stage import staged
from hakmem_lab.reports.ab import outcome_grid, reason_lines
from hakmem_lab.reports.baseline import gates_grid, loss_lines
from hakmem_lab.studies.ab import Design
from hakmem_lab.studies.baseline import (
    CELLS_COUNTED,
    Baseline,
    baseline_make,
    baseline_path,
    baseline_read,
    cells_counted,
    gates,
    losses,
    rows_count,
    suspects,
)
from hakmem_lab.studies.overview import BASELINE_FILE, BASELINE_KIND
from hakmem_lab.studies.study import progress_make, study_open

baseline = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Reference results in tests/baseline/, and the gate that compares every change with them.",
)


def counted(checkout: Checkout) -> Baseline:
    """What the build's library costs now."""
    with staged(checkout) as stage, progress_make() as progress:
        task = progress.add_task("baseline", total=len(CELLS_COUNTED))
        peer = stage.peer(PeerStore(checkout).obtain("hakmem"))
        rows = rows_count(stage, Arm(peer), lambda: progress.advance(task))
        source = provenance.collect(checkout, "./hakmem baseline", None, [peer])
    return baseline_make(source, rows)


@baseline.command()
def save(build: BuildOption = None) -> None:
    """Counts, and saves the result as the baseline. Review the difference, and give the reason in the commit."""
    checkout = Checkout.find(build)
    path = baseline_path(checkout)
    text_write(path, counted(checkout).text())
    typer.echo(f"baseline: {checkout.shown(path)}, {len(CELLS_COUNTED)} workloads")


@baseline.command()
def check(
    time: Annotated[
        bool,
        typer.Option("--time", help="Also measure time: `ab` against the baseline's commit."),
    ] = False,
    budget: Annotated[str, typer.Option(help="Time for the ab of each workload.")] = "60s",
    margin: Annotated[str, typer.Option(help="Speeds this close are equivalent.")] = "3%",
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """Counts, and reports what was lost since the baseline, by which entry point, and which commits touched it.

    Exit status: 0 if nothing was lost, 1 if something was, 2 for an error; with --time 3 if a comparison stayed
    inconclusive.
    """
    checkout = Checkout.find(build)
    before, design = baseline_read(baseline_path(checkout)), design_make(budget, margin)
    if time:
        commit_check(checkout, before)
    now = counted(checkout)
    found = gates(before, now)
    lost = losses(before, now.rows, found)
    lines = loss_lines(lost)
    if lost:
        lines += [f"suspect: {line}" for line in suspects(checkout, before.commit, lost)]
    grids_show([gates_grid(found)], lines)
    content = {
        "before": before.commit,
        "gates": [asdict(one) for one in found],
        "lost": [asdict(one) for one in lost],
    }
    if build is None:  # what another build lost is not what this checkout lost
        json_write(checkout.results_new(BASELINE_KIND) / BASELINE_FILE, content)
    if json_file is not None:
        json_write(json_file, content)
    missed = sum(1 for gate in found if gate.state == "missed")
    left_open = sum(1 for gate in found if gate.state.startswith("open"))
    kept = f"{len(found) - missed - left_open} figures kept, {missed} lost"
    words: list[str] = []
    try:
        for cell in cells_counted() if time else ():
            words.append(_time_ask(checkout, before, cell.name, design, budget, margin))
    except RunInterruptedError:
        raise
    except LabError as error:  # what is lost is lost all the same
        if not missed and "worse" not in words:
            raise
        print(f"hakmem: {shown(str(error))}", file=sys.stderr)
    finally:
        typer.echo(f"{kept}{f', {left_open} open' if left_open else ''} since {before.commit}")
    if missed or "worse" in words:
        raise typer.Exit(1)
    if "inconclusive" in words:
        raise typer.Exit(INCONCLUSIVE)


def commit_check(checkout: Checkout, before: Baseline) -> None:
    """An error if the baseline's library cannot be built again."""
    if " " in before.commit or not before.commit:
        raise LabError(f"the baseline is of '{before.commit}': only a commit can be built again")
    commit_find(checkout, before.commit)


def _time_ask(
    checkout: Checkout, before: Baseline, name: str, design: Design, budget: str, margin: str
) -> str:
    """The verdict on a workload. Absolute times of two days cannot be compared, so both run now."""
    calibrate = calibrate_choose(name, None)
    command: Sequence[str] = [
        "./hakmem",
        "baseline",
        "check",
        "--time",
        "--budget",
        budget,
        "--margin",
        margin,
    ]
    seed = secrets.randbits(32)
    with study_open(checkout, "ab", seed) as study:
        arms = [f"{MARK}{before.commit}", "hakmem"]
        asked = ask(study, arms, calibrate, design, shlex.join(command), instructions=False)
        kept = outcome_keep(study, asked, {}, None)
    lines = [*circumstance_lines(asked), *reason_lines(asked.outcome), f"{name}: {kept}"]
    grids_show([outcome_grid(asked.outcome, asked.arranged.base.name)], lines)
    if asked.interrupted:  # and the workloads after this one are not asked
        raise RunInterruptedError("interrupted")
    return asked.outcome.answers[0].word


baseline.command()(planted)
