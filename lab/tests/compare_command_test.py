"""`hakmem compare` from the command line."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hakmem_lab import cli
from hakmem_lab.allocators.peers import PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from toolbox import compile_c

LAB = Path(__file__).resolve().parents[1]
KEPT = Checkout.find().results("compare")


def lab(build: Path, *arguments: str, cpus: set[int] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hakmem_lab", "compare", "--build", str(build), *arguments],
        env={**os.environ, "PYTHONPATH": str(LAB), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None,
    )


def test_compare_from_beginning_to_end_on_one_processor(build: Path, tmp_path: Path) -> None:
    library = compile_c(
        tmp_path / "crash.so",
        "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }\n",
        *("-shared", "-fPIC"),
    )
    arguments = [
        "--budget",
        "2.5s",
        "--allocators",
        f"hakmem,{library}",
        "--seed",
        "5",
        "--json",
        "/dev/full",
    ]
    one = {min(os.sched_getaffinity(0))}
    given = tmp_path / "given"
    given.write_text("9000\n")
    script = "read most; i=0; while [ $i -lt $most ]; do i=$((i+1)); done; exit 3"
    command = ["--stdin", str(given), "--allow-status", "3", "--", "sh", "-c", script]
    process = lab(build, *arguments, *command, cpus=one)
    output, errors = process.communicate(timeout=60)
    # The disk is full: one line, and the answer is there all the same.
    assert errors == "hakmem: cannot write /dev/full: No space left on device\n"
    assert process.returncode == 2
    assert "crashed: signal 6" in output
    assert output.splitlines()[-1].endswith(".")
    path = next(line for line in output.splitlines() if line.startswith("samples: ")).removeprefix(
        "samples: "
    )
    with (LAB.parent / path).open() as file:
        rows = list(csv.DictReader(file))
    assert {row["arm"] for row in rows} == {"glibc", "glibc again", "glibc slowed by 6 %", "hakmem"}
    assert {row["cpus"] for row in rows} == {str(min(one))}
    content = json.loads((LAB.parent / path).with_name("outcome.json").read_text())
    assert content["answer"] == output.splitlines()[-1]
    recorded = content["provenance"]["command"]
    assert recorded.startswith("./hakmem compare --budget 2.5s --margin 3% --seed 5")
    assert shlex.split(recorded)[-len(command) :] == command


def test_a_comparison_in_a_folder_that_was_deleted_has_its_answer(build: Path, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "hakmem_lab", "compare", "--build", str(build.resolve()), "--budget", "1s"]
    line += ["--allocators", "hakmem", "--", "true"]
    done = subprocess.run(
        [
            "sh",
            "-c",
            f'mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir {tmp_path}/gone && exec "$@"',
            "sh",
            *line,
        ],
        env={**os.environ, "PYTHONPATH": str(LAB), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode in (0, 3), done.stderr) == (True, "")
    assert done.stdout.splitlines()[-1].endswith(".")


def test_an_interrupted_comparison_keeps_its_samples(build: Path) -> None:
    before = set(KEPT.glob("*/samples.csv"))
    process = lab(build, "--budget", "10m", "--allocators", "hakmem", "--", "sleep", "0.2")
    kept: set[Path] = set()
    while process.poll() is None and not any(path.read_text().count("\n") >= 2 for path in kept):
        time.sleep(0.05)
        kept = set(KEPT.glob("*/samples.csv")) - before
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert re.match(r"hakmem: interrupted; what was measured is in \S*bench_results/compare/", errors)
    path = LAB.parent / errors.split(" is in ")[1].strip()
    assert path in kept
    assert path.read_text().count("\n") >= 2


def test_a_command_that_takes_turns_is_not_left_stopped(build: Path, tmp_path: Path) -> None:
    """Its observed runs take none, those of the rounds do; when the user interrupts it, all of them are ended."""
    name = tmp_path.name
    script = f"i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; : {name}"
    before = set(KEPT.glob("*/samples.csv"))
    process = lab(build, "--turns", "--budget", "10m", "--allocators", "hakmem", "--", "sh", "-c", script)
    while process.poll() is None and not any(
        "judged" in path.read_text() for path in set(KEPT.glob("*/samples.csv")) - before
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    with (LAB.parent / errors.split(" is in ")[1].strip()).open() as file:
        turns = {(row["phase"], row["in_turns"]) for row in csv.DictReader(file)}
    assert turns == {("observed", "0"), ("judged", "1")}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            assert name.encode() not in path.read_bytes()


def test_a_command_that_fails_later_ends_with_its_samples(build: Path, tmp_path: Path) -> None:
    """Not in its first three runs: the observed ones, and one of a round."""
    runs = tmp_path / "runs"
    script = f"echo >>{runs}; [ $(wc -l <{runs}) -le 3 ]"
    process = lab(build, "--budget", "10s", "--allocators", "hakmem", "--", "sh", "-c", script)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2
    told = re.fullmatch(
        r"hakmem: sh under glibc( again| slowed by 6 %)? exited with 1; it fails by itself, which tells nothing of allocators;"
        r" what was measured is in (\S*bench_results/compare/\S+)\n",
        errors,
    )
    assert told is not None, errors
    with (LAB.parent / told[2]).open() as file:
        assert len(list(csv.DictReader(file))) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "/nosuch/program"], "hakmem: /nosuch/program: there is no such command"),
        (
            ["--allocators", "hakmem", "--", "sh", "-c", "echo broken >&2; exit 3"],
            "hakmem: sh under as it is exited with 3: broken",
        ),
        (
            ["--allocators", "jemaloc", "--", "true"],
            "hakmem: there is no allocator 'jemaloc', did you mean jemalloc?",
        ),
        (["--program", "rediss"], "hakmem: there is no program 'rediss', did you mean 'redis'?"),
        (["--program", "rediss", "--repeat", "3"], "hakmem: --repeat: for a command, not for --program"),
        (["--program", "rediss", "--turns"], "hakmem: --turns: for a command, not for --program"),
        (["--program", "rediss", "--stdin", "."], "hakmem: --stdin: for a command, not for --program"),
        (
            ["--program", "rediss", "--repeat", "2", "--allow-status", "1"],
            "hakmem: --repeat and --allow-status: for a command, not for --program",
        ),
        (["--allocators", "hakmem", "sh", "-c", "exit 4"], "hakmem: sh under as it is exited with 4"),
        ([], "hakmem: give either a command"),
        (["--budget", "soon", "--", "true"], "hakmem: --budget is a time such as"),
        (
            ["--stdin", "nosuch", "--allocators", "hakmem", "--", "true"],
            "hakmem: nosuch: there is no such file",
        ),
        (
            ["--stdin", "/dev/zero", "--allocators", "hakmem", "--", "true"],
            "hakmem: /dev/zero is not a regular file: each run must read the same from it",
        ),
        (
            ["--stdin", "/dev/null", "--allocators", "hakmem", "--", "sh", "-c", "read line || exit 4"],
            "hakmem: sh under as it is exited with 4",
        ),
    ],
)
def test_an_error_is_one_line(
    build: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["hakmem", "compare", "--build", str(build), *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    output, errors = capsys.readouterr()
    assert (caught.value.code, output) == (2, "")
    assert errors.startswith(message)
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "nosuchprog"], "nosuchprog: there is no such command"),
        (["--program", "nope"], "there is no program 'nope'"),
        (["--program", "/nowhere/nope.toml"], "cannot read "),
        (["--stdin", "/nowhere/input", "--", "true"], ""),
    ],
)
def test_what_cannot_run_is_said_before_any_peer_is_obtained(
    build: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    def obtain(*_: object) -> None:
        raise AssertionError("a peer was obtained")

    monkeypatch.setattr(PeerStore, "obtain", obtain)
    with pytest.raises(LabError, match=f"^{message}"):
        cli.app(["compare", "--build", str(build), *arguments], standalone_mode=False)


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/checkout/.tools/lab/run-1")

    monkeypatch.setattr(cli, "app", full)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert capsys.readouterr().err == "hakmem: run-1: No space left on device\n"
