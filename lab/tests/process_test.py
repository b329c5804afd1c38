from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hakmem_lab.errors import LabError
from hakmem_lab.sight.mappings import mappings_parse, mappings_with_owners
from hakmem_lab.sight.memory import Residency, memory_open, runs
from hakmem_lab.sight.objects import objects_read
from hakmem_lab.sight.process import Limit, Process, ProcessGoneError, process_open
from toolbox import compile_c

# ---- the kernel's texts -----------------------------------------------------------------------------------

SMAPS = """\
55d0c0000000-55d0c0001000 r--p 00000000 fd:01 1234                       /usr/bin/a b
Size:                  4 kB
KernelPageSize:        4 kB
Rss:                   4 kB
Shared_Clean:          1 kB
Shared_Dirty:          2 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
55d0c0001000-55d0c0003000 rw-p 00000000 00:00 0
Rss:                   8 kB
Anonymous:             8 kB
AnonHugePages:      2048 kB
Swap:                 16 kB
Locked:                8 kB
55d0c0004000-55d0c0005000 rw-p 00000000 00:00 0                          [anon:a name]
Rss:                   0 kB
"""


def test_mappings() -> None:
    file, behind, named = mappings_parse(SMAPS)
    assert (file.name, file.is_file, file.is_executable, file.rss, file.shared) == (
        "/usr/bin/a b",
        True,
        False,
        4096,
        3072,
    )
    assert (behind.name, behind.anonymous, behind.huge, behind.swap, behind.locked) == (
        "",
        8192,
        2 << 20,
        16384,
        8192,
    )
    assert named.name == "[anon:a name]"
    assert not named.rss


def test_what_follows_a_file_is_its_own() -> None:
    owners = [owner for _mapping, owner in mappings_with_owners(mappings_parse(SMAPS))]
    assert owners == ["/usr/bin/a b", "/usr/bin/a b", ""]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], []),
        ([False], []),
        ([True], [(0, 1)]),
        ([True, True, False, True], [(0, 2), (3, 4)]),
        ([False, True, False], [(1, 2)]),
    ],
)
def test_runs(flags: list[bool], expected: list[tuple[int, int]]) -> None:
    assert list(runs(np.array(flags, np.bool_))) == expected


# ---- this process -----------------------------------------------------------------------------------------


@pytest.fixture
def own() -> Process:
    return process_open(os.getpid())


def test_what_is_known_of_it(own: Process) -> None:
    assert own.program() == Path(sys.executable).resolve()
    assert own.status()["Pid"] == str(os.getpid())
    assert own.limits()["Max open files"].soft
    assert isinstance(own.limits()["Max address space"], Limit)
    assert own.mapping_count() > 10


def test_a_thread_that_waits_has_a_stack(own: Process) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        deadline = time.monotonic() + 10
        found = None
        while not found and time.monotonic() < deadline:
            found = next((one for one in own.threads() if one.number == thread.native_id and one.stack), None)
        assert found is not None
        assert any(mapping.holds(found.stack) for mapping in own.mappings())
    finally:
        end.set()
        thread.join()


def test_memory_is_read_as_it_stands(own: Process) -> None:
    text = ctypes.create_string_buffer(b"so it is\0and more", 6000)
    with memory_open(own) as memory:
        address = ctypes.addressof(text)
        assert memory.read(address, 8) == b"so it is"
        assert memory.string(address) == "so it is"
        assert memory.string(0) == ""
        with pytest.raises(LabError, match="has nothing at"):
            memory.read(4096, 8)


def test_what_was_never_touched_is_not_brought_in(own: Process) -> None:
    """It reads as zero; and afterwards it is as untouched as before."""
    pages = 64
    area = mmap.mmap(-1, pages * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    address = ctypes.addressof((ctypes.c_char * len(area)).from_buffer(area))
    area[5 * mmap.PAGESIZE] = 7
    with memory_open(own) as memory:
        end = address + len(area)
        found = memory.read_present(address + 10, len(area) - 10)
        assert (found[5 * mmap.PAGESIZE - 10], sum(found)) == (7, 7)
        present = Residency(memory, own.mappings()).pages(address, end)
        assert np.flatnonzero(present).tolist() == [5]


def test_the_page_of_zeros_is_nobodys(own: Process) -> None:
    """Memory that is read and never written is present, and not resident."""
    area = mmap.mmap(-1, 4 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    address = ctypes.addressof((ctypes.c_char * len(area)).from_buffer(area))
    area[0] = 1
    assert area[mmap.PAGESIZE] == 0
    with memory_open(own) as memory:
        assert Residency(memory, own.mappings()).resident(address, address + len(area)) == mmap.PAGESIZE


# ---- refusals ---------------------------------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_no_such_process() -> None:
    with pytest.raises(ProcessGoneError, match="there is no process 4194305"):
        process_open(4194305)


def test_a_zombie(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessGoneError, match="has ended: what is left of it waits for its parent"):
        process_open(sleeper.pid)


LEFT = """
#include <pthread.h>
#include <unistd.h>
static void *stay(void *unused) { pause(); return unused; }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, stay, NULL);
    pthread_exit(NULL);
}
"""


def test_a_process_whose_main_thread_has_ended(tmp_path: Path) -> None:
    program = compile_c(tmp_path / "left", LEFT, "-pthread")
    with subprocess.Popen([program]) as child:
        try:
            deadline = time.monotonic() + 10
            while " Z " not in Path(f"/proc/{child.pid}/stat").read_text() and time.monotonic() < deadline:
                time.sleep(0.01)
            process = process_open(child.pid)
            assert (process.program(), process.name) == (program, "left")
            assert process.environment() and process.status()["VmRSS"] and process.mapping_count()
            with memory_open(process) as memory:
                first = process.mappings()[0]
                assert memory.read(first.start, 4) == b"\x7fELF"
                assert str(program) in [one.path for one in objects_read(memory, process.mappings())]
        finally:
            child.kill()
            child.wait()
        with pytest.raises(ProcessGoneError):
            process_open(child.pid)


def test_one_that_ends_while_it_is_read(sleeper: subprocess.Popen[bytes]) -> None:
    time.sleep(0.05)
    process = process_open(sleeper.pid)
    with memory_open(process) as memory:
        address = process.mappings()[0].start
        assert memory.read(address, 4) == b"\x7fELF"
        sleeper.kill()
        sleeper.wait()
        with pytest.raises(ProcessGoneError, match="ended while it was read"):
            memory.read(address, 4)
        with pytest.raises(ProcessGoneError):
            process.mappings()


def test_a_thread_is_not_a_process(own: Process) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        with pytest.raises(
            LabError, match=rf"{thread.native_id} is a thread of process {own.pid}: give that"
        ):
            process_open(thread.native_id or 0)
    finally:
        end.set()
        thread.join()


def test_a_thread_of_the_kernel() -> None:
    if not Path("/proc/2/comm").exists() or Path("/proc/2/comm").read_text() != "kthreadd\n":
        pytest.skip("no thread of the kernel is to be seen from this container")
    with pytest.raises(LabError, match="2 is a thread of the kernel"):
        process_open(2)


def test_a_program_of_32_bits(tmp_path: Path) -> None:
    folder = tmp_path / "77"
    folder.mkdir()
    (folder / "status").write_text("Name:\told\nState:\tS (sleeping)\nTgid:\t77\n")
    (folder / "stat").write_text("77 (old) S 1 1 1 0 -1 4194304 0 0 0 0\n")
    (folder / "exe").write_bytes(b"\x7fELF\x01\x01\x01")
    with pytest.raises(LabError, match="process 77 is a 32-bit program"):
        process_open(77, tmp_path)


@pytest.mark.parametrize(
    ("owner", "scope", "euid", "line"),
    [
        (1000, 0, 2000, "process 77 belongs to another user"),
        (1000, 1, 1000, r"others than its parents \(kernel.yama.ptrace_scope is 1\)"),
        (1000, 0, 1000, "it has more rights than you"),
        (1000, 0, 0, "not even by root"),
    ],
)
def test_what_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, scope: int, euid: int, line: str
) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77/status").write_text(f"Uid:\t{owner}\t{owner}\t{owner}\t{owner}\n")
    (tmp_path / "sys/kernel/yama").mkdir(parents=True)
    (tmp_path / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    process = Process(77, tmp_path)
    with pytest.raises(LabError, match=line), process.reading():
        raise PermissionError


@pytest.mark.parametrize(
    ("euid", "line"), [(1000, r"is hidden from you \(hidepid\)"), (0, "not even by root")]
)
def test_one_that_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, euid: int, line: str) -> None:
    """Under hidepid=1 its folder is seen, and nothing in it can be read."""

    def refuse(_path: Path, **_options: str) -> str:
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "77").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(LabError, match=f"process 77 .*{line}"):
        process_open(77, tmp_path)
