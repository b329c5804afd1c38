"""What all pictures share. Colours are those of Okabe and Ito, which the colour-blind can distinguish; important
information is also shown by position, weight or shape."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

BLUE, VERMILION, ORANGE, GREEN, BLACK, GREY = "#0072B2", "#D55E00", "#E69F00", "#009E73", "#000000", "#9A9A9A"
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


# Any: what Figure itself takes, which its stubs do not type either.
def figure_make(width: float, height: float, **more: Any) -> Figure:  # noqa: ANN401  # whatever matplotlib takes
    return Figure(figsize=(width, height), layout="constrained", **more)


def ratio_axis(axes: Axes, low: float, high: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    steps = (1.0, 2.0, 5.0) if high / low < 1000 else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=steps))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def names_axis(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)


def legend_above(figure: Figure, handles: Sequence[Line2D]) -> None:
    """In as few lines as fit the figure's width."""
    for lines in range(1, len(handles) + 1):
        columns = math.ceil(len(handles) / lines)
        legend = figure.legend(handles=list(handles), loc="outside upper left", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()
