"""Where the work goes, as tables and sentences."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from hakmem_lab.grid import Grid
from hakmem_lab.studies.where import ALLOCATOR, Change, Diff, FunctionCost, Where

FUNCTIONS_MAX = 20
CALLERS_MAX = 15
SAMPLES_MAX = 10


def functions_grid(where: Where) -> Grid:
    """The allocator's functions, and other code that takes as much as they do."""
    return Grid(
        f"Instructions by function, their own, for one {where.unit}: {where.task} under {where.arm}",
        ("of", "function", "instructions", "of all", "of the allocator's"),
        tuple(_function_row(where, one) for one in where.functions[:FUNCTIONS_MAX]),
        text_columns=2,
    )


def _function_row(where: Where, one: FunctionCost) -> tuple[str, ...]:
    inside = one.object == ALLOCATOR and where.allocator
    return (
        one.object,
        one.function,
        number_text(one.instructions),
        _percent(one.instructions / where.total),
        _percent(one.instructions / where.allocator) if inside else "",
    )


def spots_grid(where: Where) -> Grid:
    return Grid(
        f"The allocator's hottest instructions, for one {where.unit}",
        ("function", "line", "source", "instruction", "executed", "of all"),
        tuple(
            (
                spot.function,
                f"{spot.file}:{spot.line}" if spot.line else f"{spot.address:#x}",
                spot.source,
                spot.code,
                number_text(spot.instructions),
                _percent(spot.instructions / where.total),
            )
            for spot in where.spots
        ),
        text_columns=4,
    )


def kernel_grid(where: Where) -> Grid:
    work = (
        f"a run of {where.watched_operations} as the workload counts" if where.watched_operations else "a run"
    )
    callers = [*where.faults[:CALLERS_MAX], *where.calls[:CALLERS_MAX]]
    return Grid(
        f"Page faults and system calls of {work}, by caller",
        ("what", "who, innermost first", "how often"),
        tuple((one.what, one.who, str(one.count)) for one in callers),
        text_columns=2,
    )


def samples_grid(where: Where) -> Grid:
    return Grid(
        "Samples of time in user mode, by function",
        ("of", "function", "of all"),
        tuple((one.object, one.function, _percent(one.share)) for one in where.samples[:SAMPLES_MAX]),
        text_columns=2,
    )


def diff_grid(diff: Diff) -> Grid:
    unit = diff.after.unit
    return Grid(
        f"Instructions by function for one {unit} of {diff.after.task}, the largest change first",
        ("of", "function", diff.before.arm, side_name(diff), "change", "is"),
        tuple(
            (one.object, one.name, number_text(one.before), number_text(one.after), *_change_texts(one))
            for one in diff.functions[:FUNCTIONS_MAX]
        ),
        text_columns=2,
    )


def kernel_diff_grid(diff: Diff) -> Grid:
    return Grid(
        "Page faults and system calls by caller, the largest change first",
        ("what", "who, innermost first", diff.before.arm, side_name(diff), "change", "is"),
        tuple(
            (one.object, one.name, f"{one.before:.0f}", f"{one.after:.0f}", *_change_texts(one))
            for one in diff.kernel[:CALLERS_MAX]
        ),
        text_columns=2,
    )


def side_name(diff: Diff) -> str:
    """The name of the new arm; a table must not have two columns with one name."""
    return f"{diff.after.arm} (new)" if diff.before.arm == diff.after.arm else diff.after.arm


def _change_texts(one: Change) -> tuple[str, str]:
    return f"{one.difference:+.2f}", "dearer" if one.difference > 0 else "cheaper"


def number_text(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def grids_of(where: Where) -> list[Grid]:
    return [functions_grid(where), spots_grid(where), kernel_grid(where), samples_grid(where)]


# ---- sentences ----------------------------------------------------------------------------------------------


def where_lines(where: Where) -> list[str]:
    lines = [
        f"{where.task} under {where.arm}: {number_text(where.total)} instructions for one {where.unit},"
        f" {number_text(where.allocator)} of them the allocator's."
    ]
    own = [one for one in where.functions if one.object == ALLOCATOR]
    if own:
        share = own[0].instructions / where.total
        lines.append(
            f"A share is a hypothesis: were {own[0].function} free of charge, the instructions of all would be"
            f" {_percent(share)} fewer. Instructions are not time: an ab of a change tells what it brings."
        )
    return [*lines, *(f"Note: {note}." for note in where.notes)]


def change_command(what: Sequence[str]) -> str:
    """For a change that has not been made yet."""
    return shlex.join(["./hakmem", "ab", "hakmem@HEAD", "hakmem", *what])


def diff_lines(diff: Diff) -> list[str]:
    before, after = diff.before, diff.after
    percent = 100 * (diff.predicted - 1)
    lines = [
        f"{after.task}: {number_text(before.total)} instructions for one {after.unit} before, {number_text(after.total)} now;"
        f" of the allocator {number_text(before.allocator)} before, {number_text(after.allocator)} now."
    ]
    first = next((one for one in diff.functions if one.object == ALLOCATOR), None)
    if first is None:
        lines.append("No function of the allocator takes other instructions than before.")
    else:
        lines.append(
            f"The largest change in the allocator: {first.name}, {number_text(first.before)} before,"
            f" {number_text(first.after)} now. Were instructions time, its speed would change by {percent:+.1f} %: a hypothesis."
        )
    notes = dict.fromkeys((*before.notes, *after.notes))
    return [*lines, *(f"Note: {note}." for note in notes)]


def prediction_text(diff: Diff) -> str:
    """The change in speed, in the form that `ab --predict` accepts."""
    return f"{100 * (diff.predicted - 1):+.1f}%"


def confirm_command(diff: Diff, old: str, new: str, what: Sequence[str]) -> str:
    """The ab that would confirm it, with the prediction that follows from the instructions."""
    return shlex.join(["./hakmem", "ab", old, new, "--predict", prediction_text(diff), *what])
