"""The ceiling for a reader: the answer, the shares, what could not be served, a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl
from matplotlib.lines import Line2D

from hakmem_lab.files import json_write
from hakmem_lab.grid import Grid
from hakmem_lab.reports.drawing import (
    BLUE,
    GREY,
    ORANGE,
    STYLE,
    Picture,
    figure_make,
    legend_above,
    names_axis,
)
from hakmem_lab.reports.matrix_text import controls_grid, failures_grid
from hakmem_lab.reports.page import Page
from hakmem_lab.reports.report import ratio_text
from hakmem_lab.studies.ceiling import ALL, CEILING, NULL, Answer, Ceiling, Interval, Share, State

TITLE = "The ceiling: what hakmem's structure allows, and how much of it is reached"


def interval_text(interval: Interval | None) -> str:
    """In per cent."""
    if interval is None:
        return ""
    middle, low, high = (100 * value for value in (interval.middle, interval.low, interval.high))
    if not math.isfinite(high):
        return f"{middle:.0f} % (too few pairs)"
    return f"{middle:.0f} ({low:.0f} to {high:.0f}) %"


def answer_lines(ceiling: Ceiling) -> list[str]:
    """The first is the answer."""
    if not ceiling.answers:
        return ["Is it the structure or the checks? Not decided: no workload has a ceiling above it."]
    lines = [_answer_line(answer) for answer in ceiling.answers]
    void = [share.row.name for share in ceiling.shares if share.state is State.VOID]
    if void:
        lines.append(
            f"Void, since the ceiling is the slower one there or a control failed: {'; '.join(void)}. They are in no mean."
        )
    return lines


def _answer_line(answer: Answer) -> str:
    which = "all workloads" if answer.group == ALL else f"group {answer.group}"
    share = f"hakmem reaches {ratio_text(answer.share)} of its ceiling's speed over {answer.workloads}"
    if answer.checks is None:
        return f"Is it the structure or the checks ({which})? Not decided: {share}; too few could be divided."
    said = answer.word if answer.word == "not decided" else f"it is {answer.word}"
    return (
        f"Is it the structure or the checks ({which})? {said.capitalize()}: {share}; of the time that it takes beyond the"
        f" null allocator, {interval_text(answer.checks)} are checks, refills, spills and ownership, the rest the"
        f" structure ({answer.divided} could be divided)."
    )


def shares_grid(ceiling: Ceiling) -> Grid:
    percent = 100 * ceiling.matrix.plan.settings.confidence
    return Grid(
        "Shares of the ceiling, void ones and then the lowest first",
        (
            "workload",
            "group",
            "state",
            f"hakmem's speed over the ceiling's ({percent:g} %)",
            "checks, of the time beyond null",
            "ns: hakmem",
            "ceiling",
            "null",
            "workload's own share",
            "rounds",
        ),
        tuple(_share_row(share) for share in ceiling.shares),
        text_columns=3,
    )


def _share_row(share: Share) -> tuple[str, ...]:
    times = share.times
    state = (
        "void: the ceiling is slower"
        if share.state is State.VOID and share.share.low > 1
        else share.state.value
    )
    return (
        share.row.name,
        share.row.group,
        state,
        ratio_text(share.share),
        "" if share.state is State.VOID else interval_text(share.checks),
        f"{times.hakmem:.2f}",
        f"{times.ceiling:.2f}",
        f"{times.null:.2f}",
        f"{100 * times.null / times.hakmem:.0f} %",
        str(share.share.pairs),
    )


def others_grid(ceiling: Ceiling) -> Grid:
    """Other allocators' speeds as shares of the same ceiling, by medians of the same rounds."""
    matrix = ceiling.matrix
    others = [peer for peer in matrix.plan.peers if peer not in (CEILING, NULL)]
    valid = [share.row.name for share in ceiling.shares if share.state is not State.VOID]

    def entry(row: str, arm: str) -> str:
        speed = matrix.medians.get((row, arm))
        return "" if speed is None else f"{speed / matrix.medians[row, CEILING]:.2f}"

    arms = (matrix.plan.subject, *others)
    return Grid(
        "Everybody's speed as a share of hakmem's ceiling (medians)",
        ("workload", *arms),
        tuple((row, *(entry(row, arm) for arm in arms)) for row in valid) if others else (),
    )


def refused_grid(ceiling: Ceiling) -> Grid:
    return Grid(
        "Not served by the ceiling, so without a share",
        ("workload", "why"),
        tuple((name, why.removeprefix("not served: ")) for name, why in ceiling.matrix.plan.missing.items()),
        text_columns=2,
    )


def reading_lines(ceiling: Ceiling) -> list[str]:
    settings = ceiling.matrix.plan.settings
    return [
        "*The ceiling* is hakmem's own pop and push (heap/front.h, the same class table) without its checks, refills,"
        " spills and owners; its blocks, stacks and page words are made before main, as many as a counting run of the"
        " workload held. *The null allocator* hands a thread's one block of each class out again and again: what a workload"
        " takes on it is its own. What the counting run refuses is not served: sizes above 64 KiB, blocks that another"
        " living thread frees.",
        "All run in the same interleaved rounds, one fresh process each, in random order. A share is the Hodges-Lehmann"
        " estimate over the rounds with the interval that inverts the Wilcoxon signed rank test at"
        f" {100 * settings.confidence:g} %; *below* and *reached* are clear of the margin of {100 * settings.margin:g} %"
        " or within it, *open* is neither. Checks: (hakmem - ceiling) / (hakmem - null), round by round; not told where the"
        " workload's own time leaves less than the margin to divide. The mean over workloads has Student's interval.",
        "What is called checks holds page faults and the caches' misses on memory that refills bring in, too: the"
        " ceiling's memory is resident before it starts.",
    ]


def ceiling_picture(ceiling: Ceiling) -> Picture | None:
    """Each workload's time in three parts."""
    shares = [share for share in ceiling.shares if share.state is not State.VOID]
    if not shares:
        return None
    parts = {
        "the workload's own": (GREY, [share.times.null for share in shares]),
        "the structure": (BLUE, [max(0.0, share.times.ceiling - share.times.null) for share in shares]),
        "checks, refills, spills, ownership": (
            ORANGE,
            [max(0.0, share.times.hakmem - max(share.times.ceiling, share.times.null)) for share in shares],
        ),
    }
    with mpl.rc_context(STYLE):
        figure = figure_make(8.5, 1.1 + 0.24 * len(shares))
        axes = figure.add_subplot()
        wholes = [sum(values[place] for _, values in parts.values()) for place in range(len(shares))]
        left = [0.0] * len(shares)
        for colour, values in parts.values():
            widths = [100 * value / whole for value, whole in zip(values, wholes, strict=True)]
            axes.barh(range(len(shares)), widths, left=left, color=colour, height=0.7)
            left = [before + width for before, width in zip(left, widths, strict=True)]
        names_axis(axes, [share.row.name for share in shares])
        axes.set_xlim(0, 100)
        axes.set_xlabel("per cent of hakmem's time for one operation")
        handles = [
            Line2D([], [], color=colour, linewidth=5, label=name) for name, (colour, _) in parts.items()
        ]
        legend_above(figure, handles)
    caption = "Where an operation's time goes, by medians: workloads furthest below their ceiling first."
    return Picture("parts", "The parts of an operation's time", caption, figure)


def grids_of(ceiling: Ceiling) -> list[Grid]:
    return [
        shares_grid(ceiling),
        others_grid(ceiling),
        refused_grid(ceiling),
        failures_grid(ceiling.matrix),
        controls_grid(ceiling.matrix, failed_only=True),
    ]


def page_make(ceiling: Ceiling, samples: str) -> Page:
    picture = ceiling_picture(ceiling)
    grids = [*grids_of(ceiling)[:-1], controls_grid(ceiling.matrix)]
    pictures: Sequence[Picture] = [] if picture is None else [picture]
    source = ceiling.matrix.plan.source
    return Page(TITLE, source, answer_lines(ceiling), pictures, grids, reading_lines(ceiling), samples)


def ceiling_write(ceiling: Ceiling, path: Path) -> None:
    matrix = ceiling.matrix
    content = {
        "run": matrix.plan.run,
        "provenance": asdict(matrix.plan.source),
        "answers": [asdict(one) | {"word": one.word} for one in ceiling.answers],
        "shares": [
            {
                "workload": one.row.name,
                "group": one.row.group,
                "state": one.state.value,
                "share": asdict(one.share),
                "checks": one.checks and asdict(one.checks),
                "nanoseconds": asdict(one.times),
            }
            for one in ceiling.shares
        ],
        "not_served": dict(matrix.plan.missing),
    }
    json_write(path, content)
