"""`hakmem stats`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hakmem_lab.commands.common import grids_show, process_asked
from hakmem_lab.errors import LabError
from hakmem_lab.reports.statistics import statistics_grids, statistics_lines
from hakmem_lab.sight.metrics import Numbers, numbers_read, report_json, report_openmetrics


def stats(
    pid: Annotated[int, typer.Argument(help="A running process on hakmem.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, described by docs/statistics.schema.json.")
    ] = False,
    as_openmetrics: Annotated[
        bool, typer.Option("--openmetrics", help="Print OpenMetrics text, for Prometheus.")
    ] = False,
    copy: Annotated[
        int, typer.Option(min=0, help="Which copy of hakmem in the process. 0: all of them, as tables.")
    ] = 0,
) -> None:
    """Shows the statistics of a running process, read from outside: the numbers of the library's own report.

    The process is neither stopped nor asked. docs/statistics.md says what each number means.
    """
    if as_json and as_openmetrics:
        raise LabError("give either --json or --openmetrics, not both")
    copies = numbers_read(process_asked(pid))
    if copy > len(copies):
        raise LabError(f"process {copies[0].pid} holds {len(copies)} of hakmem, not {copy}")
    if as_json or as_openmetrics:
        now = _chosen(copies, copy)
        sys.stdout.write(report_json(now) if as_json else report_openmetrics(now))
        return
    for now in copies if copy == 0 else [copies[copy - 1]]:
        grids_show(statistics_grids(now), statistics_lines(now))


def _chosen(copies: list[Numbers], copy: int) -> Numbers:
    """A report is about one copy."""
    if copy == 0 and len(copies) > 1:
        owners = ", ".join(
            f"{number}: {now.books.page.owner.rpartition('/')[2]}"
            for number, now in enumerate(copies, start=1)
        )
        raise LabError(
            f"process {copies[0].pid} holds {len(copies)} copies of hakmem ({owners}): choose by --copy"
        )
    return copies[max(copy, 1) - 1]
