"""`hakmem bench`: its report from made-up runs, and what it refuses. A run of its own: resume_test.py."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.cli import app
from hakmem_lab.commands.bench import budget_seconds, command_text, status_of
from hakmem_lab.commands.units import seconds_parse
from hakmem_lab.errors import LabError
from hakmem_lab.reports.matrix_lines import floor_lines
from hakmem_lab.reports.matrix_report import Content, matrix_show, results_csv
from hakmem_lab.reports.matrix_text import figures_grid, memory_grid, outcome_grid
from hakmem_lab.reports.page import mood
from hakmem_lab.reports.pictures import pictures_make
from hakmem_lab.reports.then_and_now import then_grid
from hakmem_lab.studies.bench import Kept
from hakmem_lab.studies.judging import judge
from hakmem_lab.studies.matrix import SAME
from hakmem_lab.studies.starting_figures import STARTING_FIGURES
from hakmem_lab.workloads.cells import CELLS
from lab_command import lab
from lab_matrix import (
    FEW,
    PEERS,
    SETTINGS,
    crashing,
    observed_make,
    plan_make,
    row_make,
    samples_make,
    staged,
    unserved,
)


def test_the_report_in_all_its_forms(kept: Kept, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, results = tmp_path / "docs" / "matrix.md", tmp_path / "matrix.json"
    matrix_show(kept, report, results, complete=False)
    terminal, text, page = (
        capsys.readouterr().out,
        report.read_text(),
        report.with_suffix(".html").read_text(),
    )
    assert f"page: {kept.folder / 'report.html'}" in terminal.replace("\n", "")
    assert str(tmp_path) not in text and str(tmp_path) not in page
    for part in ("lost row", "won row", "crashed", "0.50 -", "1.50 +", "1 lost", "2 won"):
        assert part in terminal and part in text and part in page, part
    for part in (
        "./hakmem bench --seed 7",
        "Latency of single operations",
        "20 / 90 / 400 / 90 µs",
        "System calls",
    ):
        assert part in text and part in page, part
    assert text.index("| lost row") < text.index("| won row")
    assert str(tmp_path) not in text + page
    assert page.count("<svg") == text.count(".svg)") == 5
    for picture in ("speed", "peers", "memory", "latency", "faults"):
        assert report.with_name(f"matrix-{picture}.svg").is_file()
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "")
    assert not (kept.folder / "results.csv").exists()  # else an interrupted run would count as complete
    content = json.loads(results.read_text())
    assert {one["row"]["name"]: one["outcome"] for one in content["workloads"]}["lost row"] == "lost"
    assert content["failures"] == [
        {"workload": "crash row", "allocator": "glibc", "what": "crashed: signal 11"}
    ]


def test_a_page_that_cannot_be_written_takes_no_table_away(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    (kept.folder / "report.html").mkdir()
    with pytest.raises(LabError, match=r"^cannot write \S+report\.html: Is a directory$"):
        matrix_show(kept, None, None, complete=True)
    told = capsys.readouterr().out
    assert "lost row" in told and "1 lost" in told and "page: " not in told
    assert not (kept.folder / "results.csv").exists()


def test_a_run_in_which_everything_failed_has_no_samples_and_completes(tmp_path: Path) -> None:
    plan = replace(plan_make(), missing={"cell": "every allocator fails in it: failed: status 1"})
    run, report = Kept(tmp_path / "run", plan), tmp_path / "matrix.md"
    plan.save(run.folder)
    matrix_show(run, report, None, complete=True)
    assert (run.folder / "results.csv").exists()
    assert not report.with_suffix(".parquet").exists()
    pages = (report, report.with_suffix(".html"), run.folder / "report.html")
    assert all("Raw samples" not in page.read_text() for page in pages)


def test_results_have_a_row_for_each_comparison(kept: Kept) -> None:
    rows = list(csv.DictReader(results_csv(kept.judged()).splitlines()))
    assert len(rows) == 3 * len(PEERS)
    assert (rows[0]["workload"], rows[0]["verdict"]) == ("lost row", "behind")
    (crashed,) = [row for row in rows if row["failure"]]
    assert (crashed["workload"], crashed["failure"], crashed["ratio"]) == (
        "crash row",
        "glibc crashed: signal 11",
        "",
    )


def test_results_call_more_memory_larger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row, json_file = row_make("cell"), tmp_path / "results.json"
    run = Kept(tmp_path / "run", plan_make(row))
    run.plan.save(run.folder)
    run.store.append(samples_make(row, rss={"glibc": 0.5, "mimalloc3": 2.0}))
    matrix_show(run, None, json_file, complete=True)
    capsys.readouterr()
    words = {"glibc": "larger", "mimalloc3": "smaller", "jemalloc": "equal within margin"}
    rows = csv.DictReader((run.folder / "results.csv").read_text().splitlines())
    assert {one["against"]: one["rss_verdict"] for one in rows} == words
    told = json.loads(json_file.read_text())["comparisons"]
    assert {one["against"]: one["memory"]["verdict"] for one in told} == words


def test_the_starting_figures_are_shares_of_glibc() -> None:
    """Not speeds: those are of another machine."""
    row = row_make("2 threads, 8-32 KiB")
    grid = then_grid(judge(plan_make(row), samples_make(row, glibc=3.0)))
    (line,) = grid.rows
    assert line[:5] == ("mid_large_mt 8-32 KiB", "2.1", "8.7", "0.24", "2 threads, 8-32 KiB")
    assert line[5:7] == ("4.0", "1.3")
    assert line[7].startswith("3.0")


def test_every_starting_figure_has_its_workload() -> None:
    assert {then.row for then in STARTING_FIGURES} <= {cell.name for cell in CELLS}


def test_memory_workloads_show_what_they_are_about() -> None:
    row = row_make("rest", memory=True, figure="idle_rss_kib")
    seen = [
        replace(observed_make(row, arm), figure=figure) for arm, figure in (("hakmem", 5.0), ("glibc", 70.0))
    ]
    grid = figures_grid(judge(plan_make(row), samples_make(row) + seen))
    assert grid.rows == (("rest", "idle_rss_kib", "5", "70", "", ""),)


def test_what_is_missing_is_said_first() -> None:
    row = row_make("cell", threads=8)
    plan = replace(plan_make(row), missing={"tcmalloc": "no network"})
    lines = Content.of(judge(plan, samples_make(row))).lines
    assert lines[0] == "Not measured: tcmalloc: no network."
    assert lines[1] == "More threads than the 2 processors: cell."


def test_too_few_rounds_are_said_in_words() -> None:
    row = row_make("cell", rounds=2)
    content = Content.of(judge(plan_make(row), samples_make(row)))
    assert "Too few rounds for a choice of the best peer: cell." in content.lines
    assert content.short[0].rows[0][2:4] == ("open", "too few rounds")


@pytest.mark.parametrize(
    ("fails", "glibc", "said"),
    [
        ("", 2.0, "No workload is below half of glibc."),
        ("glibc", 2.0, "Of the 1 of 2 workloads that have a verdict beside glibc none is below half of it."),
        (
            "hakmem",
            2.0,
            "Of the 1 of 2 workloads that have a verdict beside glibc none is below half of it. hakmem failed in bad.",
        ),
        ("hakmem", 0.4, "Below half of glibc: good (0.40 (0.40 to 0.40)). hakmem failed in bad."),
    ],
)
def test_no_workload_is_below_half_of_glibc_where_all_were_compared(
    fails: str, glibc: float, said: str
) -> None:
    good, bad = row_make("good"), row_make("bad")
    samples = [*samples_make(good, glibc=glibc), *crashing(samples_make(bad, glibc=2.0), fails)]
    assert floor_lines(judge(plan_make(good, bad), samples)) == [said]


def test_where_nothing_was_compared_with_glibc_nothing_is_said_of_half_of_it() -> None:
    row = row_make("cell")
    crash = judge(plan_make(row), crashing(samples_make(row), "hakmem"))
    assert floor_lines(crash) == ["No workload has a verdict beside glibc. hakmem failed in cell."]
    assert floor_lines(judge(plan_make(row), [])) == ["No workload has a verdict beside glibc."]


def test_half_of_glibc_is_of_intervals_and_not_of_void_workloads() -> None:
    near, slow, void = row_make("near"), row_make("slow"), row_make("void")
    unsure = samples_make(near, noise=0.3, glibc=0.5)
    below = samples_make(slow, glibc=0.3)
    differs = samples_make(void, glibc=0.3, **{SAME: 1.1})
    assert floor_lines(judge(plan_make(void), differs)) == ["No workload has a verdict beside glibc."]
    (line,) = floor_lines(judge(plan_make(near), unsure))
    assert line.startswith("Not decided whether below half of glibc: near (0.")
    (line,) = floor_lines(judge(plan_make(near, slow, void), [*unsure, *below, *differs]))
    assert line.startswith("Below half of glibc: slow (0.30 ")
    assert ". Not decided whether below half of glibc: near (" in line and "void" not in line


def test_a_mean_says_of_how_many_workloads_it_is() -> None:
    rows = [row_make(name) for name in ("one", "two", "three")]
    samples = [one for row in rows[:2] for one in samples_make(row, glibc=2.0)]
    bad = crashing(samples_make(rows[2]), "hakmem")
    lines = Content.of(judge(plan_make(*rows), [*samples, *bad])).lines
    assert any(line.startswith("Geometric mean over 2 of 3 workloads: 2.00") for line in lines)


def test_the_pairs_of_the_outcomes_are_those_of_their_intervals() -> None:
    """Ten rounds, of which two selected."""
    matrix = judge(plan_make(FEW), staged(FEW, samples_make(FEW, glibc=3.0, jemalloc=1.2, mimalloc3=1.0)))
    grid = outcome_grid(matrix)
    assert grid.columns[-1] == "pairs"
    assert [row[-1] for row in grid.rows] == ["8"]


def test_a_workload_that_the_picture_of_speeds_leaves_out_is_named_below_it() -> None:
    good, bad = row_make("good"), row_make("bad")
    samples = [*samples_make(good), *crashing(samples_make(bad), "hakmem")]
    speed = pictures_make(judge(plan_make(good, bad), samples))[0]
    assert speed.name == "speed"
    assert speed.caption.endswith(" Without a ratio: bad (lost: hakmem crashed: signal 11).")
    alone = pictures_make(judge(plan_make(good), samples_make(good)))[0]
    assert "Without a ratio" not in alone.caption


def test_the_status_is_of_a_loss_of_no_answer_or_of_neither() -> None:
    row, still = row_make("cell"), row_make("still", control=True)
    won = samples_make(row, glibc=2.0)
    assert status_of(judge(plan_make(row), won)) == 0
    assert status_of(judge(plan_make(row), crashing(won, "hakmem"))) == 1
    nobody = unserved(row_make("nobody"))
    assert status_of(judge(plan_make(row, nobody), won)) == 3
    assert status_of(judge(plan_make(nobody), [])) == 3
    assert status_of(judge(plan_make(still), samples_make(still))) == 3
    crash = crashing(won, "hakmem")
    assert status_of(judge(plan_make(row, nobody), crash)) == 1


def test_a_run_without_a_verdict_that_is_not_void_is_no_answer() -> None:
    row, other, still = row_make("cell"), row_make("other"), row_make("still", control=True)
    won, differs = samples_make(row, glibc=2.0), samples_make(other, **{SAME: 1.1})
    assert status_of(judge(plan_make(other), differs)) == 3
    assert status_of(judge(plan_make(row, other), [*won, *differs])) == 0
    assert status_of(judge(plan_make(row, still), [*won, *samples_make(still, glibc=1.2)])) == 3


@pytest.mark.parametrize("arm", ["hakmem", SAME, SETTINGS.slowed])
@pytest.mark.parametrize("memory", [False, True])
def test_a_crash_of_hakmems_library_is_a_loss_in_every_workload(arm: str, memory: bool) -> None:
    row, other = row_make("cell", memory=memory), row_make("other")
    samples = [*samples_make(other, glibc=2.0), *crashing(samples_make(row, glibc=2.0), arm)]
    assert status_of(judge(plan_make(row, other), samples)) == 1


def test_without_instruments_there_are_no_empty_pictures() -> None:
    row = row_make("cell")
    samples = [replace(one, minor_faults=3) for one in samples_make(row)]
    assert [one.name for one in pictures_make(judge(plan_make(row), samples))] == ["speed", "peers"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("behind", "bad"), ("0.50 -", "bad"), ("1.50 +", "good"), ("1.00 =", "")],
)
def test_losses_stand_out(text: str, expected: str) -> None:
    assert mood(text) == expected


def test_more_memory_stands_out_as_a_loss() -> None:
    row = row_make("cell")
    grid = memory_grid(judge(plan_make(row), samples_make(row, rss={"glibc": 0.5, "mimalloc3": 2.0})))
    assert grid.rows == (("cell", "2.00 -", "0.50 +", "1.00 ="),)
    assert [mood(entry) for entry in grid.rows[0][1:]] == ["bad", "good", ""]


@pytest.mark.parametrize(
    ("suite", "only", "budget", "expected"),
    [
        ("quick", "", "", (1680.0, 1680.0)),
        ("quick", "x", "", (60.0, 90.0)),
        ("full", "", "", (4200.0, 6300.0)),
        ("full", "", "10m", (600.0, 900.0)),
    ],
)
def test_budgets(suite: str, only: str, budget: str, expected: tuple[float, float]) -> None:
    assert budget_seconds(replace(SETTINGS, suite=suite, only=only), budget, 3) == expected


def test_a_command_with_a_long_budget_can_be_given_again() -> None:
    words = command_text(replace(SETTINGS, budget_seconds=1_080_000.0), "").split()
    assert seconds_parse(words[words.index("--budget") + 1]) == 1_080_000


def test_a_command_names_arms_as_they_were_given_but_for_a_librarys_folder() -> None:
    words = command_text(SETTINGS, "hakmem:profile=./my.profile, /home/me/libfast.so").split()
    assert words[words.index("--allocators") + 1] == "hakmem:profile=./my.profile,libfast.so"


@pytest.mark.parametrize(
    "option", [["--margin", "3%"], ["--suite", "quick"], ["--allocators", "glibc"], ["--resume"]]
)
def test_what_is_for_a_new_run_is_refused_where_a_kept_one_is_judged(kept: Kept, option: list[str]) -> None:
    done = lab("bench", "--from", str(kept.folder), *option)
    assert done.returncode == 2
    why = "is for a new run, and --from judges a kept one by its own plan"
    assert done.stderr == f"hakmem: {option[0]} {why}\n"


@pytest.mark.parametrize("command", ["scaling", "ceiling"])
def test_a_run_is_judged_by_the_command_that_made_it(kept: Kept, command: str) -> None:
    """Another one writes nothing to its folder."""
    before = sorted(path.name for path in kept.folder.iterdir())
    done = lab(command, "--from", str(kept.folder))
    assert done.returncode == 2
    assert done.stderr == f"hakmem: {kept.folder} is a run of `bench`, not of `{command}`\n"
    assert sorted(path.name for path in kept.folder.iterdir()) == before


def test_a_kept_run_is_judged_again(kept: Kept, tmp_path: Path) -> None:
    report, results = tmp_path / "matrix.md", tmp_path / "matrix.json"
    done = lab("bench", "--from", str(kept.folder), "--report", str(report), "--json", str(results))
    assert (done.returncode, done.stderr) == (1, "")
    assert "lost row" in done.stdout
    assert report.is_file() and results.is_file()


# ---- live ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["bench --only fixed_size --allocators", "scaling --axes threads --threads 1 --peers"]
)
def test_an_option_that_hakmem_does_not_understand_is_refused(served: Path, command: str) -> None:
    line = [*command.split(), "hakmem:decay=nevr", "--budget", "2s", "--build", str(served)]
    with pytest.raises(LabError, match=r"^hakmem:decay=nevr: HAKMEM_DECAY=nevr is not understood"):
        app(line, standalone_mode=False)
