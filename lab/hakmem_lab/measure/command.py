"""Any command under any allocator, in the user's own environment: all figures of what it cost."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hakmem_lab.errors import LabError
from hakmem_lab.measure.backing import Backing
from hakmem_lab.measure.launch import TOOL, Ended, Start, started
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.runner import Arm, Conditions, Measured, steal_ticks_read
from hakmem_lab.measure.service import Service, linker_records, service_judge
from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.tree import Watched, watching
from hakmem_lab.measure.turns import Seat
from hakmem_lab.workloads.cells import Measure

SHORT_SECONDS = 0.2
"""A shorter run is mostly start-up, and its noise is larger than the differences between allocators."""
RUN_SECONDS_MAX = 600.0


@dataclass(frozen=True)
class CommandTask:
    """The user's command, with the user's environment and folder; its input is a file or empty."""

    start: Start
    threads: int
    """The number of processors that it may use; how many it does use is not known."""
    run_seconds_max: float = RUN_SECONDS_MAX
    measure: Measure = Measure.TIME
    switches_are_noise: bool = False
    takes_turns: bool = False
    """Whether it waits by a clock, or cannot run twice at the same time, only the user knows."""
    backing: Backing = field(default_factory=Backing, compare=False)

    @property
    def name(self) -> str:
        return self.start.name

    @property
    def command(self) -> Sequence[str]:
        return self.start.command

    def run(self, arm: Arm, conditions: Conditions, seat: Seat | None = None) -> Measured:
        return self._measure(self.start, arm, conditions, seat=seat)[0]

    def observe(self, arm: Arm, conditions: Conditions) -> tuple[Measured, Service]:
        """A run that is watched from outside while the dynamic linker keeps a record: for memory over time and for
        the proof of service, not for time."""
        with linker_records(self.start.folder) as records:
            measured, watched = self._measure(self.start, arm, conditions, records.environment, watch=True)
            assert watched is not None
            return measured, service_judge(arm, watched, records.texts(), self.start.tool)

    def limited(self, seconds: float) -> CommandTask:
        """A run that takes longer than this counts as hung."""
        return replace(self, run_seconds_max=seconds)

    def repeated(self, count: int) -> CommandTask:
        """One operation is then COUNT runs in a row."""
        return replace(self, start=replace(self.start, repeat=count))

    def _measure(
        self,
        start: Start,
        arm: Arm,
        conditions: Conditions,
        extra: tuple[tuple[str, str], ...] = (),
        watch: bool = False,
        seat: Seat | None = None,
    ) -> tuple[Measured, Watched | None]:
        touch = self.backing.ready_at(seat)
        steal = steal_ticks_read()
        before = time.monotonic()
        with started(start, arm, conditions, extra, seat) as running:
            if watch:
                with watching(running.pid, start.tool, arm.peer.library) as watcher:
                    ended = running.wait(self.run_seconds_max)
                watched = watcher.watched()
            else:
                ended, watched = running.wait(self.run_seconds_max), None
        wall = time.monotonic() - before
        measured = measured_make(ended, start.repeat, wall, steal_ticks_read() - steal)
        measured = replace(measured, touch_us=touch, in_turns=seat is not None)
        self.backing.learn(measured.peak_rss_kib)
        if watched is not None:
            measured = replace(
                measured,
                rss_mean_kib=watched.rss_mean_kib,
                tree_peak_rss_kib=max(watched.tree_peak_rss_kib, ended.peak_rss_kib),
            )
        return measured, watched


def command_task(
    stage: Stage,
    command: Sequence[str],
    repeat: int = 1,
    stdin: Path | None = None,
    allow_status: int = 0,
    takes_turns: bool = False,
) -> CommandTask:
    """As the user would start it here, on every processor that the user may use."""
    if shutil.which(command[0]) is None:
        raise LabError(f"{command[0]}: there is no such command")
    if stdin is not None and not stdin.exists():
        raise LabError(f"{stdin}: there is no such file")
    if stdin is not None and not (stdin.is_file() or stdin.samefile(os.devnull)):
        raise LabError(f"{stdin} is not a regular file: each run must read the same from it")
    start = Start(
        tool=stage.program(TOOL),
        command=tuple(command),
        folder=stage.folder,
        users=dict(os.environ),
        stdin=stdin,
        repeat=repeat,
        allow_status=allow_status,
    )
    return CommandTask(start, threads=len(cpus_allowed()), takes_turns=takes_turns)


def measured_make(ended: Ended, ops: int, wall: float, steal: int) -> Measured:
    """Without a checksum: the output of a user's command may contain the time."""
    return Measured(
        ops=ops,
        seconds=ended.seconds,
        wall_seconds=wall,
        cpu_seconds=ended.cpu_seconds,
        peak_rss_kib=ended.peak_rss_kib,
        minor_faults=ended.minor_faults,
        major_faults=ended.major_faults,
        involuntary_switches=ended.involuntary_switches,
        steal_ticks=steal,
        checksum=None,
    )
