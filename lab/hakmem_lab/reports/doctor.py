"""What the doctor found, for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from hakmem_lab.grid import Grid
from hakmem_lab.sight.findings import Finding, Level
from hakmem_lab.sight.sizes import count_text


def findings_grid(of: str, findings: Sequence[Finding]) -> Grid:
    return Grid(
        title=f"{of}, problems first",
        columns=("", "what", "seen", "what it costs or gives"),
        rows=tuple((one.level.name.lower(), one.what, one.value, one.means) for one in findings),
        text_columns=4,
    )


def last_line(findings: Sequence[Finding]) -> str:
    problems = sum(one.level is Level.PROBLEM for one in findings)
    notices = sum(one.level is Level.NOTICE for one in findings)
    return f"{count_text(problems, 'problem')}, {count_text(notices, 'notice')}"


def findings_content(of: str, findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "of": of,
        "problems": sum(one.level is Level.PROBLEM for one in findings),
        "findings": [
            {"level": one.level.name.lower(), "what": one.what, "seen": one.value, "means": one.means}
            for one in findings
        ],
    }
