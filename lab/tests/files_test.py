from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hakmem_lab.errors import LabError
from hakmem_lab.files import text_read, text_write

LAB = Path(__file__).resolve().parents[1]
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


def test_texts_are_utf_8_in_every_locale(tmp_path: Path) -> None:
    """Pages declare it. This locale has ASCII alone."""
    program = """
import sys
from pathlib import Path
from hakmem_lab.files import text_read, text_write
from hakmem_lab.measure.samples import RowWriter
from hakmem_lab.workloads.programs.file import program_read

folder, text = Path(sys.argv[1]), "\\u00e9 \\u2192 \\udcff"
text_write(folder / "page", text)
assert text_read(folder / "page") == text
writer = RowWriter(folder / "rows", ["\\u00e9 \\u2192 \\udcff"])
writer.write(["1"])
writer.close()
assert program_read(folder / "mine.toml").about == "caf\\u00e9"
"""
    (tmp_path / "mine.toml").write_text('about = "caf\u00e9"\n[run]\ncommand = ["true"]\n', "utf-8")
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(LAB)}
    command = [sys.executable, "-B", "-c", program, str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "page").read_bytes() == "\u00e9 \u2192 ".encode() + b"\xff"
    assert (tmp_path / "rows").read_bytes() == "\u00e9 \u2192 ".encode() + b"\xff\n1\n"


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
