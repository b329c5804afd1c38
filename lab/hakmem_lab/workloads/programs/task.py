"""A program file as a task: prepared once, then run under any arm.

Of a server only the server is on the allocator, and only the load is on the clock. Processor time, faults and
memory are the server's, from its start to its stop.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp

from hakmem_lab.allocators import elf
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError, ProcessFailedError, RunFailedError
from hakmem_lab.measure import launch
from hakmem_lab.measure.backing import Backing
from hakmem_lab.measure.command import measured_make
from hakmem_lab.measure.launch import Ended, Running, Start, started
from hakmem_lab.measure.runner import Arm, Conditions, Measured, steal_ticks_read
from hakmem_lab.measure.service import Records, Service, libc_preloaded, linker_records, service_judge
from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.tree import Watcher, children_of, tree_rss_kib, watching
from hakmem_lab.measure.turns import Seat
from hakmem_lab.processes import Finished, pinned_to, program_run
from hakmem_lab.workloads.cells import SEED_PLACE, Measure
from hakmem_lab.workloads.installed import installed_check
from hakmem_lab.workloads.programs.file import Command, ProgramFile, Server

INPUTS_PLACE = "{inputs}"
FOLDER_PLACE = "{folder}"

UNPRIVILEGED = "nobody"
READY_SECONDS = 20.0
RUN_SECONDS_MAX = 120.0
CRASH_SECONDS = 0.5
"""Seconds that a server may take to die after a failed load; then its end is the reason."""


@dataclass(frozen=True)
class Place:
    """Where one run takes place: placeholders filled in, with the environment of every command of the program."""

    folder: Path
    inputs: Path
    seed: int
    environment: dict[str, str]
    user: str

    def filled(self, command: Command) -> Command:
        places = {INPUTS_PLACE: str(self.inputs), FOLDER_PLACE: str(self.folder), SEED_PLACE: str(self.seed)}
        return tuple(_fill(word, places) for word in command)

    def run(self, command: Command, limit: float) -> Finished:
        """On the system's own allocator; subprocess.TimeoutExpired after LIMIT seconds."""
        line = self.filled(command)
        try:
            return program_run(line, limit, cwd=self.folder, env=self.environment, user=self.user)
        except OSError as error:
            raise LabError(f"{line[0]} cannot be started: {error.strerror}") from error

    def succeeds(self, command: Command, limit: float) -> bool:
        try:
            return self.run(command, limit).status == 0
        except subprocess.TimeoutExpired:
            return False

    def run_well(self, what: str, command: Command, limit: float = RUN_SECONDS_MAX) -> bytes:
        try:
            done = self.run(command, limit)
        except subprocess.TimeoutExpired:
            raise RunFailedError(f"{what}: {command[0]} did not end within {limit:g} s") from None
        if done.status != 0:
            lines = (done.errors or done.output).strip().splitlines()
            said = f": {lines[-1]}" if lines else ""
            raise RunFailedError(f"{what}: {command[0]} exited with {done.status}{said}")
        return done.printed


def _fill(word: str, places: dict[str, str]) -> str:
    for place, text in places.items():
        word = word.replace(place, text)
    return word


@dataclass(frozen=True)
class ProgramTask:
    program: ProgramFile
    tool: Path
    scratch: Path
    environment: dict[str, str]
    user: str
    run_seconds_max: float = RUN_SECONDS_MAX
    backing: Backing = field(default_factory=Backing, compare=False)

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def threads(self) -> int:
        return self.program.threads

    @property
    def measure(self) -> Measure:
        return self.program.measure

    @property
    def switches_are_noise(self) -> bool:
        return False

    def identities(self) -> dict[str, str]:
        """Of all that a run consists of besides the allocator: its files, its tools, and what starts them."""
        own = {name: self.program.beside / name for name in (f"{self.name}.toml", *self.program.files)}
        found = ((tool, shutil.which(tool, path=self.environment["PATH"])) for tool in self.program.tools)
        tools = {tool: Path(place) for tool, place in found if place is not None}
        identities = {f"{self.name}/{name}": elf.identity(path) for name, path in (own | tools).items()}
        return identities | {f"bench/{launch.TOOL}": elf.identity(self.tool)}

    @property
    def takes_turns(self) -> bool:
        """Of a server the load is on the clock, which is none of its processes."""
        return self.program.server is None

    def run(self, arm: Arm, conditions: Conditions, seat: Seat | None = None) -> Measured:
        """glibc is preloaded like any other, because a program may bring its own allocator."""
        return self._run(libc_preloaded(arm), conditions, None, seat)[0]

    def limited(self, seconds: float) -> ProgramTask:
        """A run that takes longer than this counts as hung."""
        return replace(self, run_seconds_max=seconds)

    def observe(self, arm: Arm, conditions: Conditions) -> tuple[Measured, Service]:
        """A run that is watched from outside while the dynamic linker keeps a record: for memory over time and for
        the proof of service, not for time."""
        arm = libc_preloaded(arm)
        with linker_records(self.scratch) as records:
            measured, watcher = self._run(arm, conditions, records)
            assert watcher is not None
            watched = watcher.watched()
            service = service_judge(arm, watched, records.texts(), self.tool)
        peak = max(watched.tree_peak_rss_kib, measured.peak_rss_kib or 0)
        return replace(measured, rss_mean_kib=watched.rss_mean_kib, tree_peak_rss_kib=peak), service

    def _run(
        self, arm: Arm, conditions: Conditions, records: Records | None, seat: Seat | None = None
    ) -> tuple[Measured, Watcher | None]:
        touch = self.backing.ready_at(seat)
        steal = steal_ticks_read()
        before = time.monotonic()
        server = self.program.server
        with self._place(conditions.seed) as place, ExitStack() as stack:
            # A server's load is slowed by us, since its clock is ours.
            quick = server is not None and self.measure is Measure.TIME
            slowed = replace(arm, slowdown_percent=0.0) if quick else arm
            extra = tuple(place.environment.items()) + (records.environment if records else ())
            running = stack.enter_context(started(self._start(place), slowed, conditions, extra, seat))
            watcher = None
            if records is not None:
                watcher = stack.enter_context(watching(running.pid, self.tool, arm.peer.library))
            if server is None:
                measured = self._run_to_end(place, running)
            else:
                measured = self._serve(place, running, server, arm, conditions)
        wall = time.monotonic() - before
        self.backing.learn(measured.peak_rss_kib)
        steal = steal_ticks_read() - steal
        measured = replace(
            measured, wall_seconds=wall, steal_ticks=steal, touch_us=touch, in_turns=seat is not None
        )
        return measured, watcher

    def _run_to_end(self, place: Place, running: Running) -> Measured:
        ended = running.wait(self.run_seconds_max)
        try:
            checksum = self._checksum(place, ended.output_hash)
        except RunFailedError as error:
            raise ProcessFailedError(str(error), "failed: its check") from error
        return replace(self._measured(ended), checksum=checksum)

    def _serve(
        self, place: Place, running: Running, server: Server, arm: Arm, conditions: Conditions
    ) -> Measured:
        self._wait_until_ready(place, running, server)
        started_at = time.monotonic()
        try:
            with pinned_to(conditions.cpus):
                what = f"{self.name} under {arm.name}, its load"
                place.run_well(what, self.program.run.command, self.run_seconds_max)
            seconds = time.monotonic() - started_at
            if self.measure is Measure.TIME:
                seconds = _slowed(started_at, seconds, arm.slowdown_percent)
            checksum = self._checksum(place, "")
        except RunFailedError as error:
            if running.ended_within(CRASH_SECONDS):
                self._end_early(running)
            raise ProcessFailedError(str(error), "failed under its load") from error
        time.sleep(server.idle_seconds)
        idle = tree_rss_kib(running.pid)
        for pid in children_of(running.pid):
            os.kill(pid, server.stop)
        ended = running.wait(self.run_seconds_max, stopped_by=server.stop)
        return replace(self._measured(ended), seconds=seconds, idle_rss_kib=idle, checksum=checksum)

    def _wait_until_ready(self, place: Place, running: Running, server: Server) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not place.succeeds(server.ready, deadline - time.monotonic()):
            if running.process.poll() is not None:
                self._end_early(running)
            if time.monotonic() >= deadline:
                said = running.last_line()
                text = f"{self.name} was not ready within {READY_SECONDS:g} s: {said}"
                raise ProcessFailedError(text, f"hung: not ready after {READY_SECONDS:g} s")
            time.sleep(0.02)

    def _end_early(self, running: Running) -> None:
        running.wait(0)
        raise ProcessFailedError(f"{self.name} ended before it was asked to", "failed: ended early")

    def _checksum(self, place: Place, output_hash: str) -> str:
        check = self.program.run.check
        said = place.run_well(f"{self.name}, its check", check) if check else b""
        return hashlib.sha256(output_hash.encode() + said).hexdigest()[:16]

    def _measured(self, ended: Ended) -> Measured:
        return measured_make(ended, self.program.run.operations, ended.seconds, 0)

    def _start(self, place: Place) -> Start:
        server = self.program.server
        return Start(
            tool=self.tool,
            command=place.filled(server.command if server else self.program.run.command),
            folder=self.scratch,
            cwd=place.folder,
            user=self.user,
            by_cpu=self.measure is Measure.CPU,
        )

    @contextmanager
    def _place(self, seed: int) -> Iterator[Place]:
        folder = Path(mkdtemp(dir=self.scratch, prefix="run-"))
        try:
            _give(folder, self.user)
            yield Place(folder, self.scratch / "inputs", seed, self.environment, self.user)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _slowed(started_at: float, seconds: float, percent: float) -> float:
    """Keeps the clock running, busy, for this share of the time."""
    end = started_at + seconds * (1 + percent / 100)
    now = started_at + seconds
    while percent and now < end:
        now = time.monotonic()
    return now - started_at


def _give(folder: Path, user: str) -> None:
    if user:
        shutil.chown(folder, user)


def program_prepare(checkout: Checkout, stage: Stage, program: ProgramFile, seed: int) -> ProgramTask:
    """Inputs are in place, and what must be prepared is prepared; an error that names the package if something is
    not installed."""
    folders = [
        str(folder)
        for pattern in program.path
        for folder in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
    ]
    path = os.pathsep.join([*folders, os.defpath])
    installed_check(checkout, program.tools, path)
    user = UNPRIVILEGED if program.unprivileged and os.geteuid() == 0 else ""
    scratch = Path(mkdtemp(dir=stage.folder, prefix=f"{program.name}-"))
    inputs = scratch / "inputs"
    inputs.mkdir()
    for folder in (scratch, inputs):
        _give(folder, user)
    if user:
        stage.folder.chmod(0o711)
    for name in program.files:
        try:
            shutil.copy(program.beside / name, inputs)
        except OSError as error:
            raise LabError(f"{program.name}: cannot copy {name}: {error.strerror}") from error
    environment = {"PATH": path, "LC_ALL": "C", **(program.environment or {})}
    place = Place(inputs, inputs, seed, environment, user)
    for step in program.prepare:
        place.run_well(f"preparing {program.name}", step)
    return ProgramTask(program, stage.program(launch.TOOL), scratch, environment, user)
