"""The file that describes a real program as a workload.

    about = "one line for people"
    tools = ["lua5.4"]                  # commands that must be installed
    files = ["inputs/records.lua"]      # copied to {inputs}; beside this file
    prepare = [["initdb", "..."]]       # run once in {inputs}, unmeasured, on the system's allocator
    path = ["/usr/lib/postgresql/*/bin"]  # folders before the usual ones; the last in order wins
    environment = { NAME = "value" }    # nothing of the user's environment is passed on
    threads = 1                         # processors that it may use
    figure = "time"                     # what counts: "time", or "processor time"
    unprivileged = false                # refuses to be root: then it runs as nobody

    [run]                               # a program that ends by itself ...
    command = ["lua5.4", "{inputs}/records.lua", "{seed}"]
    operations = 1                      # what one run counts for
    check = ["sha256sum", "out"]        # its output must be the same under all allocators, as the command's must

    [server]                            # ... or one that serves
    command = ["redis-server", "..."]   # it alone is on the allocator
    ready = ["redis-cli", "ping"]       # repeated until it succeeds, 20 s at most
    stop = "TERM"                       # the signal that ends it
    idle_seconds = 1                    # rests this long after the load, before its memory is read
    [load]
    command = ["redis-benchmark", "..."]  # the clock runs while this runs
    operations = 1
    check = ["..."]

Commands start in {folder}, which is new for each run. {inputs}, {folder} and {seed} are filled in everywhere; the seed
is the same for all allocators within a round.
"""

from __future__ import annotations

import signal
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING
from hakmem_lab.workloads.cells import Measure

FOLDER = Path(__file__).parent
Command = tuple[str, ...]
T = TypeVar("T")
SAID = {int: "a whole number", str: "a text", bool: "true or false", list: "a list", dict: "a table"}


@dataclass(frozen=True)
class Run:
    command: Command
    operations: int = 1
    check: Command = ()


@dataclass(frozen=True)
class Server:
    command: Command
    ready: Command
    stop: signal.Signals = signal.SIGTERM
    idle_seconds: int = 1


@dataclass(frozen=True)
class ProgramFile:
    name: str
    beside: Path
    """The folder that contains its files."""
    run: Run
    """The program itself, or the load on the server."""
    server: Server | None = None
    about: str = ""
    tools: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    prepare: tuple[Command, ...] = ()
    path: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    threads: int = 1
    measure: Measure = Measure.TIME
    unprivileged: bool = False


class Table:
    """One table of the file: every key is taken once and has its type; what is left at the end is an error."""

    def __init__(self, where: str, values: Mapping[str, object]) -> None:
        self._where = where
        self._values = dict(values)
        self._known: list[str] = []

    def take(self, key: str, default: T | None, kind: type[T]) -> T:
        """Without a default the key is required."""
        self._known.append(key)
        value = self._values.pop(key, default)
        if value is None:
            raise LabError(f"{self._where}: '{key}' is missing")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise LabError(f"{self._where}: '{key}' is not {SAID[kind]}")
        return value

    def number(self, key: str, default: int) -> int:
        value = self.take(key, default, int)
        if value < 1:
            raise LabError(f"{self._where}: '{key}' is at least 1")
        return value

    def words(self, key: str, default: list[str] | None = None) -> Command:
        value = self.take(key, default, list)
        if not all(isinstance(word, str) for word in value) or (default is None and not value):
            raise LabError(f"{self._where}: '{key}' is not a list of words")
        return tuple(value)

    def done(self) -> None:
        for key in self._values:
            near = get_close_matches(key, self._known, 1, 0.5)
            hint = f", did you mean '{near[0]}'?" if near else f"; known: {', '.join(self._known)}"
            raise LabError(f"{self._where}: there is no '{key}'{hint}")


def program_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def program_named(name: str) -> ProgramFile:
    return program_read(FOLDER / f"{name}.toml")


def program_read(path: Path) -> ProgramFile:
    try:
        content = tomllib.loads(path.read_text(ENCODING))
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: {error}") from error
    return program_make(str(path), path.stem, path.parent, content)


def program_make(where: str, name: str, beside: Path, content: Mapping[str, object]) -> ProgramFile:
    table = Table(where, content)
    run, server, load = (table.take(key, {}, dict) for key in ("run", "server", "load"))
    if bool(run) == bool(server or load):
        raise LabError(f"{where}: it has either [run], or [server] and [load]")
    prepare = table.take("prepare", [], list)
    steps = Table(where, {f"prepare[{number}]": step for number, step in enumerate(prepare)})
    environment = table.take("environment", {}, dict)
    figures = {measure.value: measure for measure in Measure}
    figure = table.take("figure", Measure.TIME.value, str)
    if figure not in figures:
        raise LabError(f"{where}: 'figure' is one of {', '.join(figures)}")
    program = ProgramFile(
        name=name,
        beside=beside,
        run=_run_read(f"{where}, [run]", run) if run else _run_read(f"{where}, [load]", load),
        server=None if run else _server_read(f"{where}, [server]", server),
        about=table.take("about", "", str),
        tools=table.words("tools", []),
        files=table.words("files", []),
        prepare=tuple(steps.words(f"prepare[{number}]") for number in range(len(prepare))),
        path=table.words("path", []),
        environment={key: str(value) for key, value in environment.items()},
        threads=table.number("threads", 1),
        measure=figures[figure],
        unprivileged=table.take("unprivileged", False, bool),
    )
    table.done()
    return program


def _run_read(where: str, content: Mapping[str, object]) -> Run:
    table = Table(where, content)
    run = Run(table.words("command"), table.number("operations", 1), table.words("check", []))
    table.done()
    return run


def _server_read(where: str, content: Mapping[str, object]) -> Server:
    table = Table(where, content)
    stop = f"SIG{table.take('stop', 'TERM', str)}"
    if stop not in signal.Signals.__members__:
        raise LabError(f"{where}: 'stop' is the name of a signal, such as TERM")
    idle = table.number("idle_seconds", 1)
    server = Server(table.words("command"), table.words("ready"), signal.Signals[stop], idle)
    table.done()
    return server
