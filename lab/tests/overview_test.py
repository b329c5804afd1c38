"""`hakmem report`, from a made-up store."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.cli import app
from hakmem_lab.errors import LabError
from hakmem_lab.measure.store import SampleStore, provenance_columns
from hakmem_lab.reports.overview import bottleneck_lines, change_lines, page_make
from hakmem_lab.studies.baseline import Gate
from hakmem_lab.studies.matrix import RESULTS_FILE
from hakmem_lab.studies.overview import Overview, overview_gather
from hakmem_lab.studies.where import ALLOCATOR, FunctionCost, Where
from lab_matrix import SETTINGS, SOURCE, crashing, observed_make, plan_make, row_make, samples_make

ROWS = ("one", "two", "three")


def run_make(
    folder: Path,
    name: str,
    glibc: dict[str, float],
    complete: bool = True,
    cpu: str = SOURCE.cpu,
    only: str = "",
    fails: str = "",
    **changes: object,
) -> Path:
    """A run of the matrix in which hakmem is so many times as fast as glibc in each row, and as the others, or FAILS. CHANGES of
    the plan."""
    rows = [row_make(row) for row in glibc]
    source = replace(SOURCE, cpu=cpu, commit=f"commit-{name}", date=f"2026-01-{name} 00:00 UTC")
    plan = replace(
        plan_make(*rows), run=name, source=source, settings=replace(SETTINGS, only=only), **changes
    )  # type: ignore[arg-type]  # any field by its name
    run = folder / "bench_results/bench" / name
    plan.save(run)
    store = SampleStore(run / "raw", provenance_columns(name, source))
    for row in rows:
        level = glibc[row.name]
        rss = {"glibc": 1 / 1.5} if row.name == "two" else None
        samples = samples_make(row, rss=rss, glibc=level, mimalloc3=1.0, jemalloc=1.0)
        store.append(crashing(samples, "hakmem") if row.name == fails else samples)
        store.append([observed_make(row, "hakmem")])
    store.compact()
    if complete:
        (run / RESULTS_FILE).write_text("")
    return run


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path, tmp_path / "build")


def level(value: float) -> dict[str, float]:
    return dict.fromkeys(ROWS, value)


def gathered(checkout: Checkout) -> Overview:
    return overview_gather(checkout, None, None)


def test_without_a_run_there_is_no_page(checkout: Checkout) -> None:
    with pytest.raises(LabError, match="no complete run of the matrix is in bench_results"):
        gathered(checkout)


def test_the_newest_complete_run_is_shown_and_held_against_the_one_before(checkout: Checkout) -> None:
    run_make(checkout.root, "01", level(2.0))
    run_make(checkout.root, "02", level(2.0) | {"one": 1.5, "three": 3.0})
    run_make(checkout.root, "03", level(9.0), complete=False)
    run_make(checkout.root, "04", level(9.0), only="one")
    overview = gathered(checkout)
    assert overview.run.plan.run == "02"
    assert overview.before is not None and overview.before.run == "01"
    words = {(one.row, one.against): one.word for one in overview.changes}
    assert words["one", "glibc"] == "slower"
    assert words["three", "glibc"] == "faster"
    assert words["two", "glibc"] == "as before"
    assert (overview.changes[0].row, overview.changes[0].word) == ("one", "slower")
    assert "1 are clearly slower beside their peer, 1 clearly faster" in change_lines(overview)[0]


def test_a_workload_that_crashes_now_is_a_change_and_so_is_one_that_no_longer_does(
    checkout: Checkout,
) -> None:
    run_make(checkout.root, "01", level(2.0), fails="three")
    run_make(checkout.root, "02", level(2.0) | {"two": 1.0}, fails="one")
    overview = gathered(checkout)
    assert [(one.row, one.word) for one in overview.changes[:2]] == [("one", "fails now"), ("two", "slower")]
    assert ("three", "runs again") in {(one.row, one.word) for one in overview.changes}
    told = change_lines(overview)
    assert "of 3 comparisons 1 are clearly slower" in told[0]
    assert told[1:] == [
        "Change: hakmem fails now in one (crashed: signal 11).",
        "Change: hakmem no longer fails in three.",
    ]
    page = page_make(overview, "raw")
    titles = {grid.title: grid.rows for grid in page.grids}
    assert titles["What crashed, hung or refused"] == (("one", "hakmem", "crashed: signal 11"),)
    changes = next(rows for title, rows in titles.items() if title.startswith("Change since"))
    assert changes[0] == ("one", "", "fails now", "", "crashed: signal 11", "")
    assert "hakmem failed in one: crashed: signal 11." in page.lines


def test_what_is_another_now_under_its_old_name_is_no_change(checkout: Checkout) -> None:
    rows = tuple(row_make(name, arguments="2" if name == "two" else "1") for name in ROWS)
    run_make(checkout.root, "01", level(2.0), rows=rows, identities={"mimalloc3": "3.3 id"})
    run_make(checkout.root, "02", level(1.0), identities={"mimalloc3": "3.4 id"})
    overview = gathered(checkout)
    compared = {(one.row, one.against) for one in overview.changes}
    assert compared == {(row, peer) for row in ("one", "three") for peer in ("glibc", "jemalloc")}
    assert change_lines(overview)[1:] == ["Change: left out, since they are others now: mimalloc3; two."]


@pytest.mark.parametrize("before", [{"other": 2.0}, None])
def test_a_run_of_other_workloads_or_another_machine_is_not_the_one_before(
    checkout: Checkout, before: dict[str, float] | None
) -> None:
    run_make(checkout.root, "01", before or level(1.0), cpu="another" if before is None else SOURCE.cpu)
    run_make(checkout.root, "02", level(2.0))
    overview = gathered(checkout)
    assert overview.before is None and overview.changes == ()
    assert "there is no earlier run on this machine" in change_lines(overview)[0]


def test_the_history_is_beside_glibc_over_the_same_workloads(checkout: Checkout) -> None:
    run_make(checkout.root, "00", level(9.0), cpu="another")
    run_make(checkout.root, "01", {"one": 2.0, "elsewhere": 50.0})
    run_make(checkout.root, "02", level(4.0) | {"one": 1.0})
    first, second = gathered(checkout).history
    assert (first.commit, first.workloads) == ("commit-01", 1)
    assert first.times_glibc == pytest.approx(2.0, rel=0.02)
    assert second.workloads == 3
    assert second.times_glibc == pytest.approx(16 ** (1 / 3), rel=0.02)


def test_strengths_and_weaknesses_are_what_is_clear(checkout: Checkout) -> None:
    run_make(checkout.root, "01", {"one": 0.5, "two": 2.0, "three": 1.0})
    overview = gathered(checkout)
    assert [(one.row.name, one.against) for one in overview.strengths] == [("two", "glibc")]
    assert [(one.row.name, one.against) for one in overview.weaknesses] == [("one", "glibc")]
    assert [(one.row.name, one.against) for one in overview.larger] == [("two", "glibc")]
    assert any("Nobody looked yet where the work goes in: one" in line for line in bottleneck_lines(overview))


def test_what_was_not_measured_is_said(checkout: Checkout) -> None:
    run_make(checkout.root, "01", level(2.0))
    lines = bottleneck_lines(gathered(checkout))
    assert any("no ceiling was measured; ./hakmem ceiling" in line for line in lines)
    assert any("it was not checked; ./hakmem baseline check" in line for line in lines)


def ceiling_keep(checkout: Checkout, name: str, only: str, share: float) -> None:
    row = row_make("one", peers=("ceiling", "null"))
    made = plan_make(row, peers=("ceiling", "null"), kind="ceiling")
    plan = replace(made, run=name, settings=replace(made.settings, only=only))
    folder = checkout.root / "bench_results/ceiling" / name
    plan.save(folder)
    store = SampleStore(folder / "raw", provenance_columns(name, plan.source))
    store.append(samples_make(row, ceiling=share, null=share / 2))
    store.compact()
    (folder / "ceiling.json").write_text("{}")


def test_workloads_that_were_picked_out_are_not_the_ceiling(checkout: Checkout) -> None:
    run_make(checkout.root, "01", level(2.0))
    ceiling_keep(checkout, "20260101", "", 0.5)
    ceiling_keep(checkout, "20260102", "one", 0.8)
    ceiling = gathered(checkout).ceiling
    assert ceiling is not None and ceiling.matrix.plan.run == "20260101"
    assert ceiling.shares[0].share.ratio == pytest.approx(0.5, rel=0.05)


def where_keep(checkout: Checkout, moment: str, arm: str, own: float) -> None:
    functions = (FunctionCost(ALLOCATOR, "slab_take", own), FunctionCost("program", "main", 100 - own))
    found = Where("one", arm, "id", moment, "operation", 10, 100.0, functions, (), 0, (), (), ())
    path = checkout.root / "bench_results/where" / moment / "where.json"
    path.parent.mkdir(parents=True)
    path.write_text(found.text())


def test_results_that_cannot_be_read_are_passed_over_and_named(checkout: Checkout) -> None:
    """Of another version of the laboratory, or damaged: the newest of each kind that can be read is shown."""
    run_make(checkout.root, "01", level(2.0))
    for run in ("02", "03"):
        run_make(checkout.root, run, level(2.0))
    (checkout.root / "bench_results/bench/02/plan.json").write_text("{}")
    for file in (checkout.root / "bench_results/bench/03/raw").iterdir():
        file.write_text("damaged")
    ceiling_keep(checkout, "20260101", "", 0.5)
    ceiling_keep(checkout, "20260102", "", 0.5)
    (checkout.root / "bench_results/ceiling/20260102/plan.json").write_text("[]")
    where_keep(checkout, "20260101", "hakmem", 10.0)
    where_keep(checkout, "20260102", "hakmem", 40.0)
    (checkout.root / "bench_results/where/20260102/where.json").write_text('{"task": "one"}')
    for moment, text in (
        ("20260101", '{"before": "abc", "gates": []}'),
        ("20260102", '{"gates": [{"row": 1}]}'),
    ):
        check = checkout.root / "bench_results/baseline" / moment / "check.json"
        check.parent.mkdir(parents=True)
        check.write_text(text)
    overview = gathered(checkout)
    assert (overview.run.plan.run, overview.before) == ("01", None)
    assert overview.ceiling is not None and overview.ceiling.matrix.plan.run == "20260101"
    assert [one.commit for one in overview.where] == ["20260101"]
    assert overview.baseline is not None and overview.baseline.before == "abc"
    passed_over = ["bench 02", "bench 03", "ceiling 20260102", "where 20260102", "baseline 20260102"]
    assert sorted(overview.unread) == sorted(passed_over)
    assert f"cannot read them: {', '.join(overview.unread)}." in page_make(overview, "raw").html()


def test_everything_is_on_one_page(checkout: Checkout) -> None:
    run_make(checkout.root, "01", level(2.0) | {"one": 0.4})
    run_make(checkout.root, "02", level(2.0) | {"one": 0.5})
    where_keep(checkout, "20260101", "hakmem", 10.0)
    where_keep(checkout, "20260102", "hakmem", 40.0)
    where_keep(checkout, "20260103", "jemalloc", 90.0)
    gate = Gate("mix", "instructions", 40.0, 44.0, "missed", 0.2)
    check = checkout.root / "bench_results/baseline/20260101/check.json"
    check.parent.mkdir(parents=True)
    check.write_text(json.dumps({"before": "abc", "gates": [asdict(gate)], "lost": []}))
    overview = gathered(checkout)
    assert [(one.task, one.commit) for one in overview.where] == [("one", "20260102")]
    page = page_make(overview, "raw").html()
    for part in (
        "Overall: Against the best of 3 peers",
        "Strengths",
        "Weaknesses",
        "Change since 2026-01-01 00:00 UTC, commit commit-01",
        "commit-02",
        "Baseline of abc: 1 figures lost",
        "slab_take",
        "40 %",
        "<svg",
    ):
        assert part in page, part
    assert "Nobody looked yet" not in page
    assert str(checkout.root) not in page


def test_a_page_that_cannot_be_kept_is_shown_all_the_same(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_make(checkout.root, "01", level(2.0))
    (checkout.root / "bench_results/report").touch()
    monkeypatch.setattr(Checkout, "find", lambda: checkout)
    with pytest.raises(LabError, match=r"bench_results/report is no folder"):
        app(["report"], standalone_mode=False)
    told = capsys.readouterr().out
    assert "Overall: Against the best of 3 peers" in told and "page: " not in told
