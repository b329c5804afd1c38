"""Reads the straight fast path of a function out of a shared object.

The fast path is what runs when no conditional branch is taken: from the entry, through unconditional
jumps, to the first `ret`. x86-64 only.
"""

import re
import subprocess
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t([^#]*?)(?:\s*# [0-9a-f]+ <(.+)>)?\s*$")
TARGET = re.compile(r"([0-9a-f]+) <(.+?)(\+0x[0-9a-f]+)?>$")
PREFIXES = ("lock ", "rep ", "repz ", "notrack ", "bnd ", "cs ", "data16 ")
LONGEST = 200


@dataclass(frozen=True)
class Instruction:
    address: int
    text: str  # as objdump prints it, in Intel syntax
    symbol: str | None  # what a rip-relative operand names

    @property
    def mnemonic(self) -> str:
        text = self.text
        for prefix in PREFIXES:
            text = text.removeprefix(prefix)
        return text.split()[0]

    @property
    def operands(self) -> list[str]:
        parts = self.text.split(maxsplit=1)
        return parts[1].split(",") if len(parts) == 2 else []

    @property
    def is_conditional(self) -> bool:
        return self.mnemonic.startswith("j") and self.mnemonic != "jmp"

    @property
    def target(self) -> int | None:
        match = TARGET.search(self.text)
        return int(match[1], 16) if match else None

    @property
    def reads(self) -> bool:
        if self.mnemonic in {"lea", "nop"}:
            return False
        first, *others = [*self.operands, "", ""]
        only_written = self.mnemonic.startswith(("mov", "set"))
        return (
            self.mnemonic == "pop"
            or any("PTR" in operand for operand in others)
            or ("PTR" in first and not only_written)
        )

    @property
    def writes(self) -> bool:
        compares = self.mnemonic in {"cmp", "test", "bt", "lea", "nop", "push", "jmp", "call"}
        return self.mnemonic == "push" or (not compares and "PTR" in (self.operands or [""])[0])


@dataclass
class FastPath:
    symbol: str
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def conditional_branches(self) -> int:
        return sum(instruction.is_conditional for instruction in self.instructions)

    @property
    def loads(self) -> int:
        return sum(instruction.reads for instruction in self.instructions)

    @property
    def stores(self) -> int:
        return sum(instruction.writes for instruction in self.instructions)

    def text(self) -> str:
        """The reviewed form: without addresses, which change with everything."""
        labels: dict[int, str] = {}
        lines = [
            f"{self.symbol}: {len(self.instructions)} instructions, "
            f"{self.conditional_branches} conditional branches, "
            f"{self.loads} loads, {self.stores} stores"
        ]
        for instruction in self.instructions:
            text = instruction.text
            if instruction.target is not None:
                label = labels.setdefault(instruction.target, f"slow_{len(labels) + 1}")
                text = f"{instruction.mnemonic} {label}"
            text = re.sub(r"\[rip[+-]0x[0-9a-f]+\]", "[rip]", " ".join(text.split()))
            if instruction.symbol is not None:
                # Where an entry lies in the table depends on everything else in it.
                symbol = re.sub(r"_GLOBAL_OFFSET_TABLE_\+0x[0-9a-f]+", "GOT", instruction.symbol)
                text = f"{text}  # {symbol}"
            lines.append(f"    {text}")
        return "\n".join(lines) + "\n"


def disassemble(objdump: str, library: Path) -> dict[int, Instruction]:
    listing = subprocess.run(
        [objdump, "-d", "-M", "intel", "--no-show-raw-insn", str(library)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    code = {}
    for line in listing.splitlines():
        match = INSTRUCTION.match(line)
        if match:
            address = int(match[1], 16)
            code[address] = Instruction(address, match[2].strip(), match[3])
    return code


def entry_points(library: Path) -> dict[str, int]:
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(section, SymbolTableSection)
        return {symbol.name: symbol["st_value"] for symbol in section.iter_symbols()}


def compiler_of(library: Path) -> str:
    """Who compiled it: "GCC 12" or "clang 14"."""
    with library.open("rb") as file:
        comment = ELFFile(file).get_section_by_name(".comment").data().decode()
    clang = re.search(r"clang version (\d+)", comment)
    gcc = re.search(r"GCC: \(.*?\) (\d+)", comment)
    if clang:
        return f"clang {clang[1]}"
    return f"GCC {gcc[1]}" if gcc else "unknown"


def follow(code: dict[int, Instruction], symbol: str, entry: int) -> FastPath:
    path = FastPath(symbol)
    order = sorted(code)
    following = dict(pairwise(order))
    address: int | None = entry
    while address is not None and len(path.instructions) < LONGEST:
        instruction = code[address]
        path.instructions.append(instruction)
        if instruction.mnemonic == "ret":
            return path
        jumps = instruction.mnemonic == "jmp"
        address = instruction.target if jumps else following.get(address)
    raise ValueError(f"{symbol}: no return found on the straight path")
