"""The table of programs, in the form of the laboratory's reports."""

import os
from collections.abc import Sequence
from pathlib import Path

from hakmem_lab.checkout import Checkout
from hakmem_lab.grid import Grid
from hakmem_lab.measure import provenance
from hakmem_lab.reports.report import report_write
from trial import Row

COMMAND = "./hakmem soak --programs --report docs/results/programs.md"
COLUMNS = (
    "program",
    "version",
    "work",
    "served by hakmem",
    "result",
    "without hakmem",
    "notes",
    "s",
    "s without",
)
READING = (
    "Each program did its work twice: on hakmem, then without it. *Passed* without hakmem means the work went well"
    " and what came out was the same; *differs* that it was not. What is compared is said by the test, one file a"
    " program in `tests/programs/`: output, files, rows of a database, the set of failing tests.",
    "*Served* are the processes that printed hakmem's statistics when they exited, and in brackets how many of"
    " that name; the launcher has had the library's word for each command besides: its malloc and free are hakmem's."
    " Where statistics would disturb a suite that reads standard error, only that word was had, for the command"
    " itself. Processes that end by `_exit` or a signal print nothing and are not listed.",
    "The seconds are of one run each, other programs beside it: they are not a measurement of speed.",
    "python3 runs with PYTHONMALLOC=malloc, so that its objects come from malloc.",
)


def table_write(path: Path, rows: Sequence[Row]) -> None:
    given = os.environ.get("HAKMEM_BUILD_DIR")
    checkout = Checkout.find(Path(given) if given else None)
    passed = sum(row.result == "passed" for row in rows)
    grid = Grid("Programs", COLUMNS, tuple(cells(row) for row in rows), text_columns=7)
    source = provenance.collect(checkout, COMMAND)
    report_write(path, "Programs", source, [f"{passed} of {len(rows)} passed.", *READING], [grid])


def cells(row: Row) -> tuple[str, ...]:
    texts = (row.program, row.version, row.work, row.served, row.result, row.without, "; ".join(row.notes))
    return (*(text.replace("|", "\\|") for text in texts), *(f"{seconds:.1f}" for seconds in row.seconds))
