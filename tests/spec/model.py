"""The model of state_machine.py: which blocks are in use, what they hold, and which rule of rules.h an answer breaks."""

import ctypes
import random
import re
from bisect import bisect
from dataclasses import dataclass
from errno import EINVAL, ENOMEM
from pathlib import Path

from library import PTRDIFF_MAX, UNTOUCHED, Library, error_name

NOISE = random.Random(1).randbytes(1 << 22)
MUCH_BYTES = 1 << 28  # there may be no memory for it


def read_rules() -> dict[str, str]:
    """The sentences of rules.h by their names. Long ones stand there in pieces."""
    text = re.sub(r'"\s*\\\s*"', "", (Path(__file__).parent / "rules.h").read_text())
    return dict(re.findall(r'RULE\((\w+), "(.*?)"\)', text))


RULES = read_rules()


class BreachError(AssertionError):
    """A rule of rules.h is broken."""


def demand(condition: bool, rule_name: str, detail: str) -> None:
    sentence = RULES[rule_name]  # a rule that rules.h does not have is a mistake of ours
    if not condition:
        raise BreachError(f"FAIL {rule_name}: {detail}\n     the rule: {sentence}")


@dataclass
class Block:
    """A block in use: where, how long, and which noise was written to it."""

    address: int
    usable: int
    asked: int
    alignment: int
    key: int

    def noise(self, size: int) -> bytes:
        return NOISE[self.key : self.key + size]

    def write(self) -> None:
        ctypes.memmove(self.address, self.noise(self.usable), min(self.usable, len(NOISE) - self.key))

    def holds(self, address: int, limit: int) -> bool:
        """Whether what was written below LIMIT is now at ADDRESS."""
        written = self.noise(min(limit, self.usable))
        return ctypes.string_at(address, len(written)) == written


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


class Model:
    """What is known of the allocator, and the judgement of what it answers."""

    library: Library

    def __init__(self) -> None:
        super().__init__()
        self.in_use: dict[int, Block] = {}
        self.addresses: list[int] = []  # of the same, in order
        self.may_refuse = False
        self.last_key = 0

    def check_errno(self, name: str, error: int) -> None:
        demand(error == UNTOUCHED, "errno_kept", f"{name} set errno to {error_name(error)}")

    def usable_size(self, address: int) -> int:
        usable, error = self.library.call("usable_size", address)
        self.check_errno("usable_size", error)
        return usable

    def check_refusal(self, call: str, error: int, due_error: int, size: int, alignment: int) -> None:
        much = size > MUCH_BYTES or alignment > MUCH_BYTES
        if due_error == 0:
            demand(self.may_refuse or much, "reason", f"{call} was refused with {error_name(error)}")
        demand(error == (due_error or ENOMEM), "says_why", f"{call} says {error_name(error)}")

    def take_in(self, address: int, size: int, alignment: int) -> Block:
        alignment = max(alignment, 16)
        usable = self.usable_size(address)
        demand(address % alignment == 0, "aligned", f"{address:#x} is not aligned to {alignment}")
        demand(usable >= max(size, 1), "enough", f"{usable} of {size} bytes")
        place = bisect(self.addresses, address)
        for neighbour in self.addresses[max(0, place - 1) : place + 1]:
            other = self.in_use[neighbour]
            apart = address + usable <= other.address or other.address + other.usable <= address
            demand(apart, "apart", f"{usable} bytes at {address:#x}, and {other}")
        self.last_key = (self.last_key + 7919) % 65536
        block = Block(address, usable, size, alignment, self.last_key)
        block.write()
        self.in_use[address] = block
        self.addresses.insert(place, address)
        return block

    def leave_out(self, block: Block) -> None:
        del self.in_use[block.address]
        self.addresses.remove(block.address)

    def check(self, block: Block) -> None:
        usable = self.usable_size(block.address)
        demand(usable == block.usable, "stable", f"{usable} bytes, and before {block}")
        demand(block.holds(block.address, block.usable), "kept", f"the contents of {block}")

    def judge_new(
        self, call: str, address: int, error: int, due_error: int, cause: str, size: int, alignment: int
    ) -> Block | None:
        """The block, if there is one."""
        if address == 0:
            self.check_refusal(call, error, due_error, size, alignment)
            return None
        self.check_errno(call, error)
        demand(due_error == 0, cause, f"{call} gives {address:#x}")
        return self.take_in(address, size, alignment)

    @staticmethod
    def due(size: int, alignment_is_good: bool = True) -> tuple[int, str]:
        """The error that is due, and the rule that says so."""
        if not alignment_is_good:
            return EINVAL, "bad_alignment"
        return (ENOMEM if size > PTRDIFF_MAX else 0), "too_large"
