"""Progress of a long run, and how long it still takes: a bar on a terminal, a line for each row elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

Step = Callable[[str, float], None]


def duration_text(seconds: float) -> str:
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min"


@contextmanager
def progress_shown(what: str, names: int, seconds: float) -> Iterator[Step]:
    """SECONDS are planned in all; the time left follows from how well the plan was kept so far."""
    began = time.monotonic()
    done = 0.0
    seen: list[str] = []

    def left() -> float:
        elapsed = time.monotonic() - began
        return (seconds - done) * (elapsed / done if done else 1.0)

    def counted(name: str, planned: float) -> bool:
        """Whether this name is reported for the first time."""
        nonlocal done
        done += planned
        if name in seen:
            return False
        seen.append(name)
        return True

    if not sys.stderr.isatty():

        def line(name: str, planned: float) -> None:
            if counted(name, planned):
                text = f"hakmem: {what} {len(seen)} of {names}: {name}; {duration_text(left())} left"
                print(text, file=sys.stderr, flush=True)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task(what, total=seconds, left=f"{duration_text(seconds)} left")

        def advance(name: str, planned: float) -> None:
            counted(name, planned)
            text = f"{what} {len(seen)}/{names}: {name}"
            shown.update(bar, completed=done, description=text, left=f"{duration_text(left())} left")

        yield advance
