"""`hakmem report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.checkout import Checkout, path_here
from hakmem_lab.commands.common import ReportOption, grids_show
from hakmem_lab.files import text_write

KIND = "report"
PAGE_FILE = "report.html"
SHOWN = 9
"""Of the page's tables, as many as are about hakmem as a whole."""


def report(
    run: Annotated[
        Path | None,
        typer.Option("--from", metavar="FOLDER", help="A run of bench_results/bench. Default: the newest."),
    ] = None,
    since: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="The run to compare with. Default: the one before it on this machine."
        ),
    ] = None,
    report: ReportOption = None,
) -> None:
    """One page of what was measured so far: overall, strengths, weaknesses, change, bottlenecks, with pictures.

    Measures nothing. The page is kept in bench_results/report; --report also writes it elsewhere, as Markdown and HTML.
    """
    # Drawing takes a second to load: not for --help and wrong options.
    from hakmem_lab.reports.overview import page_make
    from hakmem_lab.studies.overview import overview_gather

    checkout = Checkout.find()
    overview = overview_gather(checkout, run, since)
    page = page_make(overview, f"bench_results/bench/{overview.run.plan.run}/raw")
    lines = list(page.lines)
    try:
        kept = checkout.results_new(KIND) / PAGE_FILE
        text_write(kept, page.html())
        if report is not None:
            page.write_with(overview.run.store, report)
        lines.append(f"page: {path_here(kept)}")
    finally:  # also when the disk is full: what was found is there
        grids_show(page.grids[:SHOWN], lines)
