"""Errors that a user can understand: one line each."""

from __future__ import annotations

from signal import SIGPIPE
from unicodedata import category


def shown(text: str) -> str:
    """TEXT for a terminal: names and values of other programs may hold what it would obey, or several lines. Such
    characters are question marks."""
    return "".join("?" if letter != "\t" and category(letter).startswith("C") else letter for letter in text)


class LabError(Exception):
    """Its text is one clear line; the command line prints it and exits with this status."""

    exit_status = 2


class RunInterruptedError(LabError):
    exit_status = 130


class UnreadError(LabError):
    """Nobody reads the standard output any more, as behind `| head`; it says nothing."""

    exit_status = 128 + SIGPIPE


class RunFailedError(LabError):
    """A run without figures: for one allocator of many that is a result. What the laboratory itself cannot do is
    another error."""

    def __init__(self, text: str, outcome: str = "") -> None:
        super().__init__(text)
        self.outcome = outcome or f"failed: {text}"
        """In a few words, as in a table: crashed: signal 11."""


class ProcessFailedError(RunFailedError):
    """A measured process crashed, hung or refused."""
