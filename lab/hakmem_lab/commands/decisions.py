"""What `hakmem explain --decisions` shows and writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from hakmem_lab.commands.common import grids_show
from hakmem_lab.errors import LabError
from hakmem_lab.files import text_write
from hakmem_lab.reports.decisions import (
    counts_grid,
    decisions_content,
    decisions_lines,
    last_grid,
    settled_grid,
)
from hakmem_lab.sight.decisions import Look
from hakmem_lab.sight.freeze import profile_text


def report_path(target: Sequence[str]) -> Path | None:
    """The file of statistics that is meant; None: a process or a command."""
    if len(target) != 1 or target[0].isdecimal() or not target[0].endswith(".json"):
        return None
    return Path(target[0])


def decisions_show(
    looks: Sequence[Look],
    when: str,
    started: float | None,
    json_file: Path | None,
    freeze: Path | None,
) -> None:
    """WHEN: for a command, when it was inspected. STARTED: seconds after its start; standard output then belongs to
    the command."""
    if (json_file or freeze) and len(looks) > 1:
        owners = " and ".join(look.of for look in looks)
        raise LabError(
            f"the process holds {len(looks)} copies of hakmem, {owners}: none of them can be chosen"
        )
    for look in looks:
        lines = decisions_lines(look, when)
        if freeze is not None:
            text_write(freeze, profile_text(look))
            lines.append(
                f"Written to {freeze}: HAKMEM_PROFILE={_as_profile(freeze)} starts a program with these."
            )
        if json_file is not None:
            text_write(json_file, json.dumps(decisions_content(look, started), indent=2) + "\n")
        grids = [counts_grid(look), settled_grid(look), last_grid(look)]
        grids_show(grids, lines, to_errors=started is not None)


def _as_profile(path: Path) -> str:
    """A name with a slash in it is the name of a file."""
    text = str(path)
    return text if "/" in text else f"./{text}"
