"""Noise of a real machine, recorded once and played back: what simulated comparisons run under.

A trace is one workload's runs back to back, all of the same binary, on processors drawn anew for every two, as the
runs of pairs are. It is recorded in several conditions of the machine, from left alone to fully loaded. A playback
takes whole blocks of consecutive runs from random places, which preserves what makes real noise hard: bursts,
drift, heavy tails. A simulated arm changes nothing but the time that a run takes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING, text_write
from hakmem_lab.measure.backing import Backing
from hakmem_lab.measure.pairs import conditions_draw, cpus_allowed
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.task import Task
from hakmem_lab.measure.turns import Seat
from hakmem_lab.workloads.cells import Measure

TRACE_FILE = Path(__file__).with_name("noise.json")
BLOCK_RUNS = 40
"""About ten seconds: longer than most bursts, shorter than a comparison."""

BUSY = "while True: pass"
BURSTS = """
import random, time
while True:
    end = time.monotonic() + random.expovariate(1.0)
    while time.monotonic() < end:
        pass
    time.sleep(random.expovariate(0.5))
"""


@dataclass(frozen=True)
class Run:
    """What a playback needs of one process: its time, and the inputs of the disturbance rule."""

    seconds: float
    wall_seconds: float
    major_faults: int
    involuntary_switches: int
    steal_ticks: int


@dataclass(frozen=True)
class Trace:
    condition: str
    load: float
    """Of the machine, before the recording: how quiet "left alone" was."""
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Noise:
    provenance: dict[str, str]
    traces: tuple[Trace, ...]


@dataclass(frozen=True)
class Condition:
    name: str
    bench: str
    company: tuple[str, ...] = ()
    """Python programs that run beside the recording."""


def conditions() -> tuple[Condition, ...]:
    """A workload that allocates nothing has only the machine's noise; the other also has the noise of where its
    memory lies."""
    allocates = "random mix, 256 slots"
    return (
        Condition("no allocation, left alone", "no allocation (control)"),
        Condition("random mix, left alone", allocates),
        Condition("random mix, bursts of one other process", allocates, (BURSTS,)),
        Condition("random mix, another process on every processor", allocates, (BUSY,) * len(cpus_allowed())),
    )


@contextmanager
def company(programs: Sequence[str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [subprocess.Popen([sys.executable, "-I", "-c", program]) for program in programs]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def trace_record(
    task: Task, arm: Arm, condition: Condition, count: int, rng: random.Random, ran: Callable[[], None]
) -> Trace:
    load = round(os.getloadavg()[0], 1)
    runs = []
    with company(condition.company):
        for index in range(count):
            if index % 2 == 0:
                drawn = conditions_draw(task, rng)
            run = task.run(arm, drawn)
            runs.append(
                Run(
                    round(run.seconds, 6),
                    round(run.wall_seconds, 6),
                    run.major_faults,
                    run.involuntary_switches,
                    run.steal_ticks,
                )
            )
            ran()
    return Trace(condition.name, load, tuple(runs))


def noise_write(noise: Noise, path: Path = TRACE_FILE) -> None:
    """Writes a line for each run."""
    traces = []
    for trace in noise.traces:
        runs = ",\n".join(json.dumps(list(asdict(run).values())) for run in trace.runs)
        traces.append(
            f'{{"condition": {json.dumps(trace.condition)}, "load": {trace.load}, "runs": [\n{runs}\n]}}'
        )
    columns = json.dumps(list(Run.__annotations__))
    head = f'"provenance": {json.dumps(noise.provenance, indent=1)},\n"columns": {columns}'
    text_write(path, f'{{{head},\n"traces": [\n' + ",\n".join(traces) + "\n]}\n")


def noise_read(path: Path = TRACE_FILE) -> Noise:
    if not path.is_file():
        raise LabError(f"{path.name} is not there: ./hakmem honesty --record makes it")
    content = json.loads(path.read_text(ENCODING))
    traces = tuple(
        Trace(trace["condition"], trace["load"], tuple(Run(*values) for values in trace["runs"]))
        for trace in content["traces"]
    )
    return Noise(content["provenance"], traces)


class Playback:
    """A task whose runs come from a trace. An arm's factor, by name, is how many times as long its runs take."""

    name = "playback"
    threads = 1
    measure = Measure.TIME
    switches_are_noise = True
    takes_turns = False
    backing = Backing()

    def __init__(self, trace: Trace, factors: dict[str, float], rng: random.Random) -> None:
        self.clock = 0.0
        self._trace = trace
        self._factors = factors
        self._rng = rng
        self._left = 0
        self._next = 0

    def run(self, arm: Arm, _conditions: Conditions, _seat: Seat | None = None) -> Measured:
        run = self.take()
        factor = self._factors.get(arm.peer.name, 1.0) * (1 + arm.slowdown_percent / 100)
        wall = run.wall_seconds + run.seconds * (factor - 1)
        self.clock += wall
        return Measured(
            ops=1,
            seconds=run.seconds * factor,
            wall_seconds=wall,
            cpu_seconds=run.seconds * factor,
            peak_rss_kib=None,
            minor_faults=0,
            major_faults=run.major_faults,
            involuntary_switches=run.involuntary_switches,
            steal_ticks=run.steal_ticks,
            checksum=None,
        )

    def take(self) -> Run:
        """The next run of the block, or the first of another. Blocks begin with the first run of a pair."""
        if not self._left:
            self._left = BLOCK_RUNS
            self._next = 2 * self._rng.randrange(len(self._trace.runs) // 2)
        self._left -= 1
        run = self._trace.runs[self._next % len(self._trace.runs)]
        self._next += 1
        return run
