from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hakmem_lab.errors import LabError
from hakmem_lab.files import text_read, text_write

LONG = "x" * 10_000


@contextmanager
def files_up_to(size_bytes: int) -> Iterator[None]:
    """As a full disk: the write that goes beyond it is cut off, and the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("earlier", ["before", None])
def test_what_cannot_be_written_as_a_whole_changes_nothing(tmp_path: Path, earlier: str | None) -> None:
    path = tmp_path / "result.json"
    if earlier is not None:
        path.write_text(earlier)
    with files_up_to(4096), pytest.raises(LabError, match=r"^cannot write \S+result\.json: File too large$"):
        text_write(path, LONG)
    assert [one.read_text() for one in tmp_path.iterdir()] == ([] if earlier is None else [earlier])


def test_the_file_behind_a_link_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to("target")
    text_write(link, LONG)
    assert (link.readlink(), text_read(target)) == (Path("target"), LONG)
    assert target.stat().st_mode & 0o777 == 0o640
    assert {one.name for one in tmp_path.iterdir()} == {"target", "link"}


def test_a_link_that_leads_nowhere_is_followed_and_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    other, target, link = tmp_path / "other", tmp_path / "target", tmp_path / "link"
    other.touch()
    link.symlink_to("target")
    text_write(link, LONG)
    assert (link.readlink(), text_read(target)) == (Path("target"), LONG)
    assert target.stat().st_mode == other.stat().st_mode


def test_a_descriptor_gets_what_is_written_itself(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    text_write(Path(f"/proc/self/fd/{writer}"), "some")
    assert os.read(reader, 100) == b"some"
    with (tmp_path / "open").open("w+") as file:
        text_write(Path(f"/dev/fd/{file.fileno()}"), "some")
        assert file.read() == "some"
    os.close(reader)
    os.close(writer)


def test_a_file_that_cannot_be_replaced_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is mounted by itself, or in a folder of others."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    path = tmp_path / "result.json"
    path.write_text("before")
    monkeypatch.setattr(Path, "replace", refuse)
    text_write(path, LONG)
    assert [one.read_text() for one in tmp_path.iterdir()] == [LONG]
