"""The libraries of pinned peers inside the checkout: made on first use, checked on every use.

Each lies in its own folder, named after everything that it depends on, beside a note of its hash. The folder
appears whole or not at all: it is filled under another name and renamed. So an interrupt leaves nothing incomplete,
and if two processes make it at the same time the second keeps the first one's.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from hakmem_lab.allocators import elf
from hakmem_lab.allocators.pins import Pinned
from hakmem_lab.allocators.recipes import library_build
from hakmem_lab.allocators.registries import package_fetch
from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING

NOTE = "made.txt"
FINGERPRINT_DIGITS = 10


def library_folder(pinned: Pinned, tools: Path) -> Path:
    """Exists once the library was made."""
    return tools / "peers" / f"{pinned.family}-{pinned.version}-{pinned.fingerprint[:FINGERPRINT_DIGITS]}"


def library_obtain(pinned: Pinned, tools: Path) -> Path:
    folder = library_folder(pinned, tools)
    library = folder / Path(pinned.library).name
    if not folder.is_dir():
        _make(pinned, folder)
    if not _intact(pinned, library):
        shutil.rmtree(folder)
        raise LabError(
            f"{pinned.name}: the library is not the one that was made of {pinned.package};"
            " it was removed, run again to make it anew"
        )
    return library


def _make(pinned: Pinned, folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix="making-") as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            library = made / Path(pinned.library).name
            shutil.copy(_library_fetch(pinned, Path(scratch)), library)
            (made / NOTE).write_text(_note(pinned, library), ENCODING)
            _keep(made, folder)
    except OSError as error:
        raise LabError(f"{pinned}: {error.strerror or error}") from error


def _keep(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _library_fetch(pinned: Pinned, scratch: Path) -> Path:
    package = package_fetch(pinned, scratch)
    if pinned.recipe is not None:
        return library_build(str(pinned), pinned.recipe, package)
    library = package / pinned.library
    if not library.is_file():
        raise LabError(f"{pinned} holds no {pinned.library}")
    found = elf.sha256(library)
    if found != pinned.library_sha256:
        raise LabError(f"{pinned}: the library's SHA-256 is {found}, pinned is {pinned.library_sha256}")
    return library


def _intact(pinned: Pinned, library: Path) -> bool:
    note = library.with_name(NOTE)
    if not (library.is_file() and note.is_file()):
        return False
    return note.read_text(ENCODING) == _note(pinned, library) and (
        pinned.library_sha256 is None or pinned.library_sha256 == elf.sha256(library)
    )


def _note(pinned: Pinned, library: Path) -> str:
    return (
        f"package {pinned.package.sha256}\nfingerprint {pinned.fingerprint}\nlibrary {elf.sha256(library)}\n"
    )
