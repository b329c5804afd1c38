"""A program's work, done on hakmem with proof of service, then without hakmem, and compared.

A test states the work once, as a function of the side that it runs on:

    def test_lua(trial: Trial) -> None:
        \"""Tables, strings and coroutines.\"""
        lua = trial.program("lua5.4", "-v")
        assert trial.compare(lambda side: side.run(lua, "-e", SCRIPT)) == "..."

What the work returns must be the same on both sides. The docstring is what the table of programs says of it.
"""

import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Generic, TypeVar

from toolbox import Build, environment, run, tool

Result = TypeVar("Result")

STATISTICS = re.compile(r"^hakmem: statistics of (.+) \(pid (\d+)\)$", re.MULTILINE)
VERSION = re.compile(r"\d+\.\d+\.\d+\w*")
SHORT_VERSION = re.compile(r"\d+\.\d+")
OTHER_ALLOCATOR = re.compile(r"^\s*(lib(?:\w*malloc|mimalloc|snmalloc)\w*)\.so", re.MULTILINE)

TIMEOUT_SECONDS = 300
READY_SECONDS = 60
STOP_SECONDS = 60


class DiffersError(AssertionError):
    """The work ended well on both sides, with different results."""


@dataclass(frozen=True)
class Suite:
    """What came out of a program's own tests. On hakmem none may fail but those that fail without it."""

    ran: int
    failed: frozenset[str]

    def told_failed(self) -> str:
        return f"{len(self.failed)} failed: {', '.join(sorted(self.failed))}"

    def told(self) -> str:
        return f"{self.ran} tests" + (
            f"; with hakmem and without it {self.told_failed()}" if self.failed else ""
        )


def same(mine: object, other: object) -> bool:
    """Whether the result on hakmem is what it should be, beside the other. A suite's test that fails without hakmem alone, for lack
    of time on a busy machine, says nothing of hakmem; what ran can be counted only where none did."""
    if not (isinstance(mine, Suite) and isinstance(other, Suite)) or mine.failed == other.failed:
        return mine == other
    return mine.failed < other.failed and mine.ran >= other.ran


@dataclass
class Side:
    """Everything that is started here is on one allocator. The folder is empty at first and has the same path on
    both sides, so that it may get into the results."""

    folder: Path
    build: Build | None
    """None: without hakmem."""
    served: Counter[str] = field(default_factory=Counter)
    """Processes that hakmem served, by name."""
    pids: set[int] = field(default_factory=set)

    def run(
        self,
        *command: str | Path,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: str = "",
        user: str | None = None,
        statistics: bool = True,
        statuses: Collection[int] = (0,),
        timeout: float = TIMEOUT_SECONDS,
    ) -> str:
        """The standard output of a command that ends with one of the statuses. On hakmem the launcher proves that
        its process was served; the statistics name the others, and are left out where they would disturb."""
        done = run(
            *self._started(command, statistics),
            env=environment(**(env or {})),
            cwd=cwd or self.folder,
            stdin=stdin,
            user=user,
            timeout=timeout,
        )
        assert done.returncode in statuses, (
            f"{command[0]} ended with {done.returncode}:\n{done.stderr[-4000:]}"
        )
        self._keep_proof(command, done.stderr, statistics)
        return done.stdout

    @contextmanager
    def daemon(
        self,
        *command: str | Path,
        ready: Callable[[], bool],
        stop: Signals = SIGTERM,
        user: str | None = None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A server while the block lasts. It must end well when it is told to stop."""
        log = self.folder / "daemon.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(word) for word in self._started(command, statistics=True)],
                env=environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                user=user,
                start_new_session=True,
            )
        try:
            wait_until(lambda: process.poll() is not None or ready(), READY_SECONDS, f"{command[0]} is ready")
            assert process.poll() is None, f"{command[0]} did not start:\n{log.read_text()[-4000:]}"
            yield process
            process.send_signal(stop)
            process.wait(STOP_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, SIGKILL)
                process.wait()
        text = log.read_text(errors="replace")
        assert process.returncode == 0, f"{command[0]} ended with {process.returncode}:\n{text[-4000:]}"
        self._keep_proof(command, text, statistics=True)

    def keep_statistics(self, text: str) -> None:
        """Of processes that printed them into TEXT."""
        found = STATISTICS.findall(text)
        assert found if self.build else not found, f"statistics are missing, or from nowhere:\n{text[-4000:]}"
        self.served.update(name for name, _ in found)
        self.pids.update(int(pid) for _, pid in found)

    def prove(self, pid: int) -> None:
        """This process, which has ended, was served: it printed its statistics."""
        assert self.build is None or pid in self.pids, f"process {pid} was not served by hakmem"

    def _started(self, command: tuple[str | Path, ...], statistics: bool) -> list[str | Path]:
        if self.build is None:
            return list(command)
        options = ["--stats"] if statistics else []
        return [self.build.launcher, *options, self.build.library, "--", *command]

    def _keep_proof(self, command: tuple[str | Path, ...], errors: str, statistics: bool) -> None:
        if statistics:
            self.keep_statistics(errors)
        elif self.build is not None:
            self.served[Path(command[0]).name] += 1


@dataclass
class Row:
    """What the table says of a test."""

    work: str
    program: str = ""
    version: str = ""
    served: str = ""
    result: str = ""
    without: str = ""
    seconds: tuple[float, float] = (0, 0)
    notes: list[str] = field(default_factory=list)


@dataclass
class Attempt(Generic[Result]):
    seconds: float
    error: BaseException | None = None
    result: Result | None = None

    @property
    def word(self) -> str:
        return "passed" if self.error is None else "failed"


@dataclass
class Trial:
    build: Build
    row: Row
    peak_kib: int = 0
    """Of the largest process of the part on hakmem; 0 where it is not known."""

    def program(self, command: str, *version: str, path: Path | None = None) -> str:
        """The path of a command, which the table names, with what it answers to VERSION."""
        found = str(path or tool(command))
        if not self.row.program:
            told = run(found, *version)
            text = told.stdout + told.stderr
            number = VERSION.search(text) or SHORT_VERSION.search(text)
            self.row.program = command
            self.row.version = number[0] if number else "unknown"
            linked = OTHER_ALLOCATOR.search(run("ldd", found).stdout)
            if linked:
                self.note(f"links {linked[1]}, whose place hakmem takes; without hakmem that one serves it")
        return found

    def note(self, text: str) -> None:
        self.row.notes.append(text)

    def compare(self, work: Callable[[Side], Result]) -> Result:
        """What the work returns, on hakmem and without it."""
        with tempfile.TemporaryDirectory(prefix="hakmem-programs-", ignore_cleanup_errors=True) as parent:
            # Some servers run as another user, who may not read the checkout.
            Path(parent).chmod(0o755)
            side = Side(Path(parent) / "work", copied(self.build, Path(parent) / "hakmem"))
            mine = attempt(work, side)
            self.peak_kib = peak_kib()
            other = attempt(work, Side(side.folder, None))
        self.row.served = ", ".join(times(name, count) for name, count in side.served.most_common())
        self.row.seconds = (mine.seconds, other.seconds)
        self.row.result, self.row.without = mine.word, other.word
        if mine.error is not None:
            mine.error.add_note(f"Without hakmem it {other.word}: {other.error or 'as it should'}")
            raise mine.error
        if other.error is not None:
            other.error.add_note("That was without hakmem, so that there is nothing to compare with.")
            raise other.error
        if not same(mine.result, other.result):
            self.row.result = "differs"
            raise DiffersError(f"on hakmem: {mine.result}\nwithout:   {other.result}")
        if isinstance(other.result, Suite) and mine.result != other.result:
            self.note(f"without hakmem {other.result.told_failed()}")
        assert mine.result is not None
        return mine.result


def attempt(work: Callable[[Side], Result], side: Side) -> Attempt[Result]:
    shutil.rmtree(side.folder, ignore_errors=True)
    side.folder.mkdir(mode=0o755)
    began = time.monotonic()
    try:
        result = work(side)
    except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
        return Attempt(time.monotonic() - began, error=error)
    return Attempt(time.monotonic() - began, result=result)


def copied(build: Build, folder: Path) -> Build:
    """What serves, where every user can read it."""
    copy = Build(folder)
    folder.mkdir(mode=0o755)
    for source, target in ((build.library, copy.library), (build.launcher, copy.launcher)):
        shutil.copyfile(source, target)
        target.chmod(0o755)
    return copy


def peak_kib() -> int:
    """Of the largest process so far. A process that is started begins with what this one has, which hides smaller ones."""
    largest, own = (
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)
    )
    return largest if largest > own else 0


def times(name: str, count: int) -> str:
    return name if count == 1 else f"{name} ({count})"


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def file_hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
