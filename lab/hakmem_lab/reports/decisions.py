"""What the adaptive cache engine (ACE) decided, in words: the last decisions, where each size settled, how often
and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from hakmem_lab.grid import Grid
from hakmem_lab.sight.decisions import Decision, Look, decision_content
from hakmem_lab.sight.sizes import count_text, size_text

FORM = "1.0"
"""Version of the JSON: the first number grows when something is removed or changes its meaning."""
SECOND_MS = 1000
PAGE_BYTES = 1 << 16
DECISIONS_SHOWN = 40


def times_text(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def duration_text(ms: int) -> str:
    """With three digits, where it is long."""
    if ms < SECOND_MS:
        return f"{ms} ms"
    for unit, factor in (("s", SECOND_MS), ("min", 60 * SECOND_MS)):
        if ms < 100 * factor:
            return f"{ms / factor:.3g} {unit}"
    hours = ms / (3600 * SECOND_MS)
    return f"{hours:.3g} h" if hours < 100 else f"{hours:.0f} h"


def _misses(inputs: Mapping[str, int]) -> str:
    ends = [("empty", inputs["refills"]), ("full", inputs["spills"])]
    return "ran " + " and ".join(f"{end} {times_text(count)}" for end, count in ends if count)


def _of_budget(inputs: Mapping[str, int]) -> str:
    return f"the thread's bins were sized for {size_text(inputs['sized_bytes'])} of {size_text(inputs['budget_bytes'])}"


def _used(inputs: Mapping[str, int]) -> str:
    return f"{size_text(inputs['used_bytes'])} of {size_text(inputs['limit_bytes'])} in use"


def _kept(inputs: Mapping[str, int]) -> str:
    return f"it keeps {size_text(inputs['held_bytes'])}, of which {size_text(inputs['touched_bytes'])} were touched"


def _pages(count: int) -> str:
    return size_text(count * PAGE_BYTES)


WHY: Mapping[str, Callable[[Mapping[str, int]], str]] = {
    "batch": lambda one: f"{_misses(one)}: larger batches cost less a block",
    "swing": lambda one: f"took {one['refilled_blocks']} blocks and gave {one['spilled_blocks']} back",
    "made_room": lambda one: f"another bin wanted {size_text(one['wanted_bytes'])}; {_of_budget(one)}",
    "over_budget": _of_budget,
    "no_budget": lambda one: f"{size_text(one['wanted_bytes'])} more were wanted; {_of_budget(one)}",
    "no_memory": lambda one: f"no memory for a stack of {size_text(one['wanted_bytes'])} more in blocks",
    "retaken": lambda one: (
        f"of {_pages(one['returned_pages'])} given back lately {_pages(one['retaken_pages'])} were used again"
    ),
    "quiet": lambda one: f"nothing was used again for {duration_text(one['quiet_ms'])}",
    "forgotten": lambda _one: "the program sleeps, or was forked: what was learned is forgotten",
    "sleeps": lambda one: f"nobody allocated or freed for {duration_text(one['idle_ms'])}",
    "works": lambda _one: "somebody allocates or frees again",
    "limit": lambda one: f"near the control group's limit: {_used(one)}",
    "high": lambda one: f"near the control group's high mark: {_used(one)}",
    "stalls": lambda one: f"programs waited for memory {one['stalled'] / 100:.0f} % of the time",
    "relieved": lambda _one: "there is enough memory again",
    "above": lambda one: f"above the soft limit: {_used(one)}",
    "below": lambda _one: "below the soft limit again",
    "worth_it": lambda one: (
        f"{size_text(one['returnable_bytes'])} could go back, {size_text(one['mark_bytes'])} are worth a thread"
    ),
    "nothing_left": lambda one: f"{size_text(one['returnable_bytes'])} could go back",
    "in_use": lambda one: (
        f"{_pages(one['used_pages'])} in use, and {_pages(one['from_pages'])} are enough to ask for them"
    ),
    "untouched": lambda one: (
        f"of {size_text(one['used_bytes'])} in use that were looked at {size_text(one['touched_bytes'])} were touched"
    ),
    "resident": lambda one: (
        f"collapsed: {size_text(one['missing_bytes'])} of it were never touched, {size_text(one['brought_bytes'])} of all so far"
    ),
    "touched": _kept,
    "hardly_touched": _kept,
}
"""By reason: what the decision was based on."""


def what_text(one: Decision) -> str:
    """What was decided."""
    change = f"{one.before} -> {one.after}"
    if one.kind == "depth":
        bin_text = f"thread {one.thread_id}: {one.block_bytes}-byte bin"
        return f"{bin_text} stays at {one.after} blocks" if one.is_refusal else f"{bin_text} {change} blocks"
    if one.kind == "half_life":
        return f"half-life {duration_text(one.before)} -> {duration_text(one.after)}"
    if one.kind == "kept":
        return f"thread {one.thread_id}: medium blocks {change} times their budget"
    if one.kind == "huge_pages" and one.is_refusal:
        return "no more huge pages are asked for"
    if one.kind == "huge_pages":
        return f"huge pages asked for in {_pages(one.before)} -> {_pages(one.after)}"
    words = {
        "pace": ("free memory decays as the program works", "all that is free decays"),
        "pressure": ("what is free decays", "all that is free goes back at once"),
        "soft_limit": ("what is free decays", "all that is free goes back at once"),
        "purge_thread": ("the purge thread ended", "a purge thread started"),
    }
    return words[one.kind][one.after != 0] if one.kind in words else f"{one.kind} {change}"


def why_text(one: Decision) -> str:
    try:
        return WHY[one.reason](one.inputs)
    except KeyError:  # of a newer hakmem
        inputs = ", ".join(f"{name} {value}" for name, value in one.inputs.items())
        return one.reason + (f" ({inputs})" if inputs else "")


def sentence(one: Decision) -> str:
    return f"{what_text(one)}: {why_text(one)}"


def last_grid(look: Look) -> Grid:
    """The newest at the end, next to the prompt."""
    last = look.decisions.last[-DECISIONS_SHOWN:]
    return Grid(
        title=f"{look.of}: the last {len(last)} of {count_text(look.decisions.made, 'decision')}",
        columns=("decision", "at", "what and why"),
        rows=tuple((str(one.number), duration_text(one.time_ms), sentence(one)) for one in last),
        text_columns=3,
    )


def settled_grid(look: Look) -> Grid:
    return Grid(
        title="Where each size of blocks settled",
        columns=("size", "decided", "blocks a thread keeps at most", "as bytes"),
        rows=tuple(
            (
                f"{one.block_bytes} B",
                ", ".join(f"{reason} {count}" for reason, count in one.reasons.items()),
                "unknown" if one.depth is None else str(one.depth),
                "" if one.depth is None else size_text(one.depth * one.block_bytes),
            )
            for one in look.settled
            if one.reasons
        ),
        text_columns=2,
    )


def counts_grid(look: Look) -> Grid:
    return Grid(
        title="How often, and why",
        columns=("about", "reason", "times"),
        rows=tuple(
            (kind, reason, str(times)) for (kind, reason), times in look.decisions.counts.items() if times
        ),
        text_columns=2,
    )


def decisions_lines(look: Look, when: str) -> list[str]:
    lines = [when] if when else []
    kept = len(look.decisions.last)
    if look.decisions.made > kept:
        lines.append(f"Of {look.decisions.made} decisions the last {kept} are kept.")
    if not look.decisions.made:
        lines.append("Nothing was decided: everything is as it was at the start.")
    others = sum(not one.reasons for one in look.settled)
    if others:
        lines.append(f"Of {count_text(others, 'other size')} no decision is kept: most are as at the start.")
    half_life = look.half_life_ms
    lines.append(
        "Free memory never goes back."
        if half_life is None
        else f"The half-life is {duration_text(half_life)}."
    )
    return lines


def decisions_content(look: Look, seconds: float | None) -> dict[str, object]:
    return {
        "form": FORM,
        "of": look.of,
        "program": look.program,
        "hakmem": look.library,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds_after_start": seconds,
        "half_life_ms": look.half_life_ms,
        "made": look.decisions.made,
        "counts": [
            {"kind": kind, "reason": reason, "times": times}
            for (kind, reason), times in look.decisions.counts.items()
            if times
        ],
        "last": [{**decision_content(one), "text": sentence(one)} for one in look.decisions.last],
        "settled": [
            {"block_bytes": one.block_bytes, "depth": one.depth, "reasons": dict(one.reasons)}
            for one in look.settled
        ],
    }
