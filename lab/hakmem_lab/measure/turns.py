"""Processes that take turns: each of those that are compared runs for some milliseconds while the others are stopped.

A virtual machine's speed changes within seconds, by half and more. What runs one after the other meets different machines;
what takes turns meets the same. docs/decisions/0101-compared-processes-take-turns.md has the numbers.

Every process has a clock of its own, which stands still while it is stopped (bench/turn_clock.h). It is exact to the few ten
microseconds that a stop and a start take, which are alike for all.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from hakmem_lab.errors import LabError
from hakmem_lab.measure.tree import UNSEEN, descendants_of, kernel_check, stat_fields, tree_kill

TURN_SECONDS = 0.01, 0.05
"""Short beside what changes the machine's speed; long beside what it takes to fill a processor's caches again, which grows with
the memory that is used."""
SHORT_KIB = 2048
"""A process that holds this much has turns of the shortest kind; the others' are longer by as much as they hold more."""
VARIABLE = "LAB_TURNS"
ENDED = frozenset("ZX")
STOPPED = ENDED | frozenset("DTt")
"""States in which a process takes no processor time: one that waits for the kernel stops as soon as that is done."""
STOP_SECONDS = 5.0
"""A process that is in a call to the kernel for this long is left to end it."""

T = TypeVar("T")


class Seat:
    """One process's place among those that take turns, from before it starts until it has ended. Used by the thread that runs the
    process and by the one that gives the turns."""

    def __init__(self, places: int) -> None:
        self.places = places
        """How many take turns: a run takes up to this many times as long."""
        self.hung = False
        """It was killed, since it ran for longer than its limit."""
        self._clock = os.memfd_create("turns")
        os.ftruncate(self._clock, mmap.PAGESIZE)
        self._page = mmap.mmap(self._clock, mmap.PAGESIZE)
        self._stopped_ns = 0
        self._stopped_at = 0
        self._limit = threading.TIMEOUT_MAX
        self._ran = 0.0
        self._tree: list[int] = []
        self._pid = 0
        self._cancelled = False
        self._first_turn = threading.Event()
        self._started = threading.Event()
        """Its process runs, or will never."""
        self._over = threading.Event()

    @property
    def environment(self) -> dict[str, str]:
        """As long for every process, whatever the number is."""
        return {VARIABLE: f"{self._clock:06d}"}

    @property
    def descriptors(self) -> tuple[int, ...]:
        """That the process inherits."""
        return (self._clock,)

    def limit(self, own: float) -> float:
        """Of a process that may take OWN seconds of its own: the seconds within which it has ended, or is killed."""
        self._limit = own
        return own * (self.places + 1)

    def started(self, pid: int) -> None:
        """Its process, a child of this one, runs."""
        self._pid = pid
        self._started.set()
        if self._cancelled:
            tree_kill(pid)

    def work(self, run: Callable[[Seat], None]) -> None:
        """RUN, from the first turn on."""
        self._first_turn.wait()
        try:
            if not self._cancelled:
                run(self)
        finally:
            self._over.set()
            self._started.set()

    def go(self, seconds: float) -> bool:
        """A turn. Whether it has ended."""
        self._resume()
        if not self._first_turn.is_set():
            self._first_turn.set()
            self._started.wait()
        began = time.monotonic()
        if self._over.wait(min(seconds, max(0.0, self._limit - self._ran))):
            return True
        self._ran += time.monotonic() - began
        if self._ran >= self._limit:
            self.hung = True
            tree_kill(self._pid)
        elif self._stop():
            return False
        self._resume()
        self._over.wait()  # it has ended, and is being asked for its result
        return True

    def cancel(self) -> None:
        self._cancelled = True
        self._first_turn.set()
        if self._pid and not self._over.is_set():
            tree_kill(self._pid)

    def close(self) -> None:
        self._page.close()
        os.close(self._clock)

    def _stop(self) -> bool:
        """With all that it started; false if it has ended. What it still does in the kernel before it stops is its own time."""
        self._tree = []
        others: set[int] = set()  # that cannot be stopped: ended, or another user's
        new = [self._pid, *descendants_of(self._pid)]
        late = time.monotonic() + STOP_SECONDS
        while new or any(_state_of(pid) not in STOPPED for pid in self._tree):
            for pid in new:
                try:
                    os.kill(pid, signal.SIGSTOP)
                    self._tree.append(pid)
                except (ProcessLookupError, PermissionError):
                    others.add(pid)
            if time.monotonic() > late:
                break
            new = [pid for pid in descendants_of(self._pid) if pid not in others and pid not in self._tree]
        self._stopped_at = time.monotonic_ns()
        return _state_of(self._pid) not in ENDED

    def _resume(self) -> None:
        if not self._stopped_at:
            return
        self._stopped_ns += time.monotonic_ns() - self._stopped_at
        self._page[:8] = struct.pack("=Q", self._stopped_ns)
        self._stopped_at = 0
        for pid in reversed(self._tree):
            with suppress(
                ProcessLookupError, PermissionError
            ):  # it was killed meanwhile, or is another user's by now
                os.kill(pid, signal.SIGCONT)


def _state_of(pid: int) -> str:
    with suppress(*UNSEEN, IndexError):  # it is gone
        return stat_fields(pid)[0]
    return "X"


class _Job(Generic[T]):
    def __init__(self, run: Callable[[Seat], T], places: int) -> None:
        self.seat = Seat(places)
        self.thread = threading.Thread(target=self.seat.work, args=(self._work,), daemon=True)
        self._run = run
        self._result: T | None = None
        self._error: BaseException | None = None

    def _work(self, seat: Seat) -> None:
        try:
            self._result = self._run(seat)
        except BaseException as error:
            self._error = error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # None only where RUN returns that


def turn_seconds(held_kib: int | None) -> float:
    """Of processes that hold this much memory; None: it is not known."""
    shortest, longest = TURN_SECONDS
    return min(longest, shortest * max(1.0, (held_kib or 0) / SHORT_KIB))


def turns_take(runs: Sequence[Callable[[Seat], T]], seconds: float = TURN_SECONDS[0]) -> list[T]:
    """Runs all of RUNS, each of which starts one process at its seat, in turns of SECONDS, and returns their results. They start in this
    order; later turns are in random order. The first error of theirs is raised when all have ended; if the user interrupts, all are
    killed."""
    kernel_check()
    jobs: list[_Job[T]] = []
    try:
        for run in runs:  # one by one: those before one that cannot be made are closed
            jobs.append(_Job(run, len(runs)))
        for job in jobs:
            job.thread.start()
        left = list(jobs)
        while left:
            for job in list(left):
                if job.seat.go(seconds if len(left) > 1 else threading.TIMEOUT_MAX):
                    left.remove(job)
            random.shuffle(left)
    except BaseException as error:
        for job in jobs:
            job.seat.cancel()
        if isinstance(error, OSError):
            raise LabError(f"processes cannot take turns: {error.strerror}") from error
        raise
    finally:
        for job in jobs:
            if job.thread.ident is not None:
                job.thread.join()
            job.seat.close()
    return [job.result() for job in jobs]
