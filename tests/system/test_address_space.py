"""Little address space, and memory that is promised to nobody (docs/compat.md, item 11). Limits by ulimit are in
test_bad_circumstances.py and tests/unit/api/limits_test.c, refused calls in tests/unit/api/faults_test.c."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from toolbox import Build, environment, machine_setting, run

OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
NEVER_MORE_THAN_THERE_IS = "2"
PROGRAMS = ["compat/give_and_take_back", "preload/api/threads_test", "preload/late_end"]


def served_by_hakmem(build: Build, program: str, **variables: str) -> None:
    env = environment(EXPECT_HAKMEM="1", **({"LD_PRELOAD": str(build.library)} | variables))
    result = run(build.directory / "tests" / program, env=env)
    assert result.returncode == 0, result.stdout + result.stderr


def fewer_addresses(build: Build, bits: int) -> dict[str, str]:
    shim = build.directory / "tests/faults/libother_kernel.so"
    return {"LD_PRELOAD": f"{shim} {build.library}", "OTHER_ADDRESS_BITS": str(bits)}


@pytest.mark.parametrize("bits", [39, 42])
def test_fewer_addresses_have_room_for_a_window(build: Build, bits: int, tmp_path: Path) -> None:
    """Without one every block is a mapping of its own: all works, and takes a minute where it took a second."""
    report = tmp_path / "statistics.json"
    wanted = {"PYTHONMALLOC": "malloc", "HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": str(report)}
    env = environment(**fewer_addresses(build, bits), **wanted)
    assert run(sys.executable, "-c", "", env=env).returncode == 0
    assert json.loads(report.read_text())["spans"]["fresh_pages"] > 16


def calls_of_a_start(build: Build, bits: int) -> int:
    result = run("true", env=environment(**fewer_addresses(build, bits), OTHER_REPORT="1"))
    calls = re.search(r"other_kernel: (\d+) calls from libhakmem", result.stderr)
    assert calls, result.stderr
    return int(calls[1])


@pytest.mark.parametrize("bits", [39, 42])
def test_fewer_addresses_cost_few_calls(build: Build, bits: int) -> None:
    """Each of three places that are not there is asked for and given back."""
    assert calls_of_a_start(build, bits) <= calls_of_a_start(build, 48) + 6


@pytest.mark.parametrize(("bits", "program"), [*((39, program) for program in PROGRAMS), (42, PROGRAMS[0])])
def test_fewer_addresses(build: Build, program: str, bits: int) -> None:
    """As with three levels of page tables, and below the place where hakmem looks first."""
    served_by_hakmem(build, program, **fewer_addresses(build, bits))


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
    with machine_setting(OVERCOMMIT, NEVER_MORE_THAN_THERE_IS):
        yield


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.usefixtures("strict_overcommit")
def test_memory_is_promised_to_nobody_twice(build: Build) -> None:
    """What hakmem reserves must not count, and a program gets as far as on the malloc it always had."""
    for program in PROGRAMS:
        served_by_hakmem(build, program)
    result = build.run("sh", "-c", "echo served")
    assert (result.returncode, result.stdout, result.stderr) == (0, "served\n", "")
