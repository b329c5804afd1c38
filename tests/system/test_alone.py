"""Tests marked `alone`, which change the whole machine: conftest.py of the checkout keeps all others away."""

import shutil
import signal
import sys
import time
from pathlib import Path

from toolbox import ROOT, environment, run

SUITE = """
import time
from pathlib import Path

import pytest

SHORT = 0.05


def ran(name, seconds):
    began = time.monotonic()
    time.sleep(seconds)
    with Path(__file__).with_name(name).open("a") as file:
        file.write(f"{began} {time.monotonic()}\\n")


@pytest.fixture(scope="module")
def shared():
    ran("others", SHORT)


@pytest.fixture
def changed():
    ran("alone", SHORT)
    yield
    ran("alone", SHORT)


@pytest.mark.parametrize("number", range(40))
def test_other(number, shared):
    ran("others", SHORT)


@pytest.mark.alone
@pytest.mark.parametrize("number", range(4))
def test_alone(number, changed):
    ran("alone", SHORT)
"""


def intervals(file: Path) -> list[tuple[float, float]]:
    lines = (line.split() for line in file.read_text().splitlines())
    return [(float(began), float(ended)) for began, ended in lines]


def meet(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def test_nothing_runs_beside_a_test_that_is_alone(tmp_path: Path) -> None:
    """By the clock, with the fixtures of both kinds; and all others do run side by side."""
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone\n")
    (tmp_path / "test_suite.py").write_text(SUITE)
    options = ("-q", "-p", "no:cacheprovider", "--numprocesses", "3", "--dist", "worksteal")
    result = run(sys.executable, "-m", "pytest", *options, cwd=tmp_path)
    assert "44 passed" in result.stdout, result.stdout + result.stderr

    alone, others = intervals(tmp_path / "alone"), intervals(tmp_path / "others")
    assert (len(alone), len(others) >= 41) == (12, True)
    assert not [(one, other) for one in alone for other in others if meet(one, other)]
    assert any(meet(one, other) for place, one in enumerate(others) for other in others[:place])


KILLED = """
import os, signal, sys
from pathlib import Path
from toolbox import machine_setting
os.setsid()
with machine_setting(Path(sys.argv[1]), "2"):
    print(Path(sys.argv[1]).read_text(), flush=True)
    os.killpg(0, signal.SIGKILL)
"""


def test_a_setting_outlives_no_test(tmp_path: Path) -> None:
    """Not one whose process is killed, either, with all of its group."""
    setting = tmp_path / "setting"
    setting.write_text("0")
    env = environment(PYTHONPATH=str(ROOT / "tests/system"), PYTHONDONTWRITEBYTECODE="1")
    killed = run(sys.executable, "-c", KILLED, setting, env=env)
    assert (killed.stdout, killed.returncode) == ("2\n", -signal.SIGKILL)
    deadline = time.monotonic() + 10
    while setting.read_text() != "0" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert setting.read_text() == "0"
