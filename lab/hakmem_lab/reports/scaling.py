"""Scaling for a reader: whether cost stays flat, where it bends, how much of it is due to the caches, memory,
pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from hakmem_lab.files import json_write
from hakmem_lab.grid import Grid
from hakmem_lab.reports.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    STYLE,
    VERMILION,
    Picture,
    figure_make,
    legend_above,
)
from hakmem_lab.reports.matrix_text import controls_grid, failures_grid, speed_grid
from hakmem_lab.reports.page import Page
from hakmem_lab.studies.scaling import AXES, ENOUGH_ROUNDS, FLAT, THREADS, Cost, Figure, Line, Scaling

TITLE = "Scaling: threads, heap and block size"
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, BLACK)


def figure_text(figure: Figure | None, digits: int = 2) -> str:
    if figure is None:
        return ""
    return f"{figure.middle:.{digits}f} ({figure.low:.{digits}f} to {figure.high:.{digits}f})"


def nanoseconds_text(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def answer_lines(scaling: Scaling) -> list[str]:
    """A sentence about hakmem for each axis."""
    found = (scaling.line(axis, scaling.matrix.plan.subject) for axis in scaling.axes)
    return [_answer_line(line) for line in found if line is not None]


def absent_text(line: Line) -> str:
    return "; ".join(f"{point} ({why})" for point, why in line.absent.items())


def _answer_line(line: Line) -> str:
    said = _slope_text(line)
    return f"{said} {line.allocator} has no figure at {absent_text(line)}." if line.absent else said


def _slope_text(line: Line) -> str:
    axis = AXES[line.axis]
    if not line.costs:
        return f"{line.axis} ({axis.what}): there is no cost at any point."
    low, high = axis.text(line.costs[0].value), axis.text(line.costs[-1].value)
    head = f"{line.axis} from {low} to {high} ({axis.what}): "
    if line.whole is None:
        return f"{head}with fewer than three points there is no slope."
    percent = 100 * (FLAT - 1)
    parts = {
        "flat": f"flat within {percent:g} % for ten times as much",
        "grows": "cost grows",
        "falls": "cost falls",
        "open": "not decided whether flat",
        "void": "void, since a control failed",
        "not told": "not told",
    }
    said = f"{head}{parts[line.word]}. Ten times as much costs {figure_text(line.whole)} times as much"
    if line.kept is not None:
        said += f", {figure_text(line.kept)} times where the blocks are kept"
    if line.own is not None:
        said += f"; the allocator's own part {figure_text(line.own)} times"
    else:
        said += "; at some point the allocator's own part cannot be told from the caches'"
    if line.bend is not None:
        bend = line.bend
        said += (
            f". It bends most from {axis.text(bend.before)} to {axis.text(bend.after)}:"
            f" {figure_text(bend.times)} times"
        )
    fewest = line.fewest
    if fewest is not None and fewest.rounds < ENOUGH_ROUNDS:
        rounds = "1 round" if fewest.rounds == 1 else f"{fewest.rounds} rounds"
        said += f". At {axis.text(fewest.value)} there were only {rounds}: the intervals are narrower than they should be"
    return said + "."


def slopes_grid(scaling: Scaling) -> Grid:
    percent = 100 * scaling.matrix.plan.settings.confidence

    def row(line: Line) -> tuple[str, ...]:
        axis, bend = AXES[line.axis], line.bend
        where = (
            ""
            if bend is None
            else f"{axis.text(bend.before)} to {axis.text(bend.after)}: {figure_text(bend.times)}"
        )
        figures = (
            figure_text(line.whole),
            figure_text(line.kept),
            figure_text(line.own),
            where,
            absent_text(line),
            str(line.fewest.rounds) if line.fewest else "",
        )
        return (line.axis, line.allocator, line.word, *figures)

    return Grid(
        f"What ten times as much does to the cost of an operation ({percent:g} %)",
        (
            "axis",
            "allocator",
            "",
            "whole",
            "blocks kept",
            "allocator's own part",
            "largest step up",
            "no figure at",
            "fewest rounds",
        ),
        tuple(row(line) for line in scaling.lines),
        text_columns=3,
    )


def axis_grid(scaling: Scaling, axis: str) -> Grid:
    """A row for each point: the whole cost of each allocator, and their own parts."""
    lines = [line for line in scaling.lines if line.axis == axis]
    values = sorted({cost.value for line in lines for cost in line.costs})

    def entry(line: Line, value: int, tell: Callable[[Cost], str]) -> str:
        found = next((cost for cost in line.costs if cost.value == value), None)
        return "" if found is None else tell(found)

    def own_text(cost: Cost) -> str:
        if cost.own is None:
            return ""
        return nanoseconds_text(cost.own.middle) if cost.own_is_told else "not told"

    def row(value: int) -> tuple[str, ...]:
        return (
            AXES[axis].text(value),
            *(entry(line, value, lambda cost: nanoseconds_text(cost.whole.middle)) for line in lines),
            *(entry(line, value, own_text) for line in lines),
            *(
                entry(line, value, lambda cost: "" if cost.memory is None else f"{cost.memory:.2f}")
                for line in lines
            ),
        )

    names = [line.allocator for line in lines]
    columns = (*names, *(f"{name}: own" for name in names), *(f"{name}: memory" for name in names))
    return Grid(
        f"By {axis}: nanoseconds of a processor for an operation, of it the allocator's own part, and resident bytes for"
        " each live byte (medians)",
        (axis, *columns),
        tuple(row(value) for value in values),
    )


def refused_grid(scaling: Scaling) -> Grid:
    return Grid(
        "Not measured",
        ("point", "why"),
        tuple(scaling.matrix.plan.missing.items()),
        text_columns=2,
    )


def grids_of(scaling: Scaling) -> list[Grid]:
    return [
        slopes_grid(scaling),
        *(axis_grid(scaling, axis) for axis in scaling.axes),
        speed_grid(scaling.matrix),
        refused_grid(scaling),
        failures_grid(scaling.matrix),
        controls_grid(scaling.matrix, failed_only=True),
    ]


def reading_lines(scaling: Scaling) -> list[str]:
    settings = scaling.matrix.plan.settings
    return [
        "An operation frees the block in a random slot and puts a new one there, of three quarters of the size up to the size, drawn"
        " at run time; the first word of each block is written and read. *Blocks kept* is the same program with the same draws"
        " and the same accesses to slot and block, but the block stays: what it costs is the caches', the memory's and the"
        " loop's, and what it grows by no allocator can help. *The allocator's own part* is the difference of the two medians,"
        " *not told* where its interval reaches zero. It has whatever the allocator does to the caches, too.",
        "Costs are nanoseconds of a processor: the time of all threads, as far as there are processors for them, over the operations."
        f" This machine has {scaling.matrix.plan.source.processors}; with more threads than that the threads take turns, and what"
        " they do to each other at the same instant is not seen: for that see docs/results/sharing.md.",
        "All run in interleaved rounds of fresh processes, in random order. Slopes are least squares in logarithms over the points;"
        f" intervals ({100 * settings.confidence:g} %) draw the rounds of each point anew. Flat: within"
        f" {100 * (FLAT - 1):g} % for ten times as much. The verdicts on the speed against each peer are those of the matrix, with"
        " its controls.",
        "Memory is the peak of what was resident, without the slots, over what is live; above 4 KiB from runs of their own,"
        " in which every page of a block is written. The program itself, a mebibyte and a half, is in it: much beside a heap of 1 MiB.",
    ]


def scaling_picture(scaling: Scaling) -> Picture | None:
    """A panel for each axis: whole costs; dotted, what hakmem's runs cost with the blocks kept."""
    axes = [
        axis for axis in scaling.axes if any(len(one.costs) > 1 for one in scaling.lines if one.axis == axis)
    ]
    if not axes:
        return None
    names = list(dict.fromkeys(line.allocator for line in scaling.lines))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    with mpl.rc_context(STYLE):
        figure = figure_make(8.5, 3.4)
        panels = figure.subplots(1, len(axes), squeeze=False)[0]
        for panel, axis in zip(panels, axes, strict=True):
            for line in (one for one in scaling.lines if one.axis == axis and one.costs):
                values = [cost.value for cost in line.costs]
                middles = [cost.whole.middle for cost in line.costs]
                below = [cost.whole.middle - cost.whole.low for cost in line.costs]
                above = [cost.whole.high - cost.whole.middle for cost in line.costs]
                panel.errorbar(
                    values,
                    middles,
                    yerr=[[max(0.0, one) for one in below], [max(0.0, one) for one in above]],
                    color=colours[line.allocator],
                    marker="o",
                    markersize=3,
                    linewidth=1.2,
                )
                if line.allocator == scaling.matrix.plan.subject:
                    kept = [(cost.value, cost.kept.middle) for cost in line.costs if cost.kept is not None]
                    panel.plot(
                        [one for one, _ in kept], [one for _, one in kept], color=GREY, ls=":", linewidth=1.4
                    )
            panel.set_xscale("log", base=2 if axis == THREADS else 10)
            panel.set_yscale("log")
            panel.xaxis.set_minor_locator(NullLocator())
            panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            panel.yaxis.set_minor_locator(NullLocator())
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            shown = sorted({cost.value for one in scaling.lines if one.axis == axis for cost in one.costs})
            panel.set_xticks(shown, [AXES[axis].text(value) for value in shown], rotation=45, ha="right")
            panel.set_title(f"{axis}: {AXES[axis].what}")
        panels[0].set_ylabel("ns of a processor for an operation")
        handles = [
            Line2D([], [], color=colours[name], marker="o", markersize=3, label=name) for name in names
        ]
        handles.append(Line2D([], [], color=GREY, ls=":", label="blocks kept (hakmem's runs)"))
        legend_above(figure, handles)
    caption = "Cost of an operation along each axis, medians with their intervals, and what the same accesses cost without allocation."
    return Picture("costs", "Cost along each axis", caption, figure)


def page_make(scaling: Scaling, samples: str) -> Page:
    picture = scaling_picture(scaling)
    pictures: Sequence[Picture] = [] if picture is None else [picture]
    grids = [*grids_of(scaling)[:-1], controls_grid(scaling.matrix)]
    source = scaling.matrix.plan.source
    return Page(TITLE, source, answer_lines(scaling), pictures, grids, reading_lines(scaling), samples)


def scaling_write(scaling: Scaling, path: Path) -> None:
    content = {
        "run": scaling.matrix.plan.run,
        "provenance": asdict(scaling.matrix.plan.source),
        "lines": [asdict(line) | {"word": line.word} for line in scaling.lines],
        "not_measured": dict(scaling.matrix.plan.missing),
    }
    json_write(path, content)
