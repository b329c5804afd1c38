"""Statistics in their three forms: at exit, on a signal, to files and descriptors; each read by those who are to read it."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from toolbox import ROOT, Build, compile_c, only_line, run

SCHEMA = json.loads((ROOT / "docs/statistics.schema.json").read_text())
MIB = 1 << 20
SMALL_MAX_BYTES = 1 << 16

WORK = """
import ctypes, sys
malloc = ctypes.CDLL(None).malloc
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
kept = [malloc(size) for size in range(16, 60000, 123)]
large = malloc(5 << 20)
failed = malloc((1 << 63) + 1)
assert not failed
"""


def preloaded(build: Build, **changes: str) -> dict[str, str]:
    variables = {f"HAKMEM_{name.upper()}": value for name, value in changes.items()}
    return build.environment(LD_PRELOAD=str(build.library), PYTHONMALLOC="malloc", **variables)


def python(build: Build, script: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-I", "-S", "-c", script, env=preloaded(build, **changes))


def parse_json(text: str) -> dict[str, Any]:
    """What the schema, and the sums that must hold, accept."""
    report: dict[str, Any] = json.loads(text)
    Draft202012Validator(SCHEMA).validate(report)
    memory = report["memory"]
    small, medium = (
        [row for row in report["classes"] if (row["block_bytes"] <= SMALL_MAX_BYTES) is is_small]
        for is_small in (True, False)
    )
    live = sum(row["live_blocks"] * row["block_bytes"] for row in small)
    live_medium = sum(row["live_blocks"] * row["block_bytes"] for row in medium)
    slabs = sum(row["slabs"] for row in report["classes"])
    cached = sum(row["cached_blocks"] * row["block_bytes"] for row in report["classes"])
    assert memory["live_small_bytes"] == live
    assert memory["cached_bytes"] == cached
    spans = report["spans"]["taken"] - report["spans"]["given"]
    assert memory["large_blocks"] == spans - slabs + sum(row["live_blocks"] for row in medium)
    assert memory["large_bytes"] >= live_medium
    assert sum(row["live"] for row in report["span_sizes"]) == spans
    assert sum(thread["cached_bytes"] for thread in report["threads"]) == cached
    decisions = report["decisions"]
    assert decisions["made"] == sum(one["times"] for one in decisions["counts"])
    numbers = [one["number"] for one in decisions["last"]]
    assert numbers == sorted(set(numbers))
    return report


def parse_openmetrics(text: str) -> dict[str, float]:
    """Sample by name and labels, as Prometheus's own reader finds them."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_json_at_exit(build: Build) -> None:
    report = parse_json(python(build, WORK, stats="json").stderr)
    assert report["memory"]["large_bytes"] >= 5 * MIB
    assert report["failures"]["threshold"] == 1
    (failure,) = report["failures"]["last"]
    assert (failure["cause"], failure["bytes"]) == ("threshold", (1 << 63) + 1)
    assert {"name": "stats", "value": "json", "source": "environment"} in report["options"]
    assert report["process"]["peak_rss_bytes"] >= report["process"]["rss_bytes"] > MIB


def test_openmetrics_at_exit(build: Build) -> None:
    samples = parse_openmetrics(python(build, WORK, stats="openmetrics").stderr)
    assert samples["hakmem_memory_large_bytes[]"] >= 5 * MIB
    assert samples["hakmem_failures_allocations_total[('cause', 'threshold')]"] == 1
    assert samples["hakmem_class_live_blocks[('block_bytes', '64')]"] > 0
    assert any(name.startswith("hakmem_build_info") for name in samples)


def test_text_at_exit(build: Build) -> None:
    result = python(build, WORK, stats="1", decay="3s")
    assert result.stderr.startswith("hakmem: statistics of python")
    assert "  option          decay 3s (environment)\n" in result.stderr
    assert "  failures        threshold    1\n" in result.stderr


def test_text_of_medium_blocks(build: Build) -> None:
    """They stand with the large ones, and are not small ones, too."""
    result = python(build, WORK + "medium = [malloc(1000000) for _ in range(100)]", stats="1")
    (most,) = re.findall(r"  small blocks    live between \d+ KiB and (\d+) KiB", result.stderr)
    (large,) = re.findall(r"  large blocks    \d+, of (\d+) KiB", result.stderr)
    assert int(large) >= 105 * 1024 > 50 * 1024 > int(most)


SWINGS = (
    WORK
    + """
free = ctypes.CDLL(None).free
free.argtypes = [ctypes.c_void_p]
for _ in range(20):
    for block in [malloc(2048) for _ in range(1000)]:
        free(block)
"""
)


def test_decisions(build: Build) -> None:
    """A program whose stack of 2 KiB runs empty and full in turn: each change of its depth, and no other."""
    report = parse_json(python(build, SWINGS, stats="json").stderr)
    mine = [one for one in report["decisions"]["last"] if one.get("block_bytes") == 2112]
    depths = [(one["from"], one["to"]) for one in mine if one["from"] != one["to"]]
    assert len(depths) >= 4
    assert all(before[1] == after[0] for before, after in pairwise(depths))
    swing = next(one for one in mine if one["reason"] == "swing")
    taken, given = (swing["inputs"][name] for name in ("refilled_blocks", "spilled_blocks"))
    assert 4 * min(taken, given) >= 3 * max(taken, given) > 0
    samples = parse_openmetrics(python(build, SWINGS, stats="openmetrics").stderr)
    assert samples["hakmem_decisions_made_total[('kind', 'depth'), ('reason', 'swing')]"] >= 1
    assert "  decisions       depth        swing " in python(build, SWINGS, stats="1").stderr


def test_medium_blocks_that_another_thread_frees(build: Build) -> None:
    """Each is counted, whether its pages are free then or that thread keeps it; and nobody holds one that is not in use."""
    script = (
        WORK
        + """
import threading
free = ctypes.CDLL(None).free
free.argtypes = [ctypes.c_void_p]
def pass_on(blocks):
    for block in blocks:
        free(block)
for _ in range(20):
    thread = threading.Thread(target=pass_on, args=([malloc(700000) for _ in range(5)],))
    thread.start()
    thread.join()
"""
    )
    report = json.loads(python(build, script, stats="json").stderr)
    (row,) = (one for one in report["classes"] if one["block_bytes"] == 786432)
    assert row["remote_blocks"] == 100
    assert (row["live_blocks"], row["slabs"]) == (0, row["cached_blocks"])


def test_json_and_openmetrics_say_the_same(build: Build, tmp_path: Path) -> None:
    script = WORK + (
        "write = ctypes.CDLL(None).hak_stats_write\n"
        f"for form, out in ((1, open('{tmp_path}/1', 'wb')), (2, open('{tmp_path}/2', 'wb'))):\n"
        "    assert write(out.fileno(), form) == 0"
    )
    assert python(build, script).returncode == 0
    report = parse_json((tmp_path / "1").read_text())
    samples = parse_openmetrics((tmp_path / "2").read_text())
    sections = {
        name: section
        for name, section in report.items()
        if isinstance(section, dict) and name not in {"decisions", "failures"}
    }
    moving = {
        "rss_bytes",
        "peak_rss_bytes",
        "minor_faults",
        "cached_bytes",
        "live_small_bytes",
        "in_use_bytes",
    }
    for name, section in sections.items():
        for member, value in section.items():
            found = [samples.get(f"hakmem_{name}_{member}{end}[]") for end in ("", "_total")]
            assert any(one is not None for one in found), f"{name}.{member} is in no sample"
            if member not in moving:
                assert value in found, f"{name}.{member}"


def test_a_file_for_each_process(build: Build, tmp_path: Path) -> None:
    script = "import os, sys; child = os.fork(); child and os.waitpid(child, 0); sys.exit(0)"
    result = python(build, script, stats="json", stats_file=f"{tmp_path}/%p.json")
    assert (result.returncode, result.stderr) == (0, "")
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    for file in files:
        assert parse_json(file.read_text())["pid"] == int(file.stem)


def test_a_descriptor(build: Build, tmp_path: Path) -> None:
    script = f"import os; os.dup2(os.open('{tmp_path}/out', os.O_WRONLY | os.O_CREAT), 9)"
    result = python(build, script, stats="json", stats_file="/dev/fd/9")
    assert (result.returncode, result.stderr) == (0, "")
    parse_json((tmp_path / "out").read_text())


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/nowhere/at/all", "ENOENT"), ("/", "EISDIR"), ("/dev/full", "ENOSPC"), ("/proc/version", "EACCES")],
)
def test_a_file_that_cannot_be_written(build: Build, path: str, reason: str) -> None:
    result = python(build, "", stats="json", stats_file=path)
    assert result.returncode == 0
    line = only_line(result.stderr)
    assert line.startswith(f"hakmem: statistics cannot be written to {path}: ")
    if os.geteuid() != 0 or reason != "EACCES":
        assert line.endswith(reason)


def test_a_signal(build: Build, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = WORK + "print('ready', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", script],
        env=preloaded(build, stats="json", stats_file=str(out), stats_signal=str(int(signal.SIGUSR2))),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == b"ready\n"
        for _ in range(3):
            process.send_signal(signal.SIGUSR2)
            deadline = time.monotonic() + 20
            while not out.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            assert parse_json(out.read_text())["pid"] == process.pid
            out.unlink()
        process.stdin.close()
    assert process.returncode == 0


def test_a_file_and_a_signal_alone_have_nothing_written(build: Build, tmp_path: Path) -> None:
    out, number = tmp_path / "out", int(signal.SIGUSR2)
    script = f"import os; os.kill(os.getpid(), {number})"
    result = python(build, script, stats_file=str(out), stats_signal=str(number))
    assert (result.returncode, result.stderr) == (0, "")
    assert not out.exists()


def test_a_signal_that_is_in_use(build: Build) -> None:
    result = python(build, "", stats="json", stats_signal=str(int(signal.SIGKILL)))
    assert (
        "hakmem: signal 9 is in use or cannot be had: it will not have statistics written\n" in result.stderr
    )


OWN_FILE = """
import os, sys
own = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
assert own == 2
os.write(own, b"its own")
"""


@pytest.mark.parametrize(
    "changes",
    [
        {"stats": "1"},
        {"stats": "1", "stats_file": "/nowhere/at/all"},
        {"trace_failures": "1"},
        {"foreign_free": "count"},
    ],
    ids=lambda changes: list(changes)[-1],
)
def test_no_standard_error_at_the_start(build: Build, tmp_path: Path, changes: dict[str, str]) -> None:
    """What the program opens gets the number 2, and is not hakmem's to write to."""
    own = tmp_path / "own"
    script = (
        OWN_FILE + WORK + ("ctypes.CDLL(None).free(ctypes.c_void_p(8))" if "foreign_free" in changes else "")
    )
    line = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-I", "-S", "-c", script, str(own)]
    assert run(*line, env=preloaded(build, **changes)).returncode == 0
    assert own.read_text() == "its own"


SET = "ctypes.CDLL(None).hak_option_set({!r}, {!r})\n"


@pytest.mark.parametrize(
    ("name", "value"), [("stats", "json"), ("trace_failures", "on"), ("foreign_free", "count")]
)
def test_messages_that_a_call_switches_on(build: Build, tmp_path: Path, name: str, value: str) -> None:
    """The program asks for them when its own file is 2 already."""
    own = tmp_path / "own"
    script = f"{OWN_FILE}import ctypes\n{SET.format(name.encode(), value.encode())}{WORK}"
    if name == "foreign_free":
        script += "ctypes.CDLL(None).free(ctypes.c_void_p(8))"
    line = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-I", "-S", "-c", script, str(own)]
    assert run(*line, env=preloaded(build)).returncode == 0
    assert own.read_text() == "its own"


@pytest.mark.parametrize("by_call", [False, True])
def test_lines_go_to_the_standard_error_that_there_was(build: Build, tmp_path: Path, by_call: bool) -> None:
    """Whenever they were asked for."""
    own = tmp_path / "own"
    ask = SET.format(b"trace_failures", b"on") if by_call else ""
    script = f"import ctypes, os\n{ask}os.dup2(os.open('{own}', os.O_WRONLY | os.O_CREAT), 2)\n{WORK}"
    changes = {} if by_call else {"trace_failures": "1"}
    assert python(build, script, **changes).returncode == 0
    assert own.read_text() == ""


def test_another_file_is_2_at_the_end(build: Build, tmp_path: Path) -> None:
    own = tmp_path / "own"
    script = f"import os; os.dup2(os.open('{own}', os.O_WRONLY | os.O_CREAT), 2)"
    assert (
        "statistics of python" in python(build, script, stats="1").stderr
    )  # into the file that it began with
    assert own.read_text() == ""


def test_who_reads_a_pipe_does_not_wait(build: Build) -> None:
    """A daemon puts /dev/null in the place of the pipe that it began with: nobody has that any more."""
    script = (
        "import os, sys\n"
        "null = os.open('/dev/null', os.O_RDWR)\n"
        "os.dup2(null, 1), os.dup2(null, 2)\n"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", script],
        env=preloaded(build, stats="1"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    with process:
        ready, _, _ = select.select([process.stderr], [], [], 20)
        assert ready, "the pipe is kept open"
        assert process.stderr.read() == b""
        process.stdin.close()
    assert process.returncode == 0


FAILS = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    volatile size_t too_many = (size_t)PTRDIFF_MAX + 1;
    puts(malloc(too_many) == NULL ? "failed" : "worked");
    return 0;
}
"""


@pytest.mark.parametrize("changes", [{"stats": "1"}, {"stat": "1"}, {"trace_failures": "1"}], ids=list)
def test_a_pipe_that_nobody_reads(build: Build, tmp_path: Path, changes: dict[str, str]) -> None:
    """hakmem's words do not end the program: before main, in a malloc, after main. Python would ignore the signal."""
    program = compile_c(tmp_path / "fails", FAILS)
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [program], env=preloaded(build, **changes), stdout=subprocess.PIPE, stderr=writes, check=False
    )
    os.close(writes)
    assert (done.returncode, done.stdout) == (0, b"failed\n")


def test_files_that_may_not_grow(build: Build, tmp_path: Path) -> None:
    """RLIMIT_FSIZE ends no program that writes statistics, and nothing half written is left. Python would ignore the signal."""
    program, folder = compile_c(tmp_path / "fails", FAILS), tmp_path / "reports"
    folder.mkdir()
    changes = {"stats": "json", "stats_file": f"{folder}/report"}
    done = run("sh", "-c", 'ulimit -S -f 0; exec "$0"', program, env=preloaded(build, **changes))
    # Standard error is a file, too: of the line about it nothing is seen either.
    assert (done.returncode, done.stdout, done.stderr) == (0, "failed\n", "")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_signal_that_stands_for_a_fault(build: Build, number: signal.Signals) -> None:
    """A handler that writes reports and returns would have the fault happen for ever."""
    script = f"import os; os.kill(os.getpid(), {int(number)})"
    result = python(build, script, stats="json", stats_signal=str(int(number)))
    assert result.returncode == -number
    line = only_line(result.stderr)
    assert (
        line
        == f"hakmem: signal {int(number)} is in use or cannot be had: it will not have statistics written"
    )


def test_failures_are_traced(build: Build) -> None:
    result = python(build, WORK, trace_failures="1")
    assert only_line(result.stderr).startswith(
        f"hakmem: no memory for {(1 << 63) + 1} bytes aligned to 16: threshold: no block may be so large;"
    )


def test_a_thousand_threads(build: Build) -> None:
    script = (
        "import threading\n"
        "threading.stack_size(256 * 1024)\n"
        "all_there, end = threading.Barrier(1001), threading.Event()\n"
        "def be_there():\n"
        "    kept = bytes(1000)\n"
        "    all_there.wait()\n"
        "    end.wait()\n"
        "threads = [threading.Thread(target=be_there) for _ in range(1000)]\n"
        "[thread.start() for thread in threads]\n"
        "all_there.wait()\n"
        "import ctypes, sys\n"
        "ctypes.CDLL(None).hak_stats_write(1, 1)\n"
        "end.set()\n"
        "[thread.join() for thread in threads]\n"
    )
    result = run(sys.executable, "-I", "-c", script, env=preloaded(build))
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)["threads"]) >= 1001
