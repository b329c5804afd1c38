"""The soak of programs ends when it is told to, with all that was done in its report; and what fails is in it."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toolbox import COMMAND, ROOT, Build, environment, run
from trial import Suite, same

SOAK = ROOT / "tests/programs/soak.py"
REPORT_SECONDS = 300

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("mine", "other", "is_same"),
    [
        (Suite(9, frozenset()), Suite(9, frozenset()), True),
        (Suite(9, frozenset("a")), Suite(9, frozenset("a")), True),
        (Suite(9, frozenset()), Suite(9, frozenset("a")), True),
        (Suite(9, frozenset()), Suite(7, frozenset("a")), True),
        (Suite(7, frozenset()), Suite(9, frozenset("a")), False),
        (Suite(9, frozenset("a")), Suite(9, frozenset()), False),
        (Suite(9, frozenset("a")), Suite(9, frozenset("b")), False),
        (Suite(9, frozenset("ab")), Suite(9, frozenset("b")), False),
        (Suite(8, frozenset()), Suite(9, frozenset()), False),
        (Suite(9, frozenset()), Suite(8, frozenset()), False),
        ("one", "one", True),
        ("one", "other", False),
    ],
)
def test_on_hakmem_nothing_fails_that_passes_without_it(mine: object, other: object, is_same: bool) -> None:
    assert same(mine, other) == is_same


def soak(build: Path, report: Path) -> subprocess.Popen[str]:
    """Of the shortest test there is, for an hour."""
    return subprocess.Popen(
        [
            sys.executable,
            "-B",
            SOAK,
            "--minutes",
            "60",
            "--command",
            "soak",
            "--report",
            report,
            "--only",
            "test_bash",
        ],
        cwd=ROOT,
        env=environment(HAKMEM_BUILD_DIR=str(build), PYTHONPATH=str(ROOT / "lab")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def interrupted(process: subprocess.Popen[str], report: Path, text: str = "") -> str:
    """What it printed, when it was interrupted as soon as there was a report, with TEXT in it."""
    deadline = time.monotonic() + REPORT_SECONDS
    while not (report.exists() and text in report.read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=REPORT_SECONDS)[0]


def test_an_interrupted_soak_reports_what_was_done(build: Build, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    process = soak(build.directory, report)
    said = interrupted(process, report)
    assert process.returncode == 0, said
    last = said.splitlines()[-1]
    assert last.endswith(" passed, 0 failed")
    assert last != "0 passed, 0 failed"
    assert last in report.read_text()
    assert "order of the seed" in said


def test_a_soak_reports_failures(build: Build, tmp_path: Path) -> None:
    """A library that serves nobody."""
    report = tmp_path / "report.md"
    broken = Build(tmp_path / "build")
    broken.directory.mkdir()
    shutil.copy(build.launcher, broken.launcher)
    shutil.copy(build.directory / "tests/faults/libother_kernel.so", broken.library)
    process = soak(broken.directory, report)
    said = interrupted(process, report, "failed**, run ")
    assert process.returncode == 1, said
    text = report.read_text()
    assert "failed**, run " in text
    assert "was not served by hakmem" in text


def test_programs_that_fail_are_the_end(tmp_path: Path) -> None:
    """What was meant for them is not read again, as options of another soak."""
    done = run(COMMAND, "soak", "--programs", "--report", tmp_path / "x.md", "nosuchprogram", timeout=600)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed"
    assert "option" not in done.stdout + done.stderr
