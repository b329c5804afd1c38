"""Small pictures side by side, with a line for each allocator: memory over time, latency tails."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hakmem_lab.measure.store import Sample
from hakmem_lab.reports.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, Picture, figure_make, legend_above
from hakmem_lab.studies.judging import Matrix

NAMED = {"hakmem": BLUE, "glibc": BLACK, "mimalloc3": ORANGE, "jemalloc": GREEN}
"""Other allocators are drawn thin and grey."""
PANELS_MAX = 6
TITLE_CHARACTERS = 38
"""Characters of a panel's title before it is wrapped."""


def _panels(matrix: Matrix, rows: Sequence[str], height: float) -> tuple[Figure, list[Axes]]:
    columns = min(3, len(rows))
    lines = -(-len(rows) // columns)
    figure = figure_make(8.5 if columns == 3 else 4.2 * columns, 0.5 + height * lines)
    axes = [figure.add_subplot(lines, columns, place + 1) for place in range(len(rows))]
    drawn = [arm for arm in (matrix.plan.subject, *matrix.plan.peers) if arm in NAMED]
    handles = [
        Line2D([], [], color=NAMED[arm], linewidth=2 if arm == "hakmem" else 1.2, label=arm) for arm in drawn
    ]
    if set(matrix.plan.peers) - NAMED.keys():
        handles.append(Line2D([], [], color=GREY, linewidth=0.8, label="others"))
    legend_above(figure, handles)
    return figure, axes


def _observed(matrix: Matrix, row: str) -> list[tuple[str, Sample]]:
    """Allocators without a name first, so that the others are drawn over them; hakmem last."""
    arms = [arm for arm in (*matrix.plan.peers, matrix.plan.subject) if (row, arm) in matrix.observed]
    return [
        (arm, matrix.observed[row, arm])
        for arm in sorted(arms, key=lambda arm: (arm in NAMED, arm == "hakmem"))
    ]


def _pen(arm: str) -> dict[str, Any]:
    if arm == "hakmem":
        return {"color": NAMED[arm], "linewidth": 2.0}
    return {"color": NAMED.get(arm, GREY), "linewidth": 1.2 if arm in NAMED else 0.8}


def memory_time_picture(matrix: Matrix) -> Picture | None:
    """Workloads whose figure is memory, then those that hold most."""
    subject = matrix.plan.subject
    rows = [
        row
        for row in matrix.plan.rows
        if not row.control and len(sample_trace(matrix, row.name, subject)) > 4
    ]
    rows.sort(
        key=lambda row: (not row.memory, -max(kib for _, kib in sample_trace(matrix, row.name, subject)))
    )
    names = [row.name for row in rows[:PANELS_MAX]]
    if not names:
        return None
    figure, panels = _panels(matrix, names, 1.9)
    for name, axes in zip(names, panels, strict=True):
        for arm, sample in _observed(matrix, name):
            if sample.rss_trace:
                seconds, kib = zip(*sample.rss_trace, strict=True)
                axes.plot(seconds, np.array(kib) / 1024, **_pen(arm))
        axes.set_title(textwrap.fill(name, TITLE_CHARACTERS))
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds")
        axes.set_ylabel("MiB resident")
    caption = "Resident memory over the run, with instruments: the workloads that are about memory, then the largest."
    return Picture("memory", "Memory over time", caption, figure)


def sample_trace(matrix: Matrix, row: str, arm: str) -> tuple[tuple[float, int], ...]:
    sample = matrix.observed.get((row, arm))
    return sample.rss_trace if sample else ()


def latency_picture(matrix: Matrix) -> Picture | None:
    """Workloads in which hakmem's tail is longest compared with the peer with the shortest."""
    rows = [one.row for one in sorted(matrix.tails, key=lambda one: one.ratio, reverse=True)[:PANELS_MAX]]
    if not rows:
        return None
    figure, panels = _panels(matrix, rows, 1.9)
    for name, axes in zip(rows, panels, strict=True):
        for arm, sample in _observed(matrix, name):
            tails = (
                sample.latency_p50_ns,
                sample.latency_p99_ns,
                sample.latency_p999_ns,
                sample.latency_max_ns,
            )
            if None not in tails:
                axes.plot(range(4), tails, marker="o", markersize=2.5, **_pen(arm))
        axes.set_title(textwrap.fill(name, TITLE_CHARACTERS))
        axes.set_yscale("log")
        axes.set_xticks(range(4), ["p50", "p99", "p99.9", "largest"])
        axes.set_ylabel("ns")
    caption = "Latency of single operations, by one run of each: where hakmem's p99.9 was longest beside the selected peer's."
    return Picture("latency", "Latency tails", caption, figure)
