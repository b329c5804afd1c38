"""The programs again and again, mixed, until the time is over: ./hakmem soak --programs --minutes builds,
and calls this.

Each test of this folder, the long ones too, is a run: a pytest of its own on the build of HAKMEM_BUILD_DIR.
They go in random order, another one each round, two at a time. What runs when the time is over is ended and
not counted. So it is on ^C and SIGTERM; the report is written anew after every run, so that nothing is lost
to anything worse.
"""

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.grid import Grid
from hakmem_lab.measure import provenance
from hakmem_lab.reports.report import mib_text, report_write

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
PYTEST = (sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--soak")
AT_ONCE = 2
LOOK_SECONDS = 0.2
END_SECONDS = 10
"""So long a test may take to end what it started when it is told to."""
TAIL_LINES = 40
COLUMNS = ("test", "runs", "failed", "s, all runs", "s, longest", "peak RSS, MiB")
READING = (
    "A run is the program's work on hakmem, then without it, and the comparison of both. The peak is"
    " the largest process of the part on hakmem, over all runs; empty where it was no larger than the test"
    " runner itself, so that it is not known."
    " Other programs ran beside it: the seconds are no measurement of speed."
)


@dataclass
class Record:
    """What a test came to."""

    runs: int = 0
    failed: int = 0
    seconds: float = 0
    longest: float = 0
    peak_kib: int = 0


@dataclass(frozen=True)
class Failure:
    test: str
    run: int
    """The how manieth of all runs, from 1: with the seed it says what ran before."""
    tail: str


@dataclass
class Run:
    """A test on its way."""

    test: str
    number: int
    folder: Path
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.folder.chmod(0o1777)  # as /tmp: some programs run as another user
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *PYTEST,
                    "--tb=short",
                    "-rs",
                    f"--junit-xml={self.result}",
                    "-o",
                    "junit_family=xunit1",
                    self.test,
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"TMPDIR": str(self.folder)},
                start_new_session=True,
            )

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def result(self) -> Path:
        return self.folder / "result.xml"

    def end(self) -> None:
        """What it left running in its session, too; servers are ended by the test that started them."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def tail(self) -> str:
        """Without the places of this machine."""
        text = self.log.read_text(errors="replace")
        for place in (f"{ROOT}/", f"{sys.base_prefix}/", f"{self.folder.parent}/"):
            text = text.replace(place, "")
        return "\n".join(text.splitlines()[-TAIL_LINES:])


@dataclass
class Soak:
    """All runs of one command, and its report."""

    source: provenance.Provenance
    """As it was at the beginning: the checkout may go on."""
    seed: int
    report: Path | None
    records: dict[str, Record]
    failures: list[Failure] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    """Tests that this machine cannot run, and what they said."""
    began: float = field(default_factory=time.monotonic)

    def order(self) -> Iterator[str]:
        """Without end, unless there is nothing that can be run."""
        chance = random.Random(self.seed)
        while left := sorted(self.records.keys() - self.not_run.keys()):
            chance.shuffle(left)
            yield from left

    def go_on(self, seconds: float, folder: Path) -> None:
        """Until the time is over or somebody interrupts."""
        order, running, started = self.order(), list[Run](), 0
        try:
            while time.monotonic() < self.began + seconds:
                for run in [run for run in running if run.process.poll() is not None]:
                    running.remove(run)
                    run.end()
                    self.keep(run)
                while len(running) < AT_ONCE and (test := next(order, None)) is not None:
                    started += 1
                    running.append(Run(test, started, folder / str(started)))
                if not running:
                    return
                time.sleep(LOOK_SECONDS)
        finally:
            for run in running:
                run.end()

    def keep(self, run: Run) -> None:
        """What a run came to."""
        seconds = time.monotonic() - run.began
        tree = ElementTree.parse(run.result) if run.result.exists() else None
        if tree is not None and (skipped := tree.find(".//skipped")) is not None:
            self.not_run[run.test] = skipped.get("message") or "skipped"
            print(f"not run  {run.test}: {self.not_run[run.test]}", flush=True)
            return
        record = self.records[run.test]
        record.runs += 1
        record.seconds += seconds
        record.longest = max(record.longest, seconds)
        peak = tree.find(".//property[@name='peak_kib']") if tree is not None else None
        if peak is not None:
            record.peak_kib = max(record.peak_kib, int(peak.get("value") or 0))
        passed = tree is not None and run.process.returncode == 0
        if not passed:
            record.failed += 1
            self.failures.append(Failure(run.test, run.number, run.tail()))
            print(run.tail())
        print(
            f"{'passed' if passed else 'FAILED'}  {run.test} ({seconds:.0f} s, run {run.number})", flush=True
        )
        self.write()

    def summary(self) -> str:
        ran = sum(record.runs for record in self.records.values())
        return f"{ran - len(self.failures)} passed, {len(self.failures)} failed"

    def write(self) -> None:
        if self.report is None:
            return
        minutes = (time.monotonic() - self.began) / 60
        notes = [
            f"{self.summary()}, in {minutes:.1f} minutes, {AT_ONCE} at a time; order of the seed {self.seed}.",
            READING,
        ]
        notes += [f"Not run: {short(test)}: {why}" for test, why in self.not_run.items()]
        for failure in self.failures:
            head = f"**{short(failure.test)} failed**, run {failure.run} of the seed {self.seed}:"
            notes += [f"{head}\n\n```\n{failure.tail}\n```"]
        grid = Grid("Programs", COLUMNS, tuple(cells(*item) for item in sorted(self.records.items())))
        report_write(self.report, "Soak of programs", self.source, notes, [grid])


def short(test: str) -> str:
    return test.removeprefix("tests/programs/test_").replace(".py::test_", ": ")


def cells(test: str, record: Record) -> tuple[str, ...]:
    peak = mib_text(record.peak_kib or None)
    return (
        short(test),
        str(record.runs),
        str(record.failed),
        f"{record.seconds:.0f}",
        f"{record.longest:.0f}",
        peak,
    )


def collect(only: str | None) -> list[str]:
    """The tests that an expression of pytest's -k chooses; all if there is none."""
    chosen = ["-k", only] if only else []
    listed = subprocess.run(
        [*PYTEST, "--collect-only", *chosen, str(FOLDER)], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"hakmem: the tests cannot be collected:\n{listed.stdout}{listed.stderr}")
    return re.findall(r"^tests/programs/\S+::.+$", listed.stdout, re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./hakmem soak --programs --minutes")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--command", required=True, help="what the report names")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--only", help="an expression of names")
    given = parser.parse_args()
    tests = collect(given.only)
    if not tests:
        raise SystemExit("hakmem: no program's test has a name like that")
    source = provenance.collect(Checkout.find(Path(os.environ["HAKMEM_BUILD_DIR"])), given.command)
    soak = Soak(source, time.time_ns() // 10**9, given.report, {test: Record() for test in tests})
    print(f"hakmem: {len(tests)} tests, order of the seed {soak.seed}", flush=True)
    # In the background a shell has SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="hakmem-soak-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # some servers run as another user
        with contextlib.suppress(KeyboardInterrupt):
            soak.go_on(given.minutes * 60, Path(folder))
    soak.write()
    print(soak.summary())
    return 1 if soak.failures or not any(record.runs for record in soak.records.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
