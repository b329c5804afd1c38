"""Information that a shared object has about itself."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from hakmem_lab.errors import LabError

MARK = b"\x7fELF"
WIDTH_AND_ORDER, MACHINE = slice(4, 6), slice(18, 20)
"""Of a file's first bytes."""
DAMAGED = (
    ELFError,
    ConstructError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    TypeError,
    ValueError,
    zlib.error,
)
"""What reading an ELF file raises whose numbers are wrong: a place before the file's beginning is an OSError."""


class NotElfError(LabError):
    """It is no ELF file, or a damaged one."""


@contextmanager
def image_open(path: Path) -> Iterator[ELFFile]:
    """For all that is read of it. An OSError if the file cannot be opened, and a NotElfError for what is in it."""
    with path.open("rb") as file:
        try:
            yield ELFFile(file)
        except DAMAGED as error:
            why = str(error) or type(error).__name__
            raise NotElfError(f"{path.name} is not an ELF file, or a damaged one: {why}") from error


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identity(path: Path) -> str:
    """Of any file, as it is shown."""
    return sha256(path)[:16]


def build_id(path: Path) -> str:
    """The linker's build id; the start of the file's SHA-256 if it has none."""
    with image_open(path) as image:
        section = image.get_section_by_name(".note.gnu.build-id")
        for note in section.iter_notes() if section is not None else ():
            if note["n_type"] == "NT_GNU_BUILD_ID":
                return str(note["n_desc"])
    return f"sha256:{sha256(path)[:20]}"


def compilers(path: Path) -> str:
    """The compilers named in its .comment section."""
    with image_open(path) as image:
        section = image.get_section_by_name(".comment")
        data = section.data() if section is not None else b""
    parts = data.decode("ascii", "replace").split("\0")
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
        with image_open(path) as image:
            table = image.get_section_by_name(".gnu.hash") or image.get_section_by_name(".hash")
            if table is None:
                return ()
            found = [(name, table.get_symbol(name)) for name in names]
            return tuple(
                name for name, symbol in found if symbol is not None and symbol["st_shndx"] != "SHN_UNDEF"
            )
    except NotElfError:
        return ()


def has_interpreter(path: Path) -> bool:
    """Whether it asks for a dynamic linker."""
    with image_open(path) as image:
        return any(segment["p_type"] == "PT_INTERP" for segment in image.iter_segments())


def is_loader(path: Path) -> bool:
    """Whether it is glibc's dynamic linker, which a program may be started by."""
    with image_open(path) as image:
        section = image.get_section_by_name(".dynamic")
        names = section.iter_tags("DT_SONAME") if isinstance(section, DynamicSection) else ()
        return any(name.soname.startswith("ld-") for name in names)
