"""The options in force: of a process from its metadata, of a program from what the library prints before its main."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.processes import program_run
from hakmem_lab.sight.books import Books
from hakmem_lab.sight.books_reader import books_read
from hakmem_lab.sight.launch import environment_on
from hakmem_lab.sight.memory import memory_open
from hakmem_lab.sight.options import PREFIX, Mistake, Option, mistakes_find, mistakes_told
from hakmem_lab.sight.page import pages_find
from hakmem_lab.sight.process import SELF, Process
from hakmem_lab.sight.program import needs_preload

ASK = "HAKMEM_SHOW_OPTIONS"
ANSWER_SECONDS = 30.0
ANSWER_BEGINS = '{"hakmem"'
FROM_FILE = ("file", "profile")
"""Sources of an option that a profile's file sets, itself or by naming another profile."""
NOT_SHOWN = ("?", "\N{REPLACEMENT CHARACTER}")
"""What stands for the letters of a path that are not ASCII, or no text."""
FILE_BYTES_MAX = 4095
"""Of a profile's file; the library reads no longer one."""


@dataclass(frozen=True)
class Config:
    of: str
    """The process or program whose options they are."""
    library: str
    """hakmem's version."""
    options: tuple[Option, ...]
    mistakes: tuple[Mistake, ...]

    def option(self, name: str) -> Option:
        return next(option for option in self.options if option.name == name)


def config_of_process(process: Process) -> list[Config]:
    """For each copy of hakmem in it."""
    with memory_open(process) as memory:
        copies = [books_read(page) for page in pages_find(memory, process.mappings())]
    return [
        Config(
            f"process {process.pid}, {process.name} ({books.page.owner.rpartition('/')[2]})",
            books.page.library,
            books.options,
            tuple(mistakes_of_process(process, books)),
        )
        for books in copies
    ]


def mistakes_of_process(process: Process, books: Books) -> list[Mistake]:
    """In its environment; and a profile's file that it could not read."""
    found = mistakes_find(process.environment(), books.options, books.other_variables)
    return [*found, *profile_mistakes(process, books.options)]


def profile_mistakes(process: Process, options: Iterable[Option]) -> Iterator[Mistake]:
    """A profile's file of which PROCESS took nothing, and that cannot be read. One that it took something of may have
    gone since; so may one whose settings are all overridden, which is why of a process that runs less is said."""
    by_name = {option.name: option for option in options}
    profile = by_name["profile"].value if "profile" in by_name else ""
    if "/" not in profile or any(option.source in FROM_FILE for option in by_name.values()):
        return
    complaint = file_complaint(process.file(profile)) if _can_be_found(process, profile) else ""
    if complaint:
        setting = f"the profile {profile}"
        says = "is ignored:" if process.pid == SELF else "sets nothing here, and"
        yield Mistake(setting, "", "", "", f"{setting} {says} {complaint}")


def _can_be_found(process: Process, profile: str) -> bool:
    """Whether PROFILE is where the process had it, as far as can be seen: a relative path is of the folder in which
    the program started."""
    if any(letter in profile for letter in NOT_SHOWN):
        return False
    if process.pid == SELF or profile.startswith("/"):
        return True
    started_in = process.environment().get("PWD", "")
    with suppress(OSError):
        return started_in.startswith("/") and process.file(started_in).samefile(process.place("cwd"))
    return False


def file_complaint(file: Path) -> str:
    """Why the library would not read a profile's FILE, in its words; empty where it would."""
    try:
        if not stat.S_ISREG(file.stat().st_mode) and not file.is_dir():
            return ""  # a device or a pipe gives what it has once
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError:
        return "it cannot be read"
    if len(content) > FILE_BYTES_MAX:
        return f"it is longer than {FILE_BYTES_MAX} bytes"
    return "it holds bytes that are no text" if b"\0" in content else ""


def config_of_command(checkout: Checkout, command: Sequence[str]) -> Config:
    """The library prints them as it starts in the program, and ends it before its main. Mistakes are found in the
    environment; those that it does not show, in the lines that the library also prints."""
    preload = needs_preload(command[0], checkout.library)
    environment = environment_on(checkout, preload, **{ASK: "1"})
    try:
        done = program_run(command, ANSWER_SECONDS, env=environment)
    except OSError as error:
        raise LabError(f"{command[0]} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise LabError(f"{command[0]} went on to its main: hakmem was not loaded into it") from None
    if not done.output.startswith(ANSWER_BEGINS):
        raise LabError(f"{command[0]} went on to its main: hakmem was not loaded into it")
    answer = json.loads(done.output)
    options = tuple(Option(**{"decided": "", **one}) for one in answer["options"])
    settings = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    mistakes = mistakes_find(settings, options, answer["other_variables"])
    mistakes += mistakes_told(done.errors, mistakes)
    if not any(mistake.told for mistake in mistakes):  # the option quiet silences the library
        mistakes += profile_mistakes(Process(SELF), options)
    owner = "this checkout's" if preload else "its own"
    return Config(f"{command[0]} on {owner} hakmem", answer["hakmem"], options, tuple(mistakes))
