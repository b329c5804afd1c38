"""Files that reports write."""

from __future__ import annotations

from pathlib import Path

from hakmem_lab.errors import LabError


def text_write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise LabError(f"cannot write {path.name}: {error.strerror}") from error
