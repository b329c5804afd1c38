"""`hakmem bench` interrupted and resumed: what is kept, what must be the same, and a tiny run of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError, RunInterruptedError
from hakmem_lab.measure.backing import Backing
from hakmem_lab.measure.store import OBSERVED, Sample, SampleStore
from hakmem_lab.measure.task import Task
from hakmem_lab.studies import bench
from hakmem_lab.studies.bench import (
    KIND,
    Field,
    Kept,
    bench_measure,
    identities_of,
    interruptions_told,
    resume_check,
    rounds_measure,
    rows_check,
)
from hakmem_lab.studies.candidates import Candidate
from hakmem_lab.studies.matrix import (
    RESULTS_FILE,
    interrupted_find,
    is_measured,
    machine_text,
    measuring,
    sameness_check,
)
from hakmem_lab.workloads.cells import Measure
from lab_command import lab
from lab_matrix import ROW, SETTINGS, SOURCE, NoTask, plan_make, row_make, sample_make

ROOT = Path(__file__).resolve().parents[2]


def test_an_interruption_says_where_everything_is(kept: Kept) -> None:
    where = f"what was measured is in {kept.folder}, and --resume goes on"
    with pytest.raises(RunInterruptedError, match=f"interrupted; {where}"), interruptions_told(kept):
        raise KeyboardInterrupt
    full = LabError("cannot write samples: No space left on device")
    with pytest.raises(LabError, match=f"No space left on device; {where}"), interruptions_told(kept):
        raise full


def test_what_kept_runs_held_is_known_when_they_go_on(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise processes that take turns might hold more together than the machine has."""
    rows = kept.plan.rows
    backings = {row.name: Backing() for row in rows}
    tasks_of = {row.name: lambda _, name=row.name: SimpleNamespace(backing=backings[name]) for row in rows}
    monkeypatch.setattr(bench, "rows_run", lambda *_: None)
    first = sample_make(rows[0], 0, "hakmem")
    samples = [
        replace(first, peak_rss_kib=4096),
        replace(first, peak_rss_kib=9000, outcome="crashed: signal 11"),
        replace(first, peak_rss_kib=2048),
        replace(first, peak_rss_kib=64, kind=OBSERVED),
    ]
    field = Field(Peer("hakmem", "0", None, "id"), (), {}, ())
    bench.rounds_shown(kept, field, tasks_of, "row", samples)  # type: ignore[arg-type]  # only the backing is asked for
    seen = backings.pop(rows[0].name)
    assert (seen.known, seen.peak_kib, seen.least_kib) == (True, 4096, 2048)
    assert not any(backing.known for backing in backings.values())


def test_a_study_of_rounds_alone_says_where_they_are_and_promises_no_more(kept: Kept) -> None:
    def interrupt(_: int) -> Task:
        raise KeyboardInterrupt

    candidates = [Candidate(row.name, row.group, "program", "1", interrupt, 1) for row in kept.plan.rows]
    where = f"what was measured is in {kept.folder}"
    with pytest.raises(RunInterruptedError, match=f"^interrupted; {where}$"):
        rounds_measure(kept, Field(Peer("hakmem", "0", None, "id"), (), {}, ()), candidates, "ceiling", "row")


def test_the_newest_incomplete_run_is_resumed(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="nothing to resume: no run was kept"):
        interrupted_find(tmp_path, KIND, SETTINGS)
    for run in ("20260101T000000Z", "20260102T000000Z"):
        plan_make(ROW).save(tmp_path / run)
    assert interrupted_find(tmp_path, KIND, SETTINGS).name == "20260102T000000Z"
    with pytest.raises(LabError, match="its suite was 'quick', asked for is 'full'"):
        interrupted_find(tmp_path, KIND, replace(SETTINGS, suite="full"))
    for named, changed in (("budget_seconds", {"budget_seconds": 9.0}), ("seed", {"seed": 8})):
        other = replace(SETTINGS, **changed)  # type: ignore[arg-type]  # any setting by its name
        assert interrupted_find(tmp_path, KIND, other).name == "20260102T000000Z"
        with pytest.raises(LabError, match=f"its {named.removesuffix('_seconds')} was "):
            interrupted_find(tmp_path, KIND, other, [named])
    (tmp_path / "20260102T000000Z" / RESULTS_FILE).write_text("")
    assert interrupted_find(tmp_path, KIND, SETTINGS).name == "20260101T000000Z"
    with measuring(tmp_path / "20260101T000000Z"):
        with pytest.raises(LabError, match="all 2 runs are complete, or are being measured"):
            interrupted_find(tmp_path, KIND, SETTINGS)
        with pytest.raises(LabError, match="the run 20260101T000000Z is being measured"):
            measuring(tmp_path / "20260101T000000Z").__enter__()
    (tmp_path / "20260101T000000Z" / RESULTS_FILE).write_text("")
    with pytest.raises(LabError, match="nothing to resume: all 2 runs are complete"):
        interrupted_find(tmp_path, KIND, SETTINGS)


def test_other_libraries_and_machines_are_not_resumed() -> None:
    plan, here = plan_make(ROW), machine_text(SOURCE)
    sameness_check(plan, {"hakmem": "0 id"}, here)
    with pytest.raises(LabError, match="hakmem was 0 id, now it is 0 new"):
        sameness_check(plan, {"hakmem": "0 new"}, here)
    with pytest.raises(LabError, match="glibc was not measured, now it is 2"):
        sameness_check(plan, {"hakmem": "0 id", "glibc": "2"}, here)
    with pytest.raises(LabError, match="it ran on a processor, 2 usable"):
        sameness_check(plan, {"hakmem": "0 id"}, "another")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--budget", "3h"], "its budget was '60.0', asked for is '10800.0'"),
        (["--seed", "5"], "its seed was '7', asked for is '5'"),
    ],
)
def test_a_run_is_not_resumed_with_another_budget_or_seed(
    option: list[str], said: str, tmp_path: Path
) -> None:
    plan_make(row_make("cell")).save(tmp_path / "bench" / "run")
    done = lab("bench", "--resume", "--confidence", "99", *option, LAB_RESULTS_DIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (2, f"hakmem: cannot resume run: {said}\n")


def candidate_make(name: str, /, **changes: object) -> Candidate:
    candidate = Candidate(
        name, "small", "program", "1", lambda _: NoTask(), 1, identities={"bench/program": "1f"}
    )  # type: ignore[arg-type,return-value]  # no run is made
    return replace(candidate, **changes)  # type: ignore[arg-type]  # any field by its name


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"program": "other"}, "its program: 'program' then, 'other' now"),
        ({"arguments": "2"}, "its arguments: '1' then, '2' now"),
        ({"group": "large"}, "its group: 'small' then, 'large' now"),
        ({"control": True}, "its control: 'False' then, 'True' now"),
        ({"memory": True}, "its memory: 'False' then, 'True' now"),
        ({"name": "another"}, "there is no such workload any more"),
    ],
)
def test_a_row_that_is_another_now_is_not_resumed(changes: dict[str, object], said: str) -> None:
    plan = plan_make(row_make("cell"))
    rows_check(plan, [candidate_make("cell")], {})
    with pytest.raises(LabError, match=f"^cannot resume run: cell: {said}$"):
        rows_check(plan, [candidate_make("cell", **changes)], {})


def test_a_row_whose_figure_is_another_now_is_not_resumed() -> None:
    plan = plan_make(row_make("cell", measure=Measure.CPU))
    said = "^cannot resume run: cell: its measure: 'processor time' then, 'time' now$"
    with pytest.raises(LabError, match=said):
        rows_check(plan, [candidate_make("cell")], {})


def test_a_row_that_cannot_run_now_is_not_resumed(checkout: Checkout) -> None:
    field = Field(Peer("hakmem", "0", None, "id"), (), {}, ())
    with pytest.raises(LabError, match=r"^cannot resume run: redis: not installed: redis-server$"):
        resume_check(
            plan_make(row_make("redis")), checkout, field, [], {"redis": "not installed: redis-server"}
        )


def test_a_run_is_of_the_programs_that_its_rows_run() -> None:
    field = Field(Peer("hakmem", "0", None, "id"), (), {}, ())
    candidates = [
        candidate_make("cell"),
        candidate_make(
            "redis", first_count=0, identities={"redis/redis.toml": "2f", "bench/command_cost": "3f"}
        ),
        candidate_make("unserved", identities={"unserved/unserved.toml": "4f"}),
    ]
    assert identities_of(field, candidates, [row_make("cell"), row_make("redis")]) == {
        "hakmem": "0 id",
        "bench/program": "1f",
        "redis/redis.toml": "2f",
        "bench/command_cost": "3f",
    }


def test_what_was_kept_is_read_once_no_other_process_adds_to_it(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[bool] = []

    def load(_: SampleStore) -> list[Sample]:
        locked.append(is_measured(kept.folder))
        raise LabError("read")

    monkeypatch.setattr(SampleStore, "load", load)
    with pytest.raises(LabError, match=r"^read; what was measured is in "):
        bench_measure(kept, Field(Peer("hakmem", "0", None, "id"), (), {}, ()), [])
    assert locked == [True]


# ---- live ---------------------------------------------------------------------------------------------


def bench_start(build: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hakmem_lab", "bench", "--build", str(build), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def crash_library(tmp_path: Path) -> Path:
    """A library that ends every process."""
    source, library = tmp_path / "crash.c", tmp_path / "crash.so"
    source.write_text("__attribute__((constructor)) static void crash(void) { __builtin_trap(); }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def test_a_run_that_is_interrupted_and_resumed(build: Path, crash_library: Path, tmp_path: Path) -> None:
    """With a peer that crashes: it has its row, and the others go on."""
    only = ["--only", "64 of 64 B", "--allocators", f"glibc,{crash_library}"]
    options = [*only, "--confidence", "50", "--budget", "2s", "--seed", "5"]
    with bench_start(build, *options) as first:
        assert first.stderr is not None
        for line in first.stderr:  # a row is told after its first round
            if line.startswith("hakmem: row 1"):
                break
        first.send_signal(signal.SIGINT)
        said = first.stderr.read()
    assert first.returncode == 130
    where = r"hakmem: interrupted; what was measured is in \S*bench_results/bench/"
    assert re.match(where, said.splitlines()[-1])
    folder = ROOT / said.rpartition(" in ")[2].partition(",")[0]
    before = {one.key for one in SampleStore(folder / "raw", {}).load()}
    assert before

    report = tmp_path / "report.md"
    with bench_start(build, *options, "--resume", "--report", str(report)) as second:
        output, errors = second.communicate()
    assert second.returncode in (0, 1), errors
    samples = SampleStore(folder / "raw", {}).load()
    assert before < {one.key for one in samples}
    assert (folder / "results.csv").is_file()
    assert "crash.so" in output and "crashed" in output
    assert "| crash.so | crashed: signal " in report.read_text()
    assert str(tmp_path) not in report.read_text()
