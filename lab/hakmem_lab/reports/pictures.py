"""Pictures of a matrix, as SVG that needs nothing else. Colours are those of Okabe and Ito, which the colour-blind can
tell apart; what matters is also told by place, weight or shape."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from hakmem_lab.measure.store import Sample
from hakmem_lab.reports.matrix_text import short_failure
from hakmem_lab.studies.judging import CellResult, Matrix, Outcome

BLUE, VERMILION, ORANGE, GREEN, BLACK, GREY = "#0072B2", "#D55E00", "#E69F00", "#009E73", "#000000", "#9A9A9A"
OUTCOME_COLOURS = {
    Outcome.LOST: VERMILION,
    Outcome.VOID: GREY,
    Outcome.OPEN: GREY,
    Outcome.TIE: BLACK,
    Outcome.WON: BLUE,
}
NAMED = {"hakmem": BLUE, "glibc": BLACK, "mimalloc3": ORANGE, "jemalloc": GREEN}
"""Others are drawn thin and grey."""
PANELS_MAX = 6
TITLE_CHARACTERS = 38
"""Of a panel, until its line is broken."""
STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "svg.hashsalt": "hakmem",
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Picture:
    name: str
    title: str
    caption: str
    figure: Figure

    @cached_property
    def svg(self) -> str:
        text = io.StringIO()
        with mpl.rc_context(STYLE):
            self.figure.savefig(text, format="svg", metadata={"Date": None})
        return text.getvalue()


def pictures_make(matrix: Matrix) -> list[Picture]:
    """Those for which there is something to show."""
    with mpl.rc_context(STYLE):
        made = [
            ratios_picture(matrix),
            heat_picture(matrix),
            memory_time_picture(matrix),
            latency_picture(matrix),
            faults_picture(matrix),
        ]
    return [picture for picture in made if picture is not None]


def _figure(width: float, height: float, **more: Any) -> Figure:  # noqa: ANN401
    return Figure(figsize=(width, height), layout="constrained", **more)


def _ratio_axis(axes: Axes, low: float, high: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    steps = (1.0, 2.0, 5.0) if high / low < 1000 else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=steps))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _names_axis(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)


def _legend_above(figure: Figure, handles: Sequence[Line2D]) -> None:
    figure.legend(handles=list(handles), loc="outside upper left", ncols=len(handles))


def ratios_picture(matrix: Matrix) -> Picture | None:
    cells = [one for one in matrix.cells if one.best]
    if not cells:
        return None
    figure = _figure(8.5, 1.1 + 0.22 * len(cells))
    axes = figure.add_subplot()
    margin = matrix.plan.settings.margin
    axes.axvspan(1 / (1 + margin), 1 + margin, color="#EDEDED", linewidth=0)
    axes.axvline(1, color=BLACK, linewidth=0.7)
    ratios = [1.0]
    for place, cell in enumerate(cells):
        ratios += _ratio_row(axes, matrix, cell, place)
    _names_axis(axes, [cell.row.name for cell in cells])
    _ratio_axis(axes, min(ratios) / 1.15, max(ratios) * 1.15)
    axes.set_xlabel("hakmem's speed over the peer's: right of 1 hakmem is faster")
    handles = [
        Line2D(
            [],
            [],
            color=OUTCOME_COLOURS[outcome],
            marker="o",
            markersize=4,
            label=f"{outcome.value} against the best",
        )
        for outcome in (Outcome.LOST, Outcome.OPEN, Outcome.TIE, Outcome.WON)
    ]
    handles.append(
        Line2D([], [], color=BLACK, marker="D", markerfacecolor="white", ls="", markersize=4, label="glibc")
    )
    handles.append(Line2D([], [], color=GREY, marker="|", ls="", label="other peers"))
    _legend_above(figure, handles)
    percent = 100 * matrix.plan.settings.confidence
    caption = (
        f"Each workload against the best of its peers, with its {percent:g} % interval, losses first. The grey band"
        " is the margin."
    )
    return Picture("speed", "Speed", caption, figure)


def _ratio_row(axes: Axes, matrix: Matrix, cell: CellResult, place: int) -> list[float]:
    """The ratios that must be in sight."""
    assert cell.best is not None
    best = cell.best.estimate
    colour = OUTCOME_COLOURS[cell.outcome]
    seen = [best.ratio]
    for peer in matrix.plan.peers:
        result = matrix.result(cell.row.name, peer)
        if result is None or result.estimate is None:
            continue
        ratio = result.estimate.ratio
        seen.append(ratio)
        if peer == "glibc":
            axes.plot(ratio, place, "D", color=BLACK, markerfacecolor="white", markersize=4, zorder=3)
        elif peer != cell.best.peer:
            axes.plot(ratio, place, "|", color=GREY, markersize=6, zorder=2)
    axes.plot([best.low, best.high], [place, place], color=colour, linewidth=1.6, zorder=4)
    axes.plot(best.ratio, place, "o", color=colour, markersize=4, zorder=5)
    return seen


def heat_picture(matrix: Matrix) -> Picture | None:
    names = [one.row.name for one in matrix.cells]
    peers = matrix.plan.peers
    results = {(name, peer): matrix.result(name, peer) for name in names for peer in peers}
    known = {place: one.estimate.ratio for place, one in results.items() if one and one.estimate}
    if not known:
        return None
    values = np.array([[np.log2(known.get((name, peer), np.nan)) for peer in peers] for name in names])
    figure = _figure(3.2 + 0.62 * len(peers), 1.3 + 0.2 * len(names))
    axes = figure.add_subplot()
    colours = mpl.colormaps["RdBu"].with_extremes(bad="#DDDDDD")
    axes.imshow(np.ma.masked_invalid(values), cmap=colours, vmin=-2.5, vmax=2.5, aspect="auto")
    for (name, peer), result in results.items():
        ratio = known.get((name, peer))
        text = short_failure(result.failure) if ratio is None and result else ""
        if ratio is not None:
            text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
        dark = ratio is not None and abs(np.log2(ratio)) > 1.6
        colour = "white" if dark else BLACK
        axes.text(
            peers.index(peer), names.index(name), text, ha="center", va="center", color=colour, fontsize=7
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks(range(len(peers)), peers, rotation=35, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    caption = "hakmem's speed over each peer's: blue, above one, hakmem is faster; red, below one, slower."
    return Picture("peers", "Every workload and peer", caption, figure)


def _panels(matrix: Matrix, rows: Sequence[str], height: float) -> tuple[Figure, list[Axes]]:
    columns = min(3, len(rows))
    lines = -(-len(rows) // columns)
    figure = _figure(8.5 if columns == 3 else 4.2 * columns, 0.5 + height * lines)
    axes = [figure.add_subplot(lines, columns, place + 1) for place in range(len(rows))]
    drawn = [arm for arm in (matrix.plan.subject, *matrix.plan.peers) if arm in NAMED]
    handles = [
        Line2D([], [], color=NAMED[arm], linewidth=2 if arm == "hakmem" else 1.2, label=arm) for arm in drawn
    ]
    if set(matrix.plan.peers) - NAMED.keys():
        handles.append(Line2D([], [], color=GREY, linewidth=0.8, label="others"))
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return figure, axes


def _observed(matrix: Matrix, row: str) -> list[tuple[str, Sample]]:
    """Those without a name first, so that the others are drawn over them, hakmem last."""
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
    """Where hakmem's tail is longest beside the shortest of the others."""

    def tail(row: str, arm: str) -> float | None:
        sample = matrix.observed.get((row, arm))
        return sample.latency_p999_ns if sample else None

    def excess(row: str) -> float:
        others = [value for peer in matrix.plan.peers if (value := tail(row, peer))]
        own = tail(row, matrix.plan.subject)
        return own / min(others) if own and others else 0.0

    rows = [row.name for row in matrix.plan.rows if not row.control and excess(row.name) > 0]
    rows = sorted(rows, key=excess, reverse=True)[:PANELS_MAX]
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
    caption = "Latency of single operations, with instruments: where hakmem's p99.9 is longest beside the shortest peer's."
    return Picture("latency", "Latency tails", caption, figure)


def faults_picture(matrix: Matrix) -> Picture | None:
    """Rows in which somebody takes a thousand, largest beside glibc's first."""
    faults = {(one.row.name, one.against): one.peer_faults for one in matrix.results if one.estimate}
    own = {one.row.name: one.subject_faults for one in matrix.results if one.estimate}

    def excess(name: str) -> float:
        others = [value for (row, _), value in faults.items() if row == name]
        return (1 + own[name]) / (1 + faults.get((name, "glibc"), min(others)))

    names = [
        row.name
        for row in matrix.plan.rows
        if row.name in own
        and max([own[row.name], *(faults.get((row.name, peer), 0) for peer in matrix.plan.peers)]) >= 1000
    ]
    names = sorted((name for name in names), key=excess, reverse=True)
    if not names:
        return None
    figure = _figure(8.5, 1.1 + 0.22 * len(names))
    axes = figure.add_subplot()
    for place, name in enumerate(names):
        for peer in matrix.plan.peers:
            count = faults.get((name, peer))
            if count is None:
                continue
            if peer == "glibc":
                axes.plot(count + 1, place, "D", color=BLACK, markerfacecolor="white", markersize=4, zorder=3)
            else:
                axes.plot(count + 1, place, "|", color=GREY, markersize=6, zorder=2)
        axes.plot(own[name] + 1, place, "o", color=BLUE, markersize=4.5, zorder=4)
    _names_axis(axes, names)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("page faults of one run")
    handles = [
        Line2D([], [], color=BLUE, marker="o", ls="", markersize=4.5, label="hakmem"),
        Line2D([], [], color=BLACK, marker="D", markerfacecolor="white", ls="", markersize=4, label="glibc"),
        Line2D([], [], color=GREY, marker="|", ls="", label="other peers"),
    ]
    _legend_above(figure, handles)
    caption = (
        "Page faults of a run, medians, where any allocator takes a thousand; most beside glibc's first."
    )
    return Picture("faults", "Page faults", caption, figure)
