"""Every way in which the launcher refuses to start a program, or says that hakmem did not serve it."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from toolbox import (
    TIMEOUT_SECONDS,
    Build,
    cannot_run,
    compile_c,
    environment,
    only_line,
    run,
    run_well,
    tool,
)

NOBODY = 65534
NOBODYS = "nobody" if os.geteuid() == 0 else None
OWN_MALLOC = """
#include <stddef.h>
static char heap[1 << 20];
static size_t used;
void *malloc(size_t size) { void *block = heap + used; used += (size + 15) & ~15ul; return block; }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *block, size_t size) { (void)block; return malloc(size); }
int main(void) { return malloc(8) == NULL; }
"""
E_SHOFF = slice(0x28, 0x30)
E_SHNUM = slice(0x3C, 0x3E)
E_MACHINE = slice(0x12, 0x14)


@contextmanager
def for_others(*files: Path) -> Iterator[Path]:
    """A folder with copies of these, that other users may read."""
    folder = Path(run_well("mktemp", "-d").strip())
    try:
        folder.chmod(0o755)
        run_well("cp", "-L", "--preserve=xattr,mode", *files, folder)
        yield folder
    finally:
        run_well("rm", "-r", folder)


def copy_of_true(target: Path) -> Path:
    target.write_bytes(Path("/bin/true").read_bytes())
    target.chmod(0o755)
    return target


@pytest.mark.parametrize("name", ["no-such-program", "/no/such/program", "/etc/passwd/x"])
def test_missing_program(build: Build, name: str) -> None:
    result = build.run(name)
    assert result.returncode == 127
    assert name in only_line(result.stderr)


def test_file_that_is_not_executable(build: Build, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    for name in (file, tmp_path):
        result = build.run(name)
        assert result.returncode == 126
        assert str(name) in only_line(result.stderr)
    # In PATH the search goes on behind it, and finds nothing here.
    file.rename(tmp_path / "no-such-program")
    result = build.run("no-such-program", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert result.returncode == 126
    only_line(result.stderr)


def test_a_folder_of_path_that_may_not_be_searched_says_nothing(build: Build) -> None:
    with for_others(build.launcher, build.library) as folder:
        locked = folder / "locked"
        locked.mkdir()
        locked.chmod(0 if NOBODYS is None else 0o700)
        line = (folder / "hakmem-launch", folder / "libhakmem.so", "--", "no-such-program")
        result = run(*line, env=environment(PATH=f"{locked}:/usr/bin"), user=NOBODYS)
    assert (result.returncode, result.stderr) == (127, "hakmem: no-such-program: command not found\n")


def test_missing_interpreter(build: Build, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter -x\n")
    script.chmod(0o755)
    result = build.run(script)
    assert result.returncode == 126
    assert "/no/such/interpreter" in only_line(result.stderr)


def test_static_binary(build: Build, tmp_path: Path) -> None:
    for flag in ("-static", "-static-pie"):
        program = compile_c(tmp_path / flag, "int main(void) { return 0; }", flag)
        result = build.run(program)
        assert result.returncode == 125
        assert "static" in only_line(result.stderr)


def test_the_loader_is_no_static_binary(build: Build) -> None:
    """Started by its own name it loads what it is told to, and preloads."""
    loader = re.search(rb"/lib[^\0]*/ld-[^\0]*", Path("/bin/true").read_bytes())
    assert loader is not None
    result = build.run(loader[0].decode(), "/bin/echo", "loaded")
    assert (result.returncode, result.stdout, result.stderr) == (0, "loaded\n", "")


def test_script_of_a_static_interpreter(build: Build, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "static", "int main(void) { return 0; }", "-static")
    script = tmp_path / "script"
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    result = build.run(script)
    assert result.returncode == 125
    assert str(program) in only_line(result.stderr)


def test_binary_of_another_machine(build: Build, tmp_path: Path) -> None:
    program = copy_of_true(tmp_path / "foreign")
    content = bytearray(program.read_bytes())
    content[E_MACHINE] = (0xF3).to_bytes(2, sys.byteorder)  # RISC-V
    program.write_bytes(content)
    result = build.run(program)
    assert result.returncode == 125
    assert "another machine" in only_line(result.stderr)


def test_program_with_its_own_malloc(build: Build, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "own", OWN_MALLOC)
    result = build.run(program)
    assert result.returncode == 125
    assert "its own allocator" in only_line(result.stderr)


def test_own_malloc_that_is_seen_only_at_run_time(build: Build, tmp_path: Path) -> None:
    """Without section headers the launcher knows no symbols; the library finds out."""
    program = compile_c(tmp_path / "own", OWN_MALLOC)
    content = bytearray(program.read_bytes())
    content[E_SHOFF] = bytes(8)
    content[E_SHNUM] = bytes(2)
    program.write_bytes(content)
    result = build.run(program)
    assert result.returncode == 125
    assert f"was not served by hakmem: its malloc is that of {program}" in only_line(result.stderr)


def test_library_that_never_speaks(build: Build, tmp_path: Path) -> None:
    other = compile_c(tmp_path / "other.so", "int unused;", "-shared", "-fPIC")
    result = run(build.launcher, other, "--", "true")
    assert result.returncode == 125
    assert "true was not served by hakmem" in only_line(result.stderr)


def test_missing_library(build: Build, tmp_path: Path) -> None:
    for library in (tmp_path / "none.so", Path("/etc/passwd")):
        result = run(build.launcher, library, "--", "true")
        assert result.returncode == 125
        assert str(library) in only_line(result.stderr)


def test_library_path_that_cannot_be_preloaded(build: Build, tmp_path: Path) -> None:
    library = tmp_path / "with space.so"
    library.write_bytes(build.library.read_bytes())
    result = run(build.launcher, library, "--", "true")
    assert result.returncode == 125
    assert "LD_PRELOAD cannot name" in only_line(result.stderr)


@pytest.mark.parametrize("arguments", [[], ["--stats"], ["--what"], ["lib.so"], ["lib.so", "--"]])
def test_launcher_usage(build: Build, arguments: list[str]) -> None:
    result = run(build.launcher, *arguments)
    assert result.returncode == 2
    only_line(result.stderr)


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may make such files")


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(("bit", "word"), [(0o4000, "setuid"), (0o2000, "setgid")])
def test_program_that_changes_identity(build: Build, tmp_path: Path, bit: int, word: str) -> None:
    program = copy_of_true(tmp_path / "rights")
    os.chown(program, NOBODY, NOBODY)
    program.chmod(0o755 | bit)
    result = build.run(program)
    assert result.returncode == 125
    assert word in only_line(result.stderr)


@pytest.mark.usefixtures("as_root")
def test_setuid_to_the_same_user_is_served(build: Build, tmp_path: Path) -> None:
    program = copy_of_true(tmp_path / "rights")
    program.chmod(0o4755)
    assert build.run(program).returncode == 0


@pytest.mark.usefixtures("as_root")
def test_program_with_file_capabilities(build: Build, tmp_path: Path) -> None:
    program = copy_of_true(tmp_path / "capable")
    if run(tool("setcap"), "cap_net_raw+ep", program).returncode != 0:
        cannot_run("this file system keeps no capabilities")
    with for_others(program, build.launcher, build.library) as folder:
        line = (folder / "hakmem-launch", folder / "libhakmem.so", "--", folder / "capable")
        result = run(*line, user="nobody")
    assert result.returncode == 125
    assert "capabilities" in only_line(result.stderr)


# ---- what lies where the launcher's file was -----------------------------------------------------------


def put_file(path: Path, _: Path) -> None:
    path.touch(0o600)


def put_fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)


def put_link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def put_name(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def put_file_of_another(path: Path, _: Path) -> None:
    path.touch(0o666)
    path.chmod(0o666)
    if os.geteuid() != 0:
        cannot_run("only root can make what is another user's")
    os.chown(path, NOBODY, NOBODY)


@pytest.mark.parametrize("put", [put_file, put_fifo, put_link, put_name, put_file_of_another])
def test_word_is_left_in_a_file_of_ones_own_alone(
    build: Build, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    """Programs that outlive the launcher find its file's name in their environment, and in /tmp what others put there."""
    proof, target = tmp_path / "proof", tmp_path / "target"
    target.write_text("")
    put(proof, target)
    env = build.environment(LD_PRELOAD=str(build.library), HAKMEM_PROOF=str(proof))
    assert run("/bin/true", env=env, timeout=TIMEOUT_SECONDS / 2).returncode == 0
    assert target.read_text() == ""
    if put is not put_fifo:
        assert proof.read_text().endswith(" served\n") == (put is put_file)
