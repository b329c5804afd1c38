"""What the adaptive cache engine (ACE) decided: in a running process from its metadata, or from a report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING
from hakmem_lab.sight.books import NEVER, Books
from hakmem_lab.sight.books_reader import books_read
from hakmem_lab.sight.memory import making_sense, memory_open
from hakmem_lab.sight.page import Page, pages_find, record_at
from hakmem_lab.sight.process import Process
from hakmem_lab.sight.ring import ring_rows

DEPTH, HALF_LIFE = "depth", "half_life"
"""Kinds of decisions."""
INPUTS = ("input0", "input1", "input2")
FORM_MAJOR = "1"
"""Version of the statistics as JSON."""


@dataclass(frozen=True)
class Decision:
    number: int
    """From 1, in the order in which they were made."""
    time_ms: int
    """Since the start of the process."""
    kind: str
    reason: str
    thread_id: int
    """The thread that it is about; 0: the process."""
    block_bytes: int | None
    """Block size, for a depth."""
    before: int
    after: int
    inputs: Mapping[str, int]
    """What it was based on."""

    @property
    def is_refusal(self) -> bool:
        return self.before == self.after


@dataclass(frozen=True)
class Decisions:
    counts: Mapping[tuple[str, str], int]
    """How many, by kind and reason."""
    last: tuple[Decision, ...]
    """In their order."""

    @property
    def made(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Settled:
    """One size of blocks: where the engine left it."""

    block_bytes: int
    depth: int | None
    """In blocks, for the thread with the deepest bin; None: unknown."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """How often, by reason, among the decisions that are kept."""


@dataclass(frozen=True)
class Look:
    """What is known of the decisions of one copy of hakmem."""

    of: str
    """The process or file that they belong to, in words."""
    program: str
    library: str
    """hakmem's version."""
    decisions: Decisions
    depths: Mapping[int, int]
    """Blocks that the deepest bin of a living thread may hold, by block size; empty if that is unknown."""
    half_life_ms: int | None
    """In force now; None: free memory is never returned to the kernel."""
    options: Mapping[str, tuple[str, str]]
    """Value and source, by name."""

    @property
    def settled(self) -> list[Settled]:
        return settled_find(self.decisions.last, self.depths)

    @property
    def half_life_reached_ms(self) -> int | None:
        """What it learned, whether or not it was forgotten since: a program that sleeps starts anew. A half-life set after
        the last decision wins."""
        about = [one for one in self.decisions.last if one.kind == HALF_LIFE]
        if about and about[-1].after != self.half_life_ms:
            return self.half_life_ms
        learned = [one.after for one in about if one.reason != "forgotten"]
        return learned[-1] if learned else self.half_life_ms


def settled_find(decisions: Sequence[Decision], depths: Mapping[int, int]) -> list[Settled]:
    """By size. A thread that ended took its bins along; for those the last decision is all that is known."""
    reasons: dict[int, Counter[str]] = {}
    final: dict[tuple[int, int], int] = {}
    for one in decisions:
        if one.kind == DEPTH and one.block_bytes is not None:
            reasons.setdefault(one.block_bytes, Counter())[one.reason] += 1
            final[one.block_bytes, one.thread_id] = one.after
    deepest = dict(depths)
    for (size, _thread), depth in final.items():
        deepest[size] = max(deepest.get(size, 0), depth)
    return [
        Settled(size, deepest.get(size), reasons.get(size, Counter()))
        for size in sorted({*deepest, *reasons})
    ]


# ---- of a process ------------------------------------------------------------------------------------------


def decisions_read(page: Page, books: Books) -> Decisions:
    with making_sense(page.memory.process):
        return _decisions_read(page, [one.block_bytes for one in books.classes])


def _decisions_read(page: Page, sizes: Sequence[int]) -> Decisions:
    """SIZES: block sizes of the classes."""
    kinds = page.strings("decision_kinds", "name")
    reasons = [record_at(page.array("reasons"), place) for place in range(page.table("reasons").count)]
    string = page.memory.string
    names = [string(reason["name"]) for reason in reasons]
    inputs = [[string(reason[one]) for one in INPUTS] for reason in reasons]
    kind_of = [kinds[reason["kind"]] for reason in reasons]
    counts = page.array("decision_counts")["count"].tolist()
    last = tuple(
        Decision(
            number=row["number"],
            time_ms=row["time_ms"],
            kind=kind_of[row["reason"]],
            reason=names[row["reason"]],
            thread_id=row["thread_id"],
            block_bytes=sizes[row["class"]] if kind_of[row["reason"]] == DEPTH else None,
            before=row["from"],
            after=row["to"],
            inputs={name: row[one] for name, one in zip(inputs[row["reason"]], INPUTS, strict=True) if name},
        )
        for row in ring_rows(page, "decisions")
    )
    times = {(kind, name): count for kind, name, count in zip(kind_of, names, counts, strict=True)}
    return Decisions(times, last)


def depths_read(page: Page, sizes: Sequence[int]) -> dict[int, int]:
    """How many blocks the deepest bin of a thread may hold, by block size, for sizes that were used. What a thread
    left waits for the next one, or is as at the start."""
    depths: dict[int, int] = {}
    for address, _heap in page.linked("heaps"):
        bins = page.inside("bins", address)
        used = (bins["refills"] != 0) | (bins["spills"] != 0)
        for size, depth in zip(np.array(sizes)[used].tolist(), bins["depth"][used].tolist(), strict=True):
            depths[size] = max(depths.get(size, 0), depth)
    return depths


def looks_of_process(process: Process) -> list[Look]:
    """For each copy of hakmem in it."""
    with memory_open(process) as memory:
        return [_look_of_page(page) for page in pages_find(memory, process.mappings())]


def _look_of_page(page: Page) -> Look:
    books = books_read(page)
    process = page.memory.process
    decisions = decisions_read(page, books)
    with making_sense(process):
        depths = depths_read(page, [one.block_bytes for one in books.classes])
    return Look(
        of=f"process {process.pid}, {process.name} ({page.owner.rpartition('/')[2]})",
        program=process.name,
        library=page.library,
        decisions=decisions,
        depths=depths,
        half_life_ms=None if books.half_life_ms == NEVER else books.half_life_ms,
        options={one.name: (one.decided or one.value, one.source) for one in books.options},
    )


# ---- of a report -------------------------------------------------------------------------------------------


def look_of_report(path: Path) -> Look:
    """PATH: statistics as JSON, of the library or of `hakmem stats`."""
    try:
        content = json.loads(path.read_text(ENCODING))
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise LabError(f"{path} is no JSON: {error}") from error
    try:
        return _look_make(path, content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LabError(
            f"{path} holds no decisions: it is no report of hakmem's statistics, or of an older hakmem"
        ) from error


def _look_make(path: Path, content: Mapping[str, Any]) -> Look:
    if content["form"].partition(".")[0] != FORM_MAJOR:
        raise ValueError(content["form"])
    decisions = content["decisions"]
    half_life = content["half_life_ms"]
    return Look(
        of=f"{path}, of process {content['pid']} ({content['program']})",
        program=_word(content["program"]),
        library=_word(content["hakmem"]),
        decisions=Decisions(
            {(_word(one["kind"]), _word(one["reason"])): _count(one["times"]) for one in decisions["counts"]},
            tuple(decision_parse(one) for one in decisions["last"]),
        ),
        depths={},
        half_life_ms=None if half_life is None else _count(half_life),
        options={
            _word(one["name"]): (_word(one["value"]), _word(one["source"])) for one in content["options"]
        },
    )


def _count(value: object) -> int:
    """As the library counts; a report may hold anything."""
    if not isinstance(value, int) or not 0 <= value <= NEVER:
        raise TypeError(value)
    return value


def _word(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def decision_parse(content: Mapping[str, Any]) -> Decision:
    """In the form of the statistics."""
    block_bytes = content.get("block_bytes")
    return Decision(
        number=_count(content["number"]),
        time_ms=_count(content["time_ms"]),
        kind=_word(content["kind"]),
        reason=_word(content["reason"]),
        thread_id=_count(content.get("thread_id", 0)),
        block_bytes=None if block_bytes is None else _count(block_bytes),
        before=_count(content["from"]),
        after=_count(content["to"]),
        inputs={name: _count(value) for name, value in content["inputs"].items()},
    )


def decision_content(one: Decision) -> dict[str, Any]:
    """In the form of the statistics."""
    return {
        "number": one.number,
        "time_ms": one.time_ms,
        "kind": one.kind,
        "reason": one.reason,
        **({"thread_id": one.thread_id} if one.thread_id else {}),
        **({"block_bytes": one.block_bytes} if one.block_bytes is not None else {}),
        "from": one.before,
        "to": one.after,
        "inputs": dict(one.inputs),
    }
