"""Results as files; if one cannot be written, that is an error in one line."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE

from hakmem_lab.errors import LabError

ENCODING = "utf-8"
"""Of our files, whatever the user's locale: pages declare it, and another user reads them."""

NAMES_AS_THEY_ARE = "surrogateescape"
"""Files and arguments may have names that are not UTF-8: their bytes are written unchanged."""

IN_PLACE_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
"""What a folder says that lets nothing be made in it, or a file that is mounted on its own."""


def text_write(path: Path, text: str) -> None:
    """A file is replaced as a whole, once all of TEXT is on the disk. What takes what comes, such as a pipe, gets it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if _takes_what_comes(path) or not _replaced(path.resolve(), text):
            path.write_text(text, ENCODING, NAMES_AS_THEY_ARE)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error


def _takes_what_comes(path: Path) -> bool:
    """A device, a pipe, or a descriptor of a process, which keeps what it has open."""
    return path.exists() and (not path.is_file() or path.absolute().parts[1] in ("dev", "proc"))


def _replaced(path: Path, text: str) -> bool:
    """False where the file may be changed, but nothing beside it."""
    try:
        _replace(path, text)
    except OSError as error:
        if error.errno not in IN_PLACE_ONLY:
            raise
        return False
    return True


def _replace(path: Path, text: str) -> None:
    """An earlier file must be one that may be written; its owner and its mode stay."""
    beside = path.with_name(f".{token_hex(8)}.tmp")
    try:
        with beside.open("x", encoding=ENCODING, errors=NAMES_AS_THEY_ARE) as file:
            if path.exists():
                with path.open("ab") as earlier:
                    kept = os.fstat(earlier.fileno())
                os.fchown(file.fileno(), kept.st_uid, kept.st_gid)
                os.fchmod(file.fileno(), S_IMODE(kept.st_mode))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:  # also when the disk is full, or the user interrupts
        beside.unlink(missing_ok=True)


def earlier_remove(path: Path) -> None:
    """What an earlier command left at PATH, where this one has no result for it; a device or a pipe stays."""
    try:
        if path.is_file():
            path.unlink()
    except OSError as error:
        raise LabError(f"{path} is of an earlier command, and cannot be removed: {error.strerror}") from error


def text_read(path: Path) -> str:
    """Reads what text_write wrote."""
    return path.read_text(ENCODING, NAMES_AS_THEY_ARE)


def target_check(path: Path | None) -> Path | None:
    """The PATH that a user gave for a result, if a file can be written there; checked before anything is measured.
    Nothing is left behind, and folders are not created."""
    if path is None:
        return None
    try:
        kept = path.exists()
        if kept and not (path.is_file() or path.is_dir()):
            return path  # a device or a pipe takes what comes, once
        with path.open("ab"):
            pass
        if not kept:
            path.resolve().unlink()  # a link that led nowhere stays
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error
    return path


def json_write(path: Path, content: object) -> None:
    """JSON has no infinity: the end of an interval that too few pairs leave unbounded is null."""
    text_write(path, json.dumps(finite(content), indent=1, default=str, allow_nan=False) + "\n")


def finite(content: object) -> object:
    """With null for every number that is not finite."""
    if isinstance(content, dict):
        return {name: finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
