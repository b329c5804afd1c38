"""fakeroot, another preloaded library, works beside hakmem: what hakmem calls before libc is initialised must not be a function
of fakeroot's, which reads the environment once, and would find none yet."""

import os
from pathlib import Path

import pytest
from toolbox import Build, tool


@pytest.mark.parametrize("variables", [{}, {"HAKMEM_TRACE_FAILURES": "1"}])
def test_owners_are_faked(build: Build, tmp_path: Path, variables: dict[str, str]) -> None:
    script = "touch file && chown 5:6 file && stat -c %u:%g file"
    variables = {"FAKEROOTDONTTRYCHOWN": "1", **variables}  # or root's chown would do it in earnest, too
    result = build.run(tool("fakeroot"), "sh", "-c", script, cwd=tmp_path, env=variables)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "5:6\n"
    assert (tmp_path / "file").stat().st_uid == os.getuid()
