"""`ab`, `sweep` and `honesty` as a user meets them: the last line, the status, what is kept, one line for what is wrong."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.cli import app
from hakmem_lab.commands import asking
from hakmem_lab.commands.asking import counting_obstacle
from hakmem_lab.errors import LabError, ProcessFailedError, RunInterruptedError
from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.samples import sample_writer
from hakmem_lab.measure.stage import Stage, copy_to_disk
from hakmem_lab.measure.task import CellTask
from hakmem_lab.studies.opinion import Opinion
from hakmem_lab.workloads.cells import CELLS, PROCESS_START, SERVER_PEAKS
from lab_pairs import HAKMEM, pair_make

LAB = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(LAB), "PYTHONDONTWRITEBYTECODE": "1"}

LAST_LINE = re.compile(
    r"verdict: (better|worse|equivalent|inconclusive): .+ times as fast as .+ \(99 % interval\),"
    r" smallest detectable effect .+"
)


def command(build: Path, *arguments: str) -> list[str]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options, rest = arguments[:at], arguments[at:]
    return [sys.executable, "-m", "hakmem_lab", *options, "--build", str(build), *rest]


def lab(build: Path, *arguments: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    line = [*before, *command(build, *arguments)]
    return subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)


def inside(build: Path, *arguments: str) -> None:
    """In this process, where what is wrong is an error and not yet a line."""
    app(command(build, *arguments)[3:], standalone_mode=False)


def samples_of(output: str) -> Path:
    line = next(line for line in output.splitlines() if line.startswith("samples: "))
    return LAB.parent / line.removeprefix("samples: ")


def test_ab_from_beginning_to_end(served: Path, tmp_path: Path) -> None:
    kept = tmp_path / "result.json"
    options = ["--budget", "2s", "--predict", "+100%", "--bench", "64 of 64", "--seed", "5"]
    done = lab(served, "ab", "glibc", "hakmem", *options, "--instructions", "--json", str(kept))
    assert done.returncode in (0, 3), done.stderr
    lines = done.stdout.splitlines()
    last = LAST_LINE.fullmatch(lines[-1])
    assert last is not None
    assert (last[1] == "inconclusive") == (done.returncode == 3)
    assert any(line.startswith("predicted +100.0 %, observed ") for line in lines)
    for part in ("control: itself, slowed", "peak RSS, KiB"):
        assert part in done.stdout
    content = json.loads(kept.read_text())
    answer = content["answers"][0]
    assert (answer["name"], answer["verdict"], content["base"]) == ("hakmem", last[1], "glibc")
    assert set(content["controls"]) == {"control: itself", "control: itself, slowed"}
    assert "--seed 5 --predict +100% --instructions --bench" in content["provenance"]["command"]
    if shutil.which("valgrind"):
        assert content["opinions"][0]["other"] < content["opinions"][0]["base"]
    with samples_of(done.stdout).open() as file:
        rows = list(csv.DictReader(file))
    arms = {row["arm"] for row in rows}
    assert arms == {"glibc", "hakmem", "glibc again", "glibc again slowed by 6 %"}
    assert json.loads(samples_of(done.stdout).with_name("outcome.json").read_text()) == content


def test_the_users_own_command_on_one_core_in_a_sweep(served: Path) -> None:
    own = ["--", "sh", "-c", "echo some; exit 0"]
    done = lab(served, "sweep", "profile=small", "--budget", "2s", *own, before=["taskset", "-c", "0"])
    assert done.returncode in (0, 3), done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("verdict: 1 ")
    assert "some" not in lines
    assert any(line.startswith("sh is short: each run is ") for line in lines)


def test_a_command_takes_turns_if_it_is_told_to(served: Path) -> None:
    own = ["--turns", "--", "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]
    done = lab(served, "ab", "glibc", "hakmem", "--budget", "2s", *own)
    assert done.returncode in (0, 3), done.stderr
    samples = samples_of(done.stdout)
    with samples.open() as file:
        assert {row["in_turns"] for row in csv.DictReader(file)} == {"1"}
    recorded = json.loads(samples.with_name("outcome.json").read_text())["provenance"]["command"]
    assert " --turns -- sh -c " in recorded


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ab", "glibc", "hakmem", "--turns"], "--turns: for a command; workloads take turns without it"),
        (["sweep", "profile=small", "--turns", "--bench", "lua"], "--turns: for a command"),
        (["ab", "glibc", "hakmen"], "there is no allocator 'hakmen', did you mean hakmem?"),
        (["ab", "glibc", "/nowhere/libfoo.so"], "/nowhere/libfoo.so: there is no such library"),
        (["ab", "glibc", "hakmem", "--margin", "3"], "--margin is a share from 0.1% to 50%"),
        (["ab", "glibc", "hakmem", "--", "nosuch"], "nosuch: there is no such command"),
        (["ab", "glibc", "hakmem", "--bench", "random"], "'random' names several: random mix, 256 slots; "),
        (["ab", "glibc", "hakmem", "--bench", "lua", "--", "true"], "give either --bench or a command"),
        (["ab", "hakmem", "hakmem:decay=nevr"], "hakmem:decay=nevr: HAKMEM_DECAY=nevr is not"),
        (["ab", "glibc", "hakmem", "--", "false"], "false under glibc"),
        (["sweep", "bin_depth"], "'bin_depth' is not OPTION=value,value"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(served: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(LabError) as caught:
        inside(served, *arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_command_that_fails_under_one_allocator_only_is_one_line(served: Path) -> None:
    script = 'case "$LD_PRELOAD" in *hakmem*) exit 7;; esac'
    with pytest.raises(LabError, match=r"^sh under hakmem exited with 7$"):
        inside(served, "ab", "glibc", "hakmem", "--", "sh", "-c", script)


def test_an_interrupted_run_keeps_what_it_measured(served: Path) -> None:
    runs = Checkout.find().results("ab")
    before = set(runs.glob("*/samples.csv"))
    process = subprocess.Popen(
        command(served, "ab", "glibc", "hakmem", "--budget", "10m", "--bench", "no allocation"),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not any(
        path.read_text().count("\n") > 2 for path in set(runs.glob("*/samples.csv")) - before
    ):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.fullmatch(r"hakmem: interrupted; what was measured is in (\S*bench_results/ab/\S+)\n", errors)
    assert "verdict" not in output
    kept = LAB.parent / errors.split()[-1]
    assert len(kept.read_text().splitlines()) > 2


def test_a_full_disk_is_one_line_and_the_answer_is_still_given(
    served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--budget", "1s", "--bench", "no allocation", "--json", "/dev/full"]
    with pytest.raises(LabError, match=r"^cannot write /dev/full: No space left on device$"):
        inside(served, "ab", "glibc", "hakmem", *options)
    assert LAST_LINE.fullmatch(capsys.readouterr().out.splitlines()[-1])


def test_instructions_that_cannot_be_counted_take_no_verdict_away(
    served: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> Opinion:
        raise ProcessFailedError("valgrind exited with 1: it cannot follow", "failed: status 1")

    monkeypatch.setattr(asking, "opinion_obstacle", lambda _: "")
    monkeypatch.setattr(asking, "opinion_ask", fail)
    inside(served, "ab", "glibc", "hakmem", "--budget", "1s", "--bench", "no allocation", "--instructions")
    told = capsys.readouterr()
    assert LAST_LINE.fullmatch(told.out.splitlines()[-1])
    why = "its instructions are not counted: valgrind exited with 1: it cannot follow"
    assert f"hakmem: no allocation (control): {why}\n" in told.err
    kept = json.loads(samples_of(told.out).with_name("outcome.json").read_text())
    assert kept["opinions"] == []


def test_instructions_that_were_asked_for_in_vain_are_said(
    served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside(served, "ab", "glibc", "hakmem", "--budget", "1s", "--instructions", "--", "true")
    told = capsys.readouterr()
    assert LAST_LINE.fullmatch(told.out.splitlines()[-1])
    why = "its instructions are not counted: only those of a workload of bench/ are"
    assert f"hakmem: true: {why}\n" in told.err


def test_what_stands_in_the_way_of_counting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stage = Stage(tmp_path, Checkout(tmp_path, tmp_path))
    part = Arm(replace(HAKMEM.peer, programs=tmp_path))
    cells = {cell.name.partition(",")[0]: CellTask(stage, cell, 1) for cell in CELLS}
    tiny, still = cells["tiny and hot"], cells["no allocation (control)"]
    starts, peaks = (CellTask(stage, cell, 1) for cell in (PROCESS_START, SERVER_PEAKS))
    monkeypatch.setattr("shutil.which", lambda name: name)
    assert counting_obstacle(tiny, [HAKMEM]) == ""
    assert counting_obstacle(still, [HAKMEM]) == "it allocates nothing"
    assert counting_obstacle(starts, [HAKMEM]) == "it starts other processes"
    assert counting_obstacle(peaks, [HAKMEM]) == "its runs go by the clock, or cannot be short"
    assert "cannot be told where one file has both" in counting_obstacle(tiny, [HAKMEM, part])
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert counting_obstacle(tiny, [HAKMEM]) == "valgrind is not installed"


def counting_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> Opinion:
        raise KeyboardInterrupt

    monkeypatch.setattr(asking, "opinion_obstacle", lambda _: "")
    monkeypatch.setattr(asking, "opinion_ask", interrupt)
    monkeypatch.setattr(asking, "OPINION_SECONDS", -1e9)  # even if no budget is left


def test_an_interrupt_while_instructions_are_counted_takes_no_verdict_away(
    served: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counting_interrupted(monkeypatch)
    inside(served, "ab", "glibc", "hakmem", "--budget", "1s", "--bench", "no allocation")
    told = capsys.readouterr()
    assert LAST_LINE.fullmatch(told.out.splitlines()[-1])
    assert told.err == "hakmem: no allocation (control): its instructions are not counted: interrupted\n"


def test_an_interrupt_while_instructions_are_counted_ends_a_series(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counting_interrupted(monkeypatch)
    own = tmp_path / "own.toml"
    own.write_text(
        "about = 'Mine'\narms = ['hakmem', 'glibc']\nbenches = ['no allocation', 'lua']\nbudget = '1s'\n"
    )
    with pytest.raises(RunInterruptedError):
        inside(served, "canned", str(own))
    told = capsys.readouterr().out
    assert LAST_LINE.fullmatch(told.splitlines()[-1])
    assert told.count("verdict: ") == 1


def test_samples_that_cannot_be_written_end_the_run_in_one_line() -> None:
    full = pytest.raises(LabError, match=r"^cannot write full: No space left on device$")
    with full, sample_writer(Path("/dev/full")) as writer:
        writer.keep("cell", pair_make("some", 1.0))


def test_a_disk_that_is_full_before_the_run_is_one_line(served: Path) -> None:
    with pytest.raises(LabError, match=r"^cannot copy no_alloc aside: No space left on device$"):
        copy_to_disk(served / "bench" / "no_alloc", Path("/dev/full"))


UNPRIVILEGED = """
import os
from pathlib import Path
from hakmem_lab.checkout import Checkout
from hakmem_lab.cli import app
from hakmem_lab.errors import LabError
from hakmem_lab.measure.stage import staged
if os.geteuid() == 0:
    os.setuid(65534)
try:
    with staged(Checkout(Path("/"), Path("/"))):
        pass
except LabError as error:
    print(error)
"""


def test_without_the_right_to_write_there_is_one_line() -> None:
    line = [sys.executable, "-c", UNPRIVILEGED]
    done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("cannot write into .tools: Permission denied\n", "")
