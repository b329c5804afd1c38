"""Standard output of the laboratory: that it cannot be written to is said once."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TextIO

from hakmem_lab.errors import UnreadError

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


def output_open(given: TextIO) -> TextIO:
    """In place of the one that Python GIVES. A file's or a terminal's encoding may be narrower than what is written."""
    buffer = io.BufferedWriter(Output(given.fileno(), "w", closefd=False))
    return io.TextIOWrapper(buffer, given.encoding, "replace", line_buffering=given.line_buffering)
