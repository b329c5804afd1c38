"""What the tests of src/ do not run, beside the explanations of uncovered.toml: which lines have none, and which
explanations are of nothing."""

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

EXPLANATIONS = Path(__file__).resolve().parent / "uncovered.toml"


# ---- counts -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A line that holds code; what identifies it is its text, since numbers change."""

    file: str
    function: str
    number: int
    text: str
    count: int
    branches: tuple[int, ...]

    @property
    def missed(self) -> int:
        return sum(count == 0 for count in self.branches)

    @property
    def is_gap(self) -> bool:
        return self.count == 0 or self.missed > 0

    @property
    def shortfall(self) -> str:
        if self.count == 0:
            return "never runs"
        return f"{self.missed} of {len(self.branches)} branches"


def name_of(function: str, texts: list[str]) -> str:
    """Of the functions of headers, of which every object has its own, gcov only says in which line they begin."""
    unknown = re.fullmatch(r"<unknown function (\d+)>", function)
    if unknown is None:
        return function
    named = re.search(r"(\w+)\(", texts[int(unknown[1]) - 1])
    return named[1] if named else function


def read_counts(counted: dict, root: Path) -> list[Line]:
    """The lines of a report of gcovr's, in JSON."""
    lines = []
    for file in counted["files"]:
        texts = (root / file["file"]).read_text().splitlines()
        for line in file["lines"]:
            if line.get("gcovr/noncode") or line.get("gcovr/excluded"):
                continue
            number = line["line_number"]
            branches = tuple(branch["count"] for branch in line["branches"])
            function = name_of(line.get("function_name", ""), texts)
            lines.append(
                Line(file["file"], function, number, texts[number - 1].strip(), line["count"], branches)
            )
    return lines


# ---- explanations -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A line of a function, with how many of its branches may be uncovered; without a text, all of the function."""

    file: str
    function: str
    text: str | None = None
    branches: int = 1

    def explains(self, line: Line) -> bool:
        if (self.file, self.function) != (line.file, line.function):
            return False
        if self.text is None:
            return line.count == 0
        return self.text == line.text and (line.count == 0 or line.missed <= self.branches)

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.file, self.function, self.text)))


@dataclass(frozen=True)
class Explanation:
    """Why some places are uncovered; of some it depends on what threads do at the same time whether they are."""

    why: str
    places: tuple[Place, ...]
    by_chance: bool = False


def read_explanations(path: Path) -> list[Explanation]:
    return [
        Explanation(
            entry["why"], tuple(Place(*place) for place in entry["places"]), entry.get("by_chance", False)
        )
        for entry in tomllib.loads(path.read_text())["uncovered"]
    ]


class Judgement:
    """The uncovered lines beside their explanations."""

    def __init__(self, lines: list[Line], explanations: list[Explanation]) -> None:
        self.lines = lines
        self.explanations = explanations
        self.gaps = [line for line in lines if line.is_gap]

    def explained_by(self, explanation: Explanation) -> list[Line]:
        return [line for line in self.gaps if any(place.explains(line) for place in explanation.places)]

    @cached_property
    def unexplained(self) -> list[Line]:
        explained = {line for explanation in self.explanations for line in self.explained_by(explanation)}
        return [line for line in self.gaps if line not in explained]

    @cached_property
    def needless(self) -> list[Place]:
        """Places that run, or are no more."""
        return [
            place
            for explanation in self.explanations
            for place in explanation.places
            if not (self.is_there(place) if explanation.by_chance else self.is_uncovered(place))
        ]

    def is_there(self, place: Place) -> bool:
        return any(
            (place.file, place.function, place.text) == (line.file, line.function, line.text)
            for line in self.lines
        )

    def is_uncovered(self, place: Place) -> bool:
        own = [line for line in self.lines if (line.file, line.function) == (place.file, place.function)]
        if place.text is None:
            return bool(own) and all(line.count == 0 for line in own)
        # Fewer branches than are explained: the explanation is of something that runs.
        return any(
            line.count == 0 or line.missed == place.branches
            for line in own
            if place.explains(line) and line.is_gap
        )

    @property
    def is_good(self) -> bool:
        return not self.unexplained and not self.needless
