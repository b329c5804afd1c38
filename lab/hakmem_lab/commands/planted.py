"""`hakmem baseline planted`."""

from __future__ import annotations

import secrets
import shlex
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from hakmem_lab.allocators.arms import arm_parse, arm_stage
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.asking import (
    INCONCLUSIVE,
    ShareOption,
    TimeBudgetOption,
    ask,
    calibrate_choose,
    circumstance_lines,
    design_make,
    outcome_keep,
)
from hakmem_lab.commands.common import BuildOption, ReportOption, SeedOption, grids_show
from hakmem_lab.commands.units import change_parse
from hakmem_lab.grid import Grid
from hakmem_lab.measure import provenance
from hakmem_lab.measure.provenance import commit_read
from hakmem_lab.measure.runner import Arm
from hakmem_lab.reports.ab import prediction_line, reason_lines, verdict_line
from hakmem_lab.reports.baseline import gates_grid, loss_lines
from hakmem_lab.reports.report import report_write
from hakmem_lab.reports.where import diff_grid, diff_lines, prediction_text
from hakmem_lab.studies.baseline import (
    Gate,
    Loss,
    baseline_make,
    baseline_path,
    baseline_read,
    gates,
    losses,
    rows_count,
)
from hakmem_lab.studies.planted import (
    Finding,
    Planted,
    check_finding,
    planted_build,
    planted_read,
    where_finding,
)
from hakmem_lab.studies.study import Study, study_open
from hakmem_lab.studies.where import CellWork, Diff, where_diff, where_measure
from hakmem_lab.workloads.cells import CELLS


def planted(
    budget: TimeBudgetOption = "5m",
    margin: ShareOption = "2%",
    seed: SeedOption = None,
    report: ReportOption = None,
    build: BuildOption = None,
) -> None:
    """Plants a loss of some per cent: where --diff must find it, check must stop it, and ab must confirm it.

    Exit status: 0 if all three did, 1 if one missed it, 2 for an error, 3 if the ab stayed inconclusive.
    """
    checkout = Checkout.find(build)
    design = design_make(budget, margin)
    seed = secrets.randbits(32) if seed is None else seed
    loss = planted_read(checkout)
    command = ["./hakmem", "baseline", "planted", "--budget", budget, "--margin", margin, "--seed", str(seed)]
    with (
        study_open(checkout, "planted", seed) as study,
        TemporaryDirectory(dir=study.stage.folder) as scratch,
    ):
        intact, library = Path(scratch) / "intact.so", Path(scratch) / "planted.so"
        shutil.copy(checkout.library, intact)
        shutil.copy(planted_build(checkout, loss, Path(scratch)), library)
        diff = planted_where(study, loss, intact, library)
        found, lost = planted_check(study, library)
        findings = [where_finding(loss, diff), check_finding(loss, found, lost)]
        calibrate = calibrate_choose(loss.bench, None)
        arms = [str(intact), str(library)]
        asked = ask(study, arms, calibrate, design, shlex.join(command), instructions=False)
        outcome, answer = asked.outcome, asked.outcome.answers[0]
        base = asked.arranged.base.name
        findings.append(
            Finding("ab", answer.word == "worse", verdict_line(outcome, base).removeprefix("verdict: "))
        )
        predicted = change_parse(prediction_text(diff))
        kept = outcome_keep(study, asked, {"predicted": predicted, "planted": loss.why}, None)
    grids = [findings_grid(findings), diff_grid(diff), gates_grid(found), *asked.grids()]
    lines = [
        loss.why,
        *diff_lines(diff),
        *loss_lines(lost),
        *circumstance_lines(asked),
        *reason_lines(outcome),
    ]
    lines.append(prediction_line(predicted, answer))
    if report is not None:
        report_write(report, "A planted loss", asked.source, lines, grids, study.samples.path)
    grids_show(grids, [*lines, kept])
    missed = [one.command for one in findings if not one.found]
    if answer.word == "inconclusive" and missed == ["ab"]:
        raise typer.Exit(INCONCLUSIVE)
    if missed:
        raise typer.Exit(1)


def planted_where(study: Study, loss: Planted, intact: Path, library: Path) -> Diff:
    """With the release builds, as they are measured."""
    work = CellWork(study.stage, next(cell for cell in CELLS if cell.name == loss.bench))
    sides = []
    for path in (intact, library):
        peer = arm_stage(study.stage, arm_parse(str(path), study.store), path.stem)
        commit = commit_read(study.checkout.root)
        sides.append(where_measure(work, peer, path.name, commit, study.checkout, kernel=False))
    return where_diff(*sides)


def planted_check(study: Study, library: Path) -> tuple[list[Gate], list[Loss]]:
    peer = arm_stage(study.stage, arm_parse(str(library), study.store), "checked")
    before = baseline_read(baseline_path(study.checkout))
    rows = rows_count(study.stage, Arm(peer), lambda: None)
    now = baseline_make(provenance.collect(study.checkout, "", None, [peer]), rows)
    found = gates(before, now)
    return found, losses(before, now.rows, found)


def findings_grid(findings: list[Finding]) -> Grid:
    rows = tuple((one.command, "met" if one.found else "missed", one.said) for one in findings)
    return Grid("Who saw it", ("command", "state", "what it said"), rows, text_columns=3)
