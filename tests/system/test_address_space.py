"""Little address space, and memory that is promised to nobody (docs/compat.md, item 11). Limits by ulimit are in
test_bad_circumstances.py and tests/unit/api/limits_test.c, refused calls in tests/unit/api/faults_test.c."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from toolbox import Build, cannot_run, environment, run

OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
NEVER_MORE_THAN_THERE_IS = "2"
PROGRAMS = ["compat/give_and_take_back", "preload/api/threads_test", "preload/late_end"]

# Sets a value and gives the old one back when its standard input ends, however its parent ended.
KEEPER = """
import signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
path, value = sys.argv[1:]
with open(path) as file:
    before = file.read()
with open(path, "w") as file:
    file.write(value)
try:
    print("set", flush=True)
    sys.stdin.read()
finally:
    with open(path, "w") as file:
        file.write(before)
"""


def served_by_hakmem(build: Build, program: str, **variables: str) -> None:
    env = environment(EXPECT_HAKMEM="1", **({"LD_PRELOAD": str(build.library)} | variables))
    result = run(build.directory / "tests" / program, env=env)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("bits", [39, 42])
def test_fewer_addresses_have_room_for_a_window(build: Build, bits: int, tmp_path: Path) -> None:
    """Without one every block is a mapping of its own: all works, and takes a minute where it took a second."""
    report = tmp_path / "statistics.json"
    shim = build.directory / "tests/faults/libother_kernel.so"
    wanted = {"OTHER_ADDRESS_BITS": str(bits), "HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": str(report)}
    env = environment(LD_PRELOAD=f"{shim} {build.library}", PYTHONMALLOC="malloc", **wanted)
    assert run(sys.executable, "-c", "", env=env).returncode == 0
    assert json.loads(report.read_text())["spans"]["fresh_pages"] > 16


@pytest.mark.parametrize(("bits", "program"), [*((39, program) for program in PROGRAMS), (42, PROGRAMS[0])])
def test_fewer_addresses(build: Build, program: str, bits: int) -> None:
    """As with three levels of page tables, and below the place where hakmem looks first."""
    shim = build.directory / "tests/faults/libother_kernel.so"
    served_by_hakmem(build, program, LD_PRELOAD=f"{shim} {build.library}", OTHER_ADDRESS_BITS=str(bits))


def charged_bytes(maps: str) -> int:
    """What counts against the machine's memory where nothing may be promised twice, out of a text of
    /proc/PID/smaps."""
    sizes = [int(size) << 10 for size in re.findall(r"^Size: +(\d+) kB", maps, re.MULTILINE)]
    flags = re.findall(r"^VmFlags: (.*)$", maps, re.MULTILINE)
    assert len(sizes) == len(flags) > 0
    return sum(size for size, words in zip(sizes, flags, strict=True) if "ac" in words.split())


def test_what_is_reserved_is_not_charged(build: Build) -> None:
    """A program that needs next to nothing is charged for the first step of memory, not for the window."""
    plain = charged_bytes(run("cat", "/proc/self/smaps").stdout)
    served = charged_bytes(build.run("cat", "/proc/self/smaps").stdout)
    assert served - plain < 20 << 20


@pytest.fixture
def strict_overcommit() -> Iterator[None]:
    """For as short as can be: it holds for the whole machine."""
    before = OVERCOMMIT.read_text()
    keeper = subprocess.Popen(
        [sys.executable, "-c", KEEPER, str(OVERCOMMIT), NEVER_MORE_THAN_THERE_IS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        process_group=0,
    )
    assert keeper.stdout is not None
    assert keeper.stdin is not None
    said = keeper.stdout.readline()
    try:
        if said != "set\n":
            cannot_run(f"{OVERCOMMIT} cannot be written here")
        yield
    finally:
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()
        assert OVERCOMMIT.read_text() == before


@pytest.mark.slow
@pytest.mark.usefixtures("strict_overcommit")
def test_memory_is_promised_to_nobody_twice(build: Build) -> None:
    """What hakmem reserves must not count, and a program gets as far as on the malloc it always had."""
    for program in PROGRAMS:
        served_by_hakmem(build, program)
    result = build.run("sh", "-c", "echo served")
    assert (result.returncode, result.stdout, result.stderr) == (0, "served\n", "")
