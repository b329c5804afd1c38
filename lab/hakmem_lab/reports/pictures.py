"""Pictures of a matrix, as self-contained SVG."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from hakmem_lab.reports.drawing import (
    BLACK,
    BLUE,
    GREY,
    STYLE,
    VERMILION,
    Picture,
    figure_make,
    legend_above,
    names_axis,
    ratio_axis,
)
from hakmem_lab.reports.matrix_text import short_failure
from hakmem_lab.reports.panels import latency_picture, memory_time_picture
from hakmem_lab.studies.judging import CellResult, Matrix, Outcome

OUTCOME_COLOURS = {
    Outcome.LOST: VERMILION,
    Outcome.VOID: GREY,
    Outcome.OPEN: GREY,
    Outcome.TIE: BLACK,
    Outcome.WON: BLUE,
}


def pictures_make(matrix: Matrix) -> list[Picture]:
    """The pictures for which there is something to show."""
    with mpl.rc_context(STYLE):
        made = [
            ratios_picture(matrix),
            heat_picture(matrix),
            memory_time_picture(matrix),
            latency_picture(matrix),
            faults_picture(matrix),
        ]
    return [picture for picture in made if picture is not None]


def ratios_picture(matrix: Matrix) -> Picture | None:
    cells = [one for one in matrix.cells if one.best]
    if not cells:
        return None
    figure = figure_make(8.5, 1.1 + 0.22 * len(cells))
    axes = figure.add_subplot()
    margin = matrix.plan.settings.margin
    axes.axvspan(1 / (1 + margin), 1 + margin, color="#EDEDED", linewidth=0)
    axes.axvline(1, color=BLACK, linewidth=0.7)
    ratios = [1.0]
    for place, cell in enumerate(cells):
        ratios += _ratio_row(axes, matrix, cell, place)
    names_axis(axes, [cell.row.name for cell in cells])
    ratio_axis(axes, min(ratios) / 1.15, max(ratios) * 1.15)
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
    legend_above(figure, handles)
    percent = 100 * matrix.plan.settings.confidence
    caption = (
        f"Each workload against the best of its peers, with its {percent:g} % interval, losses first. The grey band"
        f" is the margin.{_without_ratio(matrix)}"
    )
    return Picture("speed", "Speed", caption, figure)


def _without_ratio(matrix: Matrix) -> str:
    """The workloads that the picture of ratios does not show."""
    left = [f"{one.row.name} ({one.outcome.value}: {one.note})" for one in matrix.cells if not one.best]
    return f" Without a ratio: {'; '.join(left)}." if left else ""


def _ratio_row(axes: Axes, matrix: Matrix, cell: CellResult, place: int) -> list[float]:
    """The ratios that must be visible."""
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
    figure = figure_make(3.2 + 0.62 * len(peers), 1.3 + 0.2 * len(names))
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


def faults_picture(matrix: Matrix) -> Picture | None:
    """Rows in which any allocator takes a thousand; those largest compared with glibc first."""
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
    figure = figure_make(8.5, 1.1 + 0.22 * len(names))
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
    names_axis(axes, names)
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
    legend_above(figure, handles)
    caption = (
        "Page faults of a run, medians, where any allocator takes a thousand; most beside glibc's first."
    )
    return Picture("faults", "Page faults", caption, figure)
