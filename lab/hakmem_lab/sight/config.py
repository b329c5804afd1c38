"""The options in force: of a process from its metadata, of a program from what the library prints before its main."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.sight.books_reader import books_read
from hakmem_lab.sight.launch import environment_on, program_check
from hakmem_lab.sight.memory import memory_open
from hakmem_lab.sight.options import PREFIX, Mistake, Option, mistakes_find
from hakmem_lab.sight.page import pages_find
from hakmem_lab.sight.process import Process

ASK = "HAKMEM_SHOW_OPTIONS"
ANSWER_SECONDS = 30.0
ANSWER_BEGINS = '{"hakmem"'


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
    environment = process.environment()
    with memory_open(process) as memory:
        copies = [books_read(page) for page in pages_find(memory, process.mappings())]
    return [
        Config(
            f"process {process.pid}, {process.name} ({books.page.owner.rpartition('/')[2]})",
            books.page.library,
            books.options,
            tuple(mistakes_find(environment, books.options, books.other_variables)),
        )
        for books in copies
    ]


def config_of_command(checkout: Checkout, command: Sequence[str]) -> Config:
    """The library prints them as it starts in the program, and ends it before its main. Mistakes are found from the
    environment, not from the lines that the library also prints."""
    program_check(command[0])
    environment = environment_on(checkout, **{ASK: "1"})
    try:
        done = subprocess.run(
            list(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except OSError as error:
        raise LabError(f"{command[0]} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise LabError(f"{command[0]} went on to its main: hakmem was not loaded into it") from None
    if not done.stdout.startswith(ANSWER_BEGINS):
        raise LabError(f"{command[0]} went on to its main: hakmem was not loaded into it")
    answer = json.loads(done.stdout)
    options = tuple(Option(**{"decided": "", **one}) for one in answer["options"])
    settings = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    mistakes = mistakes_find(settings, options, answer["other_variables"])
    return Config(f"{command[0]} on this checkout's hakmem", answer["hakmem"], options, tuple(mistakes))
