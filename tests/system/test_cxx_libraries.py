"""The two C++ libraries: new and delete with libstdc++ are tests/preload/cxx_new.cc and tests/compat/new_handler.cc;
here the same programs are built with libc++."""

from pathlib import Path

import pytest
from toolbox import ROOT, Build, cannot_run, environment, run, tool

LIBCXX_HEADERS = Path("/usr/include/c++/v1"), Path("/usr/lib/llvm-14/include/c++/v1")


@pytest.mark.parametrize("source", ["tests/preload/cxx_new.cc", "tests/compat/new_handler.cc"])
def test_libcxx(build: Build, tmp_path: Path, source: str) -> None:
    program = tmp_path / "program"
    flags = ["-std=c++17", "-O1", "-stdlib=libc++", "-fno-builtin", "-pthread", f"-I{ROOT / 'tests'}"]
    built = run(tool("clang++"), *flags, "-o", program, ROOT / source, "-ldl")
    if built.returncode != 0 and not any(path.is_dir() for path in LIBCXX_HEADERS):
        cannot_run("needs libc++ (on Debian: apt-get install libc++-dev libc++abi-dev)")
    assert built.returncode == 0, built.stderr
    result = run(program, env=environment(LD_PRELOAD=str(build.library), EXPECT_HAKMEM="1"))
    assert result.returncode == 0, result.stdout + result.stderr
