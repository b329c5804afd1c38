"""Standard output and error of the laboratory: that the first cannot be written to is said once, in the second."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hakmem_lab.errors import UnreadError
from hakmem_lab.files import ENCODING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Output(io.FileIO):
    """After an error all that follows is dropped: Python writes at its end what is left, and would say it again."""

    _failed = False

    def write(self, data: ReadableBuffer, /) -> int | None:
        if self._failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            self._failed = True
            raise UnreadError from None  # typer and rich would end with 1, which means something else
        except OSError:  # a full disk
            self._failed = True
            raise


class Errors(io.FileIO):
    """What cannot be written is dropped: it could be told nowhere, and the exit status says what matters."""

    def write(self, data: ReadableBuffer, /) -> int | None:
        with suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


def output_open(given: TextIO) -> TextIO:
    """In place of the one that Python GIVES. A file's or a terminal's encoding may be narrower than what is written."""
    buffer = io.BufferedWriter(Output(given.fileno(), "w", closefd=False))
    return io.TextIOWrapper(buffer, given.encoding, "replace", line_buffering=given.line_buffering)


def errors_open(given: TextIO | None) -> TextIO:
    """In place of the one that Python GIVES: none if it is closed. Then the next file that is opened would take its place,
    so one is opened, which no other program inherits."""
    if given is None:
        return Path(os.devnull).open("w", encoding=ENCODING)
    buffer = io.BufferedWriter(Errors(given.fileno(), "w", closefd=False))
    return io.TextIOWrapper(buffer, given.encoding, "backslashreplace", line_buffering=True)
