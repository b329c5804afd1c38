from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout, path_here
from hakmem_lab.cli import app, main
from hakmem_lab.commands import baseline
from hakmem_lab.commands.common import grids_show
from hakmem_lab.errors import LabError
from hakmem_lab.files import target_check
from hakmem_lab.grid import Grid
from lab_command import lab, lab_by_shell

LAB = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "--only", "nosuch"], "hakmem: no workload is named like 'nosuch'; there are: "),
        (["bench", "--build", "/nowhere"], "hakmem: /nowhere holds no build: libhakmem.so is not there\n"),
        (["footprint", "--only", "nosuch"], "hakmem: no program is named like 'nosuch'; there are: "),
        (["instructions", "--build", "/nowhere"], "hakmem: /nowhere holds no build: "),
        (["ab", "glibc", "hakmem", "--build", "/nowhere"], "hakmem: /nowhere holds no build: "),
        (["ab", "glibc", "./nolib.so"], "hakmem: ./nolib.so: there is no such library"),
        (["report", "--from", "/nowhere"], "hakmem: /nowhere holds no run: "),
        (["bench", "--from", "no/where"], "hakmem: no/where holds no run: "),
        (["scaling", "--from", "no/where", "--sizes", "8"], "hakmem: --sizes is for a new run, and --from "),
        (["ceiling", "--from", "no/where", "--seed", "5"], "hakmem: --seed is for a new run, and --from "),
    ],
)
def test_an_error_is_one_line(arguments: list[str], message: str) -> None:
    done = lab(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("library", ["typer", "numpy"])
def test_an_interrupt_during_the_imports_is_one_line(library: str, tmp_path: Path) -> None:
    """Also inside an exec, as dataclasses have one; and of what one command alone imports."""
    (tmp_path / f"{library}.py").write_text("import os\nexec('os.kill(os.getpid(), 2)')\n")
    done = lab("doctor", PYTHONPATH=f"{tmp_path}:{LAB}")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hakmem: interrupted\n")


def test_an_interrupt_of_a_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(baseline, "baseline_path", interrupted)
    monkeypatch.setattr(sys, "argv", ["hakmem", "baseline", "check"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "hakmem: interrupted\n")


def test_what_an_encoding_does_not_have_is_replaced() -> None:
    done = lab("canned", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" in done.stdout


@pytest.fixture
def beginning_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_: Path | None = None) -> Checkout:
        raise AssertionError("it began")

    monkeypatch.setattr(Checkout, "find", find)


ANSWERING = ("bench", "ab glibc hakmem", "sweep decay=1s", "ceiling", "where", "scaling", "sharing", "peers")
REPORTING = ("bench", "canned depth", "honesty", "ceiling", "where", "scaling", "sharing", "builds", "report")


@pytest.mark.usefixtures("beginning_fails")
@pytest.mark.parametrize(
    ("command", "option"),
    [
        *((one, "--json") for one in (*ANSWERING, "compare --program lua", "doctor", "baseline check")),
        *((one, "--report") for one in (*REPORTING, "faults", "footprint", "bgsave", "baseline planted")),
    ],
)
def test_where_nothing_can_be_written_is_said_before_anything_is_measured(
    command: str, option: str, tmp_path: Path
) -> None:
    for path, why in ((tmp_path / "no/x.md", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(LabError, match=f"^cannot write {re.escape(str(path))}: {why}$"):
            app([*command.split(), option, str(path)], standalone_mode=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("beginning_fails")
@pytest.mark.parametrize(
    "command",
    [*(one for one in REPORTING if one != "where"), "faults", "footprint", "bgsave", "baseline planted"],
)
def test_a_report_has_not_the_name_of_what_is_written_beside_it(command: str, tmp_path: Path) -> None:
    for suffix in ("html", "csv", "parquet"):
        with pytest.raises(LabError, match=r"x\.(html|csv|parquet): a report is Markdown, as x\.md; "):
            app([*command.split(), "--report", str(tmp_path / f"x.{suffix}")], standalone_mode=False)


@pytest.mark.usefixtures("beginning_fails")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("bench --json {0}/x.md --report {0}/x.md", "--json and --report would both write {0}/x.md"),
        ("bench --report {0}/x.md --json {0}/../{1}/x.html", "--report and --json would both write {0}/../"),
        ("where --report {0}/x --json {0}/x", "--report and --json would both write {0}/x"),
        (
            "explain --decisions --json {0}/x --freeze {0}/x true",
            "--json and --freeze would both write {0}/x",
        ),
    ],
)
def test_two_outputs_are_not_one_file(arguments: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=f"^{re.escape(message.format(tmp_path))}"):
        app(arguments.format(tmp_path, tmp_path.name).split(), standalone_mode=False)
    assert list(tmp_path.iterdir()) == []


def test_a_device_takes_several_outputs(served: Path) -> None:
    both = ["--json", "/dev/null", "--report", "/dev/null"]
    done = lab("bench", "--build", str(served), "--only", "nosuch", *both)
    assert done.stderr.startswith("hakmem: no workload is named like 'nosuch'")


@pytest.mark.parametrize("command", ["bgsave", "footprint", "scaling"])
def test_a_study_without_a_peer_is_refused(command: str) -> None:
    with pytest.raises(LabError, match="--peers names none"):
        app([command, "--peers", " , "], standalone_mode=False)


def test_the_terminal_shows_paths_that_work_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "checkout/bench_results/ab/samples.csv"
    for folder, shown in ((tmp_path, "checkout/bench_results/ab/samples.csv"), (kept.parent, "samples.csv")):
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(folder)
        assert path_here(kept) == shown
    monkeypatch.chdir("/")
    assert path_here(kept) == str(kept).lstrip("/")
    monkeypatch.chdir(Path(__file__).parent)
    assert path_here(kept) == str(kept)
    assert path_here(Path("../run")) == "../run"


def test_a_target_is_left_as_it_was(tmp_path: Path) -> None:
    kept, missing, link = tmp_path / "kept", tmp_path / "missing", tmp_path / "link"
    kept.write_text("before")
    link.symlink_to("missing")
    for path in (kept, missing, link, Path("/dev/full")):
        assert target_check(path) == path
    assert target_check(None) is None
    assert (kept.read_text(), missing.exists()) == ("before", False)
    assert link.readlink() == Path("missing")


def test_without_standard_output_an_error_is_said(tmp_path: Path) -> None:
    """Nothing of the command's is written over a file that got its number."""
    done = lab_by_shell('"$@" >&-', "doctor", "--root", str(tmp_path))
    assert (done.returncode, done.stderr) == (2, "hakmem: the standard output is closed\n")


def test_a_folder_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert path_here(tmp_path / "samples.csv") == str(tmp_path / "samples.csv")
    monkeypatch.setattr(sys, "argv", ["hakmem", "peers", "--build", "build"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert (ended.value.code, said) == (2, "hakmem: the current folder: No such file or directory\n")


WRITING = (["--help"], ["explain", "--help"], ["canned"], ["show-config", "--json"], ["doctor"])


@pytest.mark.parametrize("arguments", WRITING)
def test_a_full_disk_is_one_line(served: Path, arguments: list[str]) -> None:
    build = ["--build", str(served)] if arguments[0] in ("doctor", "show-config") else []
    done = lab_by_shell('"$@" >/dev/full', *arguments, *build)
    assert (done.returncode, done.stderr) == (2, "hakmem: No space left on device\n")


@pytest.mark.parametrize("arguments", WRITING)
def test_nobody_reads_is_no_answer(served: Path, arguments: list[str]) -> None:
    """In particular not 1, which means that something was found."""
    build = ["--build", str(served)] if arguments[0] in ("doctor", "show-config") else []
    done = lab_by_shell('"$@" | true', *arguments, *build)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [[], ["explain"], ["baseline"], ["baseline", "check"]])
def test_help_has_a_short_name(arguments: list[str]) -> None:
    short, long = lab(*arguments, "-h"), lab(*arguments, "--help")
    assert (short.returncode, short.stdout) == (0, long.stdout)
    assert short.stdout.startswith(" ".join(["Usage: ./hakmem", *arguments]))


def test_what_a_terminal_would_obey_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """In the name of a process, or in a variable's value; other letters stay."""
    hostile = "s\u00e9rver\x1b]0;x\x07\n\u202e\udc80"
    grid = Grid(f"of {hostile}", ("what",), ((f"a {hostile}",),))
    grids_show([grid], [f"line {hostile}"])
    told = capsys.readouterr().out
    plain = "s\u00e9rver?]0;x????"
    assert [word in told for word in (f"of {plain}", f"a {plain}", f"line {plain}")] == [True] * 3
    assert "\x1b]" not in told


def test_a_cell_of_a_page_stays_one() -> None:
    grid = Grid("", ("what", "count"), (("a|b\nc\r\nd", "1"),))
    assert grid.markdown().splitlines() == ["| what | count |", "| --- | ---: |", "| a\\|b c d | 1 |"]


@pytest.mark.parametrize(("option", "value"), [("--suite", "much"), ("--seed", "-1")])
def test_a_wrong_option_is_refused(option: str, value: str) -> None:
    done = lab("bench", option, value)
    assert done.returncode == 2
    assert option in done.stderr
    assert done.stderr.startswith("Usage: ./hakmem bench ")


def test_a_missing_peer_is_an_error(served: Path) -> None:
    done = lab("bench", "--build", str(served), "--allocators", "glibc,nosuch")
    assert done.returncode == 2
    assert done.stderr.startswith("hakmem: there is no allocator 'nosuch'; known: ")


def test_two_allocators_of_one_name_are_an_error(served: Path, tmp_path: Path) -> None:
    (tmp_path / "libhakmem.so").write_bytes((served / "libhakmem.so").read_bytes())
    both = f"{served / 'libhakmem.so'},{tmp_path / 'libhakmem.so'}"
    done = lab("bench", "--build", str(served), "--allocators", both)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("hakmem: two allocators are named libhakmem.so: ")


def test_footprint_from_beginning_to_end(served: Path, tmp_path: Path) -> None:
    """A peer that is named twice is measured once; hakmem always is."""
    report = tmp_path / "report.md"
    options = ["--rounds", "2", "--peers", "glibc,hakmem,glibc", "--only", "random mix", "--seed", "5"]
    done = lab("footprint", "--build", str(served), *options, "--report", str(report))
    assert done.returncode in (0, 1), done.stderr
    text = report.read_text()
    for part in ("--rounds 2 --peers glibc,hakmem,glibc --seed 5", "| random mix, 256 slots |", "report.csv"):
        assert part in text
    assert str(tmp_path) not in text
    with report.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2
    assert {row["arm"] for row in rows} == {"hakmem", "glibc"}
    assert all(
        int(row["peak_rss_kib"]) >= int(row["rss_kib"]) > int(row["anonymous_kib"]) > 100 for row in rows
    )
