"""Would a loss be detected? One is planted into a copy of the sources, and `where`, `baseline check` and `ab` are
tried on it.

tests/baseline/planted_loss.toml names a text of one source file, what to put in its place, and what must be found:
the function, the entry point, and the workload that shows it.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.allocators.builds import sources_build
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING
from hakmem_lab.studies.baseline import FOLDER, Gate, Loss
from hakmem_lab.studies.where import ALLOCATOR, Diff

FILE = f"{FOLDER}/planted_loss.toml"
NEEDED = ("CMakeLists.txt", "cmake", "include", "src", "tools")
"""What of the checkout is needed to build the library."""


@dataclass(frozen=True)
class Planted:
    """A loss, and what must be found."""

    file: str
    find: str
    replace: str
    function: str
    entry: str
    bench: str
    why: str


@dataclass(frozen=True)
class Finding:
    """What one command reported about it."""

    command: str
    found: bool
    said: str


def planted_read(checkout: Checkout) -> Planted:
    path = checkout.root / FILE
    try:
        return Planted(**tomllib.loads(path.read_text(ENCODING)))
    except OSError as error:
        raise LabError(f"{path.name} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise LabError(f"{path.name} is no planted loss: {error}") from error


def planted_build(checkout: Checkout, loss: Planted, scratch: Path) -> Path:
    """The library of the checkout as it is, with the loss."""
    sources = scratch / "sources"
    sources.mkdir()
    for name in NEEDED:
        source = checkout.root / name
        if source.is_dir():
            shutil.copytree(source, sources / name)
        else:
            shutil.copy(source, sources / name)
    file = sources / loss.file
    text = file.read_text(ENCODING)
    if text.count(loss.find) != 1:
        raise LabError(
            f"{loss.file} has the text of the planted loss {text.count(loss.find)} times, not once"
        )
    file.write_text(text.replace(loss.find, loss.replace), ENCODING)
    return sources_build(checkout, "hakmem with the planted loss", sources, scratch)


def where_finding(loss: Planted, diff: Diff) -> Finding:
    """Found if its function has the largest change of the allocator's functions."""
    first = next((one for one in diff.functions if one.object == ALLOCATOR), None)
    said = "no function of the allocator changed"
    if first is not None:
        said = f"{first.name} is {first.difference:+.2f} instructions for one operation, the largest change"
    found = first is not None and first.name == loss.function and first.difference > 0
    return Finding("where --diff", found, said)


def check_finding(loss: Planted, found: Sequence[Gate], lost: Sequence[Loss]) -> Finding:
    """Found if the gate fails, and names the function and the entry point."""
    missed = sum(1 for gate in found if gate.state == "missed")
    named = any(loss.function in one.names for one in lost)
    entered = any(entry.startswith(f"{loss.entry}: ") for one in lost for entry in one.entries)
    said = f"{missed} of {len(found)} figures lost"
    said += f", in {loss.function}" if named else ""
    said += f", by {loss.entry}" if entered else ""
    return Finding("baseline check", bool(missed) and named and entered, said)
