"""Results as files; if one cannot be written, that is an error in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path

from hakmem_lab.errors import LabError

NAMES_AS_THEY_ARE = "surrogateescape"
"""Files and arguments may have names that are not UTF-8: their bytes are written unchanged."""


def text_write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, errors=NAMES_AS_THEY_ARE)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error


def text_read(path: Path) -> str:
    """Reads what text_write wrote."""
    return path.read_text(errors=NAMES_AS_THEY_ARE)


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
