"""Information that a shared object has about itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from hakmem_lab.errors import LabError

MARK = b"\x7fELF"
WIDTH_AND_ORDER, MACHINE = slice(4, 6), slice(18, 20)
"""Of a file's first bytes."""


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identity(path: Path) -> str:
    """Of any file, as it is shown."""
    return sha256(path)[:16]


def build_id(path: Path) -> str:
    """The linker's build id; the start of the file's SHA-256 if it has none."""
    try:
        with path.open("rb") as file:
            section = ELFFile(file).get_section_by_name(".note.gnu.build-id")
            if section is not None:
                for note in section.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])
    except ELFError as error:
        raise LabError(f"{path.name} is not a shared object: {error}") from error
    return f"sha256:{sha256(path)[:20]}"


def compilers(path: Path) -> str:
    """The compilers named in its .comment section."""
    try:
        with path.open("rb") as file:
            section = ELFFile(file).get_section_by_name(".comment")
            if section is None:
                return "unknown"
            parts = section.data().decode("ascii", "replace").split("\0")
    except ELFError as error:
        raise LabError(f"{path.name} is no program or library: {error}") from error
    return ", ".join(sorted({part for part in parts if part})) or "unknown"


def machine(path: Path) -> bytes:
    """What tells the machines apart that it may be built for: width of addresses, order of bytes, processor. Empty when
    it is no ELF file, or cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(MACHINE.stop)
    except OSError:
        return b""
    return head[WIDTH_AND_ORDER] + head[MACHINE] if head.startswith(MARK) else b""


def defined(path: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Those of the NAMES that it exports; none if it is not an ELF file."""
    try:
        with path.open("rb") as file:
            image = ELFFile(file)
            table = image.get_section_by_name(".gnu.hash") or image.get_section_by_name(".hash")
            if table is None:
                return ()
            found = ((name, table.get_symbol(name)) for name in names)
            return tuple(
                name for name, symbol in found if symbol is not None and symbol["st_shndx"] != "SHN_UNDEF"
            )
    except ELFError:
        return ()
