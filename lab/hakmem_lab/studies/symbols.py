"""Names for addresses: what a library's debug information and its symbols say about its code and its variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.errors import LabError
from hakmem_lab.processes import program_run

TOOL_SECONDS = 120

WORD_BYTES = 8
"""The simulator reports data by words."""


@dataclass(frozen=True)
class Variable:
    start: int
    bytes: int
    name: str

    def touches(self, word: int) -> bool:
        return self.start < word + WORD_BYTES and word < self.start + self.bytes


class Symbols:
    """What a library's debug information and symbols say about addresses in it."""

    def __init__(self, library: Path) -> None:
        self._library = library
        self._code: dict[int, str] = {}
        self._variables = variables_read(tool_output(["nm", "-S", "-n", "--defined-only", str(library)]))

    def learn(self, addresses: Sequence[int]) -> None:
        """Looks up all of these return addresses together."""
        new = sorted(set(addresses) - self._code.keys())
        if not new:
            return
        # The instruction before the return is the call, and of the line that is meant.
        asked = "".join(f"{address - 1:#x}\n" for address in new)
        told = tool_output(["addr2line", "-a", "-f", "-i", "-e", str(self._library)], asked)
        self._code |= dict(zip(new, code_read(told), strict=True))

    def code(self, address: int) -> str:
        return self._code[address]

    def variable(self, word: int) -> str | None:
        """The first variable that has a part of the word at this address."""
        return variable_find(self._variables, word)


def tool_output(command: Sequence[str], asked: str = "") -> str:
    done = program_run(command, TOOL_SECONDS, given=asked)
    if done.status != 0:
        raise LabError(f"{command[0]} ended with {done.status}{done.said}")
    return done.output


def variables_read(text: str) -> tuple[Variable, ...]:
    """The data symbols in the output of `nm -S`: its lines are address, bytes, kind and name."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 4 and words[2] in "bBdDrR":
            found.append(Variable(int(words[0], 16), int(words[1], 16), words[3].partition(".")[0]))
    return tuple(found)


def variable_find(variables: Iterable[Variable], word: int) -> str | None:
    return next((one.name for one in variables if one.touches(word)), None)


def code_read(text: str) -> list[str]:
    """One name for each address in the output of `addr2line -a -f -i`. Of the functions that were inlined into one
    another there, it has the innermost that is not from a header, and the outermost: `function in caller,
    file:line`."""
    named: list[str] = []
    frames: list[tuple[str, str]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("0x"):
            if frames:
                named.append(frame_choose(frames))
            frames = []
            continue
        frames.append((line, next(lines, "??:0")))
    if frames:
        named.append(frame_choose(frames))
    return named


def frame_choose(frames: Sequence[tuple[str, str]]) -> str:
    function, place = next((one for one in frames if ".c:" in one[1]), frames[0])
    file, _, line = place.partition(" (")[0].rpartition(":")
    # A planted source is a copy that lies elsewhere.
    short = "/".join(Path(file).parts[-2:]) if "/src/" in file else Path(file).name
    # A compiler calls its copies and parts of a function NAME.part.0 and the like.
    inner, outer = function.partition(".")[0], frames[-1][0].partition(".")[0]
    return f"{inner if inner == outer else f'{inner} in {outer}'}, {short}:{line}"
