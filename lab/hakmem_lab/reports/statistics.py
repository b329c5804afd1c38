"""The statistics of a process for people: every number with what it means, and its size classes."""

from __future__ import annotations

from hakmem_lab.grid import Grid
from hakmem_lab.sight.books import NEVER
from hakmem_lab.sight.metrics import CLASS_METRICS, METRICS, Numbers
from hakmem_lab.sight.sizes import size_text

CLASS_COLUMNS = (
    "slabs",
    "taken_blocks",
    "cached_blocks",
    "live_blocks",
    "refills",
    "spills",
    "remote_blocks",
)


def statistics_grids(now: Numbers) -> list[Grid]:
    return [_numbers_grid(now), _calls_grid(now), _classes_grid(now)]


def _numbers_grid(now: Numbers) -> Grid:
    owner = now.books.page.owner.rpartition("/")[2]
    rows = []
    for metric in METRICS:
        value = int(metric.value(now))
        shown = size_text(value) if metric.is_bytes else str(value)
        rows.append((f"{metric.section} {metric.name}", metric.text, shown))
    return Grid(
        title=f"Process {now.pid}, {now.program}: hakmem {now.books.page.library} in {owner}",
        columns=("number", "what it is", "value"),
        rows=tuple(rows),
        text_columns=2,
    )


def _calls_grid(now: Numbers) -> Grid:
    return Grid(
        title="System calls",
        columns=("call", "made", "refused"),
        rows=tuple((one.name, str(one.made), str(one.refused)) for one in now.books.calls if one.made),
    )


def _classes_grid(now: Numbers) -> Grid:
    metrics = [metric for metric in CLASS_METRICS if metric.name in CLASS_COLUMNS]
    return Grid(
        title="Size classes that were used",
        columns=("block", *(metric.name.replace("_", " ") for metric in metrics)),
        rows=tuple(
            (str(one.block_bytes), *(str(metric.value(one)) for metric in metrics))
            for one in now.books.classes
            if one.is_used
        ),
    )


def statistics_lines(now: Numbers) -> list[str]:
    half_life = now.books.half_life_ms
    lines = ["Decay: never." if half_life == NEVER else f"Decay: half-life {half_life} ms."]
    lines += [
        f"Option {one.name} {one.value} ({one.source})." for one in now.books.options if not one.is_default
    ]
    for failure in now.books.last_failures:
        refused = f" ({failure.call}: {failure.error})" if failure.call else ""
        lines.append(
            f"Failure {failure.number}: {failure.size} bytes aligned to {failure.alignment},"
            f" {failure.cause}{refused}."
        )
    return lines
