"""hakmem's options in its own notation: values with units, what each accepts, and the nearest name for a wrong one.

What an option's number means (its unit, its words) is read from the process or from the library, so that it is
right for whichever version of hakmem runs there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

PREFIX = "HAKMEM_"
MESSAGE = "hakmem: "
"""How a line of the library's begins."""
WHOLE_LETTERS = 44
"""Of a name or value the library repeats at least so many."""
LIST = "conf"
PROFILE = "profile"
"""HAKMEM_CONF: settings of several options."""
SMALL_MAX_BYTES = 1 << 16
"""Larger blocks of a size class are medium ones: each is a slab by itself."""
NAME_BYTES_MAX = 32
"""Characters of a wrong name that are compared."""

SOURCES = ("default", "objective", "profile", "file", "program", "conf", "environment", "api")
"""Weakest first."""


class Kind(IntEnum):
    BOOL = 0
    COUNT = 1
    BYTES = 2
    MILLISECONDS = 3
    CHOICE = 4
    PATH = 5
    DEPTHS = 6


UNITS: Mapping[Kind, tuple[tuple[str, int], ...]] = {
    Kind.COUNT: (("", 1),),
    Kind.DEPTHS: (("", 1),),
    Kind.BYTES: (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)),
    Kind.MILLISECONDS: (("min", 60000), ("s", 1000), ("ms", 1)),
}
"""The largest first; the last is the base unit."""


@dataclass(frozen=True)
class OptionInfo:
    """A row of the library's table of options."""

    name: str
    kind: Kind
    anytime: bool
    """hak_option_set may change it."""
    minimum: int
    maximum: int
    word: str
    """Words accepted in addition to numbers; empty if there are none."""
    word_value: int
    choices: tuple[str, ...]
    initial: int
    cost: str
    text: str

    def format(self, value: int) -> str:
        """In the largest unit that divides it."""
        if self.kind is Kind.BOOL:
            return "on" if value else "off"
        if self.kind is Kind.CHOICE:
            return self.choices[value]
        if self.kind is Kind.PATH:
            return ""
        if self.word and value == self.word_value:
            return self.word
        units = UNITS[self.kind]
        suffix, factor = next((one for one in units if value >= one[1] and value % one[1] == 0), units[-1])
        return f"{value // factor}{suffix}"

    def format_depths(self, depths: Mapping[int, int]) -> str:
        """By block size, for every class: one number if all small classes have it and no other class has any; 0
        where it is not set."""
        small = {depth for size, depth in depths.items() if size <= SMALL_MAX_BYTES}
        if len(small) == 1 and not any(depth for size, depth in depths.items() if size > SMALL_MAX_BYTES):
            return self.format(small.pop())
        return "+".join(f"{size}:{depth}" for size, depth in depths.items() if depth)

    def describe(self) -> str:
        """What it accepts."""
        if self.kind is Kind.BOOL:
            return "on or off"
        if self.kind is Kind.PATH:
            return "a path"
        if self.kind is Kind.CHOICE:
            return " or ".join(part for part in (", ".join(self.choices[:-1]), self.choices[-1]) if part)
        text = f"{self.format(self.minimum)} to {self.format(self.maximum)}"
        if self.kind is Kind.DEPTHS:
            return f"{text}, {self.word}, or by the size of blocks: 64:512+1040:128"
        return f"{text}, or {self.word}" if self.word else text


@dataclass(frozen=True)
class Option:
    """An option in force."""

    name: str
    value: str
    source: str
    default: str
    decided: str
    """What was decided at run time instead of the value; empty if the value is in force."""
    accepts: str
    anytime: bool
    text: str
    cost: str

    @property
    def is_default(self) -> bool:
        return self.source == SOURCES[0]


@dataclass(frozen=True)
class Mistake:
    """A setting that the library does not know or did not understand."""

    setting: str
    """As its user wrote it: HAKMEM_STAT, or HAKMEM_CONF: stat."""
    value: str
    nearest: str
    """Empty if the name is right and the value is not."""
    accepts: str
    told: str = ""
    """The library's own line, of what the environment does not show."""

    @property
    def line(self) -> str:
        if self.told:
            return self.told
        if not self.nearest:
            return f"{self.setting}={self.value} is not understood and is ignored; it takes {self.accepts}"
        accepts = f" ({self.accepts})" if self.accepts else ""
        return f"{self.setting} is not an option and is ignored; the nearest is {self.nearest}{accepts}"


def mistakes_find(
    environment: Mapping[str, str], options: Iterable[Option], others: Iterable[str]
) -> list[Mistake]:
    """Among the HAKMEM_ variables in ENVIRONMENT. OTHERS are variables that are not options."""
    by_name = {option.name: option for option in options}
    known = [*by_name, *others]
    found: list[Mistake | None] = []
    for variable, value in sorted(environment.items()):
        name = variable.removeprefix(PREFIX)
        if name == variable:
            continue
        if name == LIST.upper():
            found += [_mistake_in_list(item, by_name) for item in value.split(",") if item.strip()]
        elif name != name.upper() or name.lower() not in known:
            near = nearest(name, known)
            accepts = by_name[near].accepts if near in by_name else ""
            found.append(Mistake(variable, value, PREFIX + near.upper(), accepts))
        elif name.lower() in by_name and value.strip():
            found.append(_misunderstood(variable, value, by_name[name.lower()], "environment"))
    return [mistake for mistake in found if mistake is not None]


def _mistake_in_list(item: str, by_name: Mapping[str, Option]) -> Mistake | None:
    name, _, value = (part.strip() for part in item.replace("=", ":", 1).partition(":"))
    where = f"{PREFIX}{LIST.upper()}: {name}"
    if name.lower() in by_name:
        return _misunderstood(where, value, by_name[name.lower()], "conf")
    near = nearest(name, by_name)
    return Mistake(where, value, near, by_name[near].accepts)


def _misunderstood(setting: str, value: str, option: Option, source: str) -> Mistake | None:
    """A setting that was understood is in force, unless a stronger one is. A profile's file may have been understood, and
    not be usable: see profiles_ignored."""
    if _outweighs(option, source) or (option.name == PROFILE and "/" in value):
        return None
    return Mistake(setting, value, "", option.accepts)


def _outweighs(option: Option, source: str) -> bool:
    return SOURCES.index(option.source) >= SOURCES.index(source)


def profiles_ignored(environment: Mapping[str, str], profile: Option) -> list[str]:
    """Files that ENVIRONMENT names for the option PROFILE and that could not be used: what is in force is weaker."""
    listed = (
        item.replace("=", ":", 1).partition(":")
        for item in environment.get(PREFIX + LIST.upper(), "").split(",")
    )
    named = [("environment", environment.get(PREFIX + PROFILE.upper(), ""))]
    named += [("conf", value) for name, _, value in listed if name.strip().lower() == PROFILE]
    return [file.strip() for source, file in named if "/" in file and not _outweighs(profile, source)]


def mistakes_told(errors: str, found: Sequence[Mistake]) -> list[Mistake]:
    """Those that the library named on standard error (ERRORS) and that are not FOUND: of a profile's file, of the
    program's hakmem_conf."""
    lines = (line.removeprefix(MESSAGE) for line in errors.splitlines() if line.startswith(MESSAGE))
    settings = tuple(mistake.setting.lower()[:WHOLE_LETTERS] for mistake in found)
    return [
        Mistake(line.partition(" is ")[0], "", "", "", line)
        for line in lines
        if not line.lower().startswith(settings)
    ]


def nearest(word: str, names: Iterable[str]) -> str:
    """The first of those with the fewest edits."""
    return min(names, key=lambda name: distance(word, name))


def distance(word: str, name: str) -> int:
    """Insertions, deletions, replacements and swaps of neighbours, ignoring case; 1 if NAME contains WORD, of three
    letters or more: HAKMEM_CACHE means thread_cache."""
    word, name = word.lower()[:NAME_BYTES_MAX], name.lower()
    if 3 <= len(word) < len(name) and word in name:
        return 1
    rows = [list(range(len(name) + 1))]
    for i, letter in enumerate(word, start=1):
        above, row = rows[-1], [i]
        for j, other in enumerate(name, start=1):
            least = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == name[j - 2] and other == word[i - 2]:
                least = min(least, rows[-2][j - 2] + 1)
            row.append(least)
        rows.append(row)
    return rows[-1][-1]
