"""Makes programs that fail shorter, as long as they fail: whole programs first, then operations."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

OPERATION_BYTES = 4
TRY_SECONDS = 60

T = TypeVar("T")


def without_needless(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Fewer items that still fail: no single one can be left out. Zeller's ddmin, without its complements."""
    size = max(1, len(items) // 2)
    while True:
        shorter, place = False, 0
        while place < len(items):
            fewer = [*items[:place], *items[place + size :]]
            if fewer and fails(fewer):
                items, shorter = fewer, True
            else:
                place += size
        if size == 1 and not shorter:
            return items
        size = max(1, size // 2)


class Shrinker:
    """Programs of one set of options, one after the other in one process of the replay program."""

    def __init__(self, replay: Path, options: int, conf: str) -> None:
        self.replay = replay
        self.head = bytes([options])
        self.environment = os.environ | {"HAKMEM_CONF": conf}

    def fails(self, programs: Sequence[bytes]) -> bool:
        with tempfile.TemporaryDirectory(prefix="hakmem-shrink-") as folder:
            files = [Path(folder) / str(number) for number in range(len(programs))]
            for file, program in zip(files, programs, strict=True):
                file.write_bytes(self.head + program)
            try:
                command = [self.replay, "--here", *files]
                result = subprocess.run(
                    command, env=self.environment, capture_output=True, timeout=TRY_SECONDS
                )
            except subprocess.TimeoutExpired:
                return True
            return result.returncode != 0

    def shortest(self, programs: Sequence[bytes]) -> bytes | None:
        """One program that fails as these do, if there is one; they come without their first byte."""
        joined = b"".join(without_needless(programs, self.fails))
        if not self.fails([joined]):
            return None
        starts = range(0, len(joined) - OPERATION_BYTES + 1, OPERATION_BYTES)
        operations = [joined[start : start + OPERATION_BYTES] for start in starts]
        return self.head + b"".join(without_needless(operations, lambda some: self.fails([b"".join(some)])))
