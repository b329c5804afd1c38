"""What peers.toml says about each peer: which package of which registry, and how it becomes a library."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from hakmem_lab.allocators.recipes import Recipe
from hakmem_lab.checkout import machine
from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING

LOCK = Path(__file__).with_name("peers.toml")


@dataclass(frozen=True)
class Package:
    registry: str
    """wheel, deb or crate."""
    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.registry} {self.name} {self.version}"


@dataclass(frozen=True)
class Pinned:
    """One peer of the lock on this kind of machine."""

    name: str
    family: str
    """The peer whose library it uses; itself, unless it is the same library with another environment."""
    version: str
    package: Package
    library: str
    """Its path in the package or, with a recipe, in what the recipe builds."""
    library_sha256: str | None = None
    """None: it is built here, and compilers differ."""
    recipe: Recipe | None = None
    flags: str = ""
    note: str = ""
    proof: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.name} ({self.package})"

    @property
    def fingerprint(self) -> str:
        """Changes with everything that the library depends on, so that a new pin never finds an old library."""
        recipe = astuple(self.recipe) if self.recipe else ()
        made_of = (*astuple(self.package), self.library, self.library_sha256, recipe, machine())
        return hashlib.sha256(repr(made_of).encode()).hexdigest()


def pinned_names(lock: Path = LOCK) -> list[str]:
    return list(tomllib.loads(lock.read_text(ENCODING)))


def pinned_note(name: str, lock: Path = LOCK) -> str:
    """What a reader must know beside its figures; nothing for a peer that is not pinned. The same on any machine."""
    entries = tomllib.loads(lock.read_text(ENCODING))
    entry = entries.get(name, {})
    other = entries.get(entry.get("same_as", ""), {})
    return str(entry.get("note", other.get("note", "")))


def pinned_read(name: str, lock: Path = LOCK) -> Pinned:
    entries = tomllib.loads(lock.read_text(ENCODING))
    entry = entries[name]
    if "same_as" not in entry:
        return _library_read(name, entry)
    other = _library_read(entry["same_as"], entries[entry["same_as"]])
    note, proof = entry.get("note", other.note), entry.get("proof", other.proof)
    environment = tuple(entry["environment"].items())
    return replace(other, name=name, note=note, proof=proof, environment=environment)


def _library_read(name: str, entry: dict[str, Any]) -> Pinned:
    words = {key: entry[key] for key in ("flags", "note", "proof") if key in entry}
    build = entry.get("build")
    recipe = Recipe.of(build) if build else None
    pins = entry if recipe else entry.get(machine())
    if pins is None:
        raise LabError(f"{name} {entry['version']} is not pinned for {machine()}")
    package = Package(entry["registry"], entry["package"], entry["package_version"], pins["package_sha256"])
    library = recipe.library if recipe else pins["library"]
    return Pinned(name, name, entry["version"], package, library, pins.get("library_sha256"), recipe, **words)
