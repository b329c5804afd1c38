"""`hakmem doctor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import (
    BuildOption,
    JsonOption,
    TargetArgument,
    grids_show,
    process_asked,
    target_pid,
)
from hakmem_lab.errors import LabError
from hakmem_lab.files import text_write
from hakmem_lab.reports.doctor import findings_content, findings_grid, last_line
from hakmem_lab.sight.doctor import (
    ROOT,
    end_findings,
    library_findings,
    patient_findings,
    patient_read,
    place_findings,
    proof_findings,
)
from hakmem_lab.sight.findings import Finding, Level, notice, ordered, problem
from hakmem_lab.sight.launch import Trigger, launched, look
from hakmem_lab.sight.program import UnservableError

AFTER_SECONDS = 1.0


def doctor(
    target: TargetArgument = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
    root: Annotated[Path, typer.Option(hidden=True, help="Take proc/ and sys/ from here.")] = ROOT,
) -> None:
    """Is hakmem serving, and does anything stand in its way? Problems first.

    Give the PID of a running process, or CMD, which is run on hakmem and inspected after one second, or before it
    ends if that is sooner; a signal that ends it is a problem. Without either, this machine and this checkout's library are checked. Exit status: 0
    without a problem, 1 with one, 2 for an error.
    """
    if not target and json_file is not None and str(json_file).isdecimal():
        raise LabError(
            f"--json takes a file, here {json_file}, and there is no process: doctor {json_file} --json FILE looks at one"
        )
    pid = target_pid(target) if target else None
    if pid is not None:
        process = process_asked(pid)
        of, found = f"Process {process.pid}, {process.name}", list(patient_findings(patient_read(process)))
    elif target:
        of, found = target[0], _of_command(Checkout.find(build), target)
    elif root != ROOT:
        of, found = "The machine", list(place_findings(root))
    else:
        of = "This machine and libhakmem"
        found = [*library_findings(Checkout.find(build)), *place_findings()]
    found = ordered(found)
    if json_file is not None:
        text_write(json_file, json.dumps(findings_content(of, found), indent=2) + "\n")
    grids_show([findings_grid(of, found)], [last_line(found)])
    if any(one.level is Level.PROBLEM for one in found):
        raise typer.Exit(1)


def _of_command(checkout: Checkout, command: list[str]) -> list[Finding]:
    """From what hakmem itself reports in the command's processes, and a look at the largest. Ends with the program."""
    try:
        with launched(checkout, command) as running:
            try:
                seen = look(running, Trigger(seconds=AFTER_SECONDS), patient_read).value
                found = list(patient_findings(seen))
            except LabError as error:
                found = [notice("process", "not looked at", str(error))]
            ended = end_findings(running.wait(), running.ended_by())
            return [*ended, *proof_findings(running.proofs(), running.pid, running.can_report()), *found]
    except UnservableError as error:
        return [problem("malloc", command[0], str(error))]
