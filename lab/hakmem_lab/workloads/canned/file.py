"""A canned comparison: arms, of which the first is the base, over some workloads, with a budget for each."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING
from hakmem_lab.workloads.programs.file import Table

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Canned:
    name: str
    about: str
    arms: tuple[str, ...]
    benches: tuple[str, ...]
    budget: str
    """Time for each workload."""
    note: str = ""
    limit: str = ""
    """By how much, such as 5%, the base may be slower than the best of the others; whether it stays within that is
    reported."""


def canned_read(path: Path) -> Canned:
    try:
        table = Table(str(path), tomllib.loads(path.read_text(ENCODING)))
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise LabError(f"{path} is no canned comparison: {error}") from error
    found = Canned(
        name=path.stem,
        about=table.take("about", None, str),
        arms=table.words("arms"),
        benches=table.words("benches"),
        budget=table.take("budget", None, str),
        note=table.take("note", "", str),
        limit=table.take("limit", "", str),
    )
    table.done()
    if len(found.arms) < 2:
        raise LabError(f"{path}: a comparison has two arms at least")
    return found


def canned_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def canned_find(text: str) -> Canned:
    """A name, or the path of a file FILE.toml of your own."""
    if text.endswith(".toml"):
        return canned_read(Path(text))
    names = canned_names()
    if text not in names:
        near = get_close_matches(text, names, 1, 0.5)
        hint = f", did you mean {near[0]}?" if near else f"; there are: {', '.join(names)}"
        raise LabError(f"there is no canned comparison '{text}'{hint}")
    return canned_read(FOLDER / f"{text}.toml")
