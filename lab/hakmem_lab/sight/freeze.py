"""A profile file that starts a program with what the engine settled on, and keeps it there."""

from __future__ import annotations

import time
from collections.abc import Iterator

from hakmem_lab.errors import LabError
from hakmem_lab.sight.config import FILE_BYTES_MAX
from hakmem_lab.sight.decisions import DEPTH, HALF_LIFE, Look
from hakmem_lab.sight.sizes import count_text, size_text

DECAY_MAX_MS = 3_600_000
"""Of the option; the engine may go beyond it."""
CARRIED = ("objective", "thread_cache", "huge_pages", "populate")
"""Options that are written if they are not at their default, and do not follow the objective."""


def profile_text(look: Look) -> str:
    text = "\n".join(_lines(look)) + "\n"
    if len(text.encode()) > FILE_BYTES_MAX:
        raise LabError(f"the profile would be {len(text.encode())} bytes long, and {FILE_BYTES_MAX} are read")
    return text


def _lines(look: Look) -> Iterator[str]:
    decisions = look.decisions
    program = "".join(letter if " " <= letter <= "~" else "?" for letter in look.program)
    yield f"# hakmem {look.library}: where the engine that adapts settled in {program}."
    yield (
        f"# Frozen {time.strftime('%Y-%m-%d', time.gmtime())} by ./hakmem explain --decisions --freeze, after"
        f" {count_text(decisions.made, 'decision')}."
    )
    yield "adapt = off                     # these values stay"
    yield from _depth_lines(look)
    yield from _half_life_lines(look)
    for name in CARRIED:
        value, source = look.options.get(name, ("", "default"))
        if source not in ("default", "objective"):
            line = f"{name} = {value}"
            yield f"{line:<31} # as it was: {source}"


def _depth_lines(look: Look) -> Iterator[str]:
    depths = [(one.block_bytes, one.depth) for one in look.settled if one.depth]  # 0: as without a line
    if not depths:
        return
    about = [one for one in look.decisions.last if one.kind == DEPTH]
    threads = {one.thread_id for one in about}
    total = size_text(sum(size * depth for size, depth in depths))
    yield (
        f"# {count_text(len(depths), 'size')}, {total} a thread at most, by {count_text(len(about), 'decision')} about"
        f" {count_text(len(threads), 'thread')}; of each size the deepest bin:"
    )
    yield "bin_depth = " + "+".join(f"{size}:{depth}" for size, depth in depths)


def _half_life_lines(look: Look) -> Iterator[str]:
    about = [one for one in look.decisions.last if one.kind == HALF_LIFE]
    reached = look.half_life_reached_ms
    value = "never" if reached is None else f"{min(reached, DECAY_MAX_MS)}ms"
    yield f"decay = {value:<23} # the half-life, by {count_text(len(about), 'decision')}"
