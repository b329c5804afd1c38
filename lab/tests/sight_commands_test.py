"""explain, doctor, show-config and stats as commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.cli import COMMANDS, main
from hakmem_lab.commands import common
from hakmem_lab.measure.tree import children_of
from hakmem_lab.sight import launch
from hakmem_lab.sight.process import Process
from lab_command import LAB, lab, lab_by_shell
from lab_processes import (
    FRAGMENTED,
    FREED,
    on_hakmem,
    running,
)
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from toolbox import compile_c, environment

IMPORTS = """
import sys
from hakmem_lab.cli import app
app(sys.argv[1:], standalone_mode=False)
print(*sys.modules, file=sys.stderr)
"""
SLOW = {"duckdb", "matplotlib", "pandas", "pyarrow", "scipy"}
"""Each takes tenths of a second to import, or more."""


@pytest.mark.parametrize("command", ["stats", "explain", "explain --decisions", "doctor", "show-config"])
def test_a_look_at_a_process_begins_at_once(command: str, checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, FREED) as pid:
        line = [sys.executable, "-c", IMPORTS, *command.split(), str(pid)]
        done = subprocess.run(
            line, env={**os.environ, "PYTHONPATH": str(LAB)}, capture_output=True, text=True
        )
    imported = set(done.stderr.split())
    assert "hakmem_lab.sight.process" in imported, done.stderr
    assert not imported & SLOW


def test_the_help_names_every_command() -> None:
    folder = LAB / "hakmem_lab/commands"
    named = {name for name in COMMANDS if (folder / f"{name.replace('-', '_')}.py").exists()}
    assert named == set(COMMANDS)
    done = lab("--help")
    assert [line.split()[0] for line in done.stdout.partition("Commands:\n")[2].splitlines()] == list(
        COMMANDS
    )


def test_explain_a_process(checkout: Checkout, tmp_path: Path) -> None:
    out = tmp_path / "why.json"
    with on_hakmem(checkout, tmp_path, FRAGMENTED) as pid:
        done = lab("explain", str(pid), "--json", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert "free blocks beside used ones" in done.stdout
    assert "What would help:" in done.stdout
    content = json.loads(out.read_text())
    assert content["reconciled"]
    assert sum(row["bytes"] for row in content["rows"]) == content["rss_bytes"]


@pytest.mark.usefixtures("checkout")
def test_explain_a_command(build: Path) -> None:
    script = "print('its own'); kept = [bytes(5000) for _ in range(4000)]; import time; time.sleep(1.5); raise SystemExit(5)"
    done = lab("explain", "--build", str(build), "--after", "1s", "--", sys.executable, "-c", script)
    assert (done.returncode, done.stdout) == (5, "its own\n")
    assert "small blocks in use" in done.stderr
    assert "s after its start." in done.stderr


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("options", [["--json"], ["--decisions", "--json"], ["--decisions", "--freeze"]])
def test_explain_a_command_that_is_too_short(
    build: Path,
    tmp_path: Path,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its status is its own all the same, and an earlier result is not taken for one of it."""
    monkeypatch.setattr(launch, "FIRST_SECONDS", 60)
    earlier = tmp_path / "earlier"
    earlier.write_text("{}")
    arguments = ["explain", *options, str(earlier), "--build", str(build), "--", "sh", "-c", "exit 5"]
    monkeypatch.setattr(sys, "argv", ["hakmem", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 5
    assert capsys.readouterr() == ("", "hakmem: the program ended before it could be looked at\n")
    assert not earlier.exists()


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("output", ["2>/dev/full", "2>&-", "2>&1 >/dev/null | true"])
def test_the_status_of_a_command_whose_table_cannot_be_written(build: Path, output: str) -> None:
    command = ["explain", "--build", str(build), "--", "sh", "-c", "sleep 0.5; exit 5"]
    done = lab_by_shell(f'"$@" {output}', *command)
    assert (done.returncode, done.stdout, done.stderr) == (5, "", "")


@pytest.mark.usefixtures("checkout")
def test_doctor_where_no_file_may_be_written(build: Path) -> None:
    command = ["doctor", "--build", str(build), "--", "sh", "-c", "sleep 0.5"]
    done = lab_by_shell('ulimit -f 0; "$@" 2>&1 | cat', *command)
    assert done.returncode == 0, done.stdout
    assert re.search(r"notice │ proof of service +│ not known ", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["explain"], "hakmem: give the number of a process, or a command after --"),
        (["explain", "4194305"], "hakmem: there is no process 4194305"),
        (["explain", "1", "--after", "3s"], "hakmem: --after and --when-rss are for a command"),
        (
            ["explain", "--after", "1s", "--when-rss", "1G", "--", "true"],
            "hakmem: give either --after or --when-rss",
        ),
        (["explain", "--when-rss", "much", "--", "true"], "hakmem: --when-rss is a size such as"),
        (["stats", "4194305"], "hakmem: there is no process 4194305"),
        (["explain", "12", "34"], "hakmem: one process at a time"),
        (["doctor", "12", "34"], "hakmem: one process at a time"),
        (["doctor", "--json", "4711"], "hakmem: --json takes a file, here 4711, and there is no process: "),
        (["stats", "1", "--json", "--openmetrics"], "hakmem: give either --json or --openmetrics"),
        (["show-config", "4194305"], "hakmem: there is no process 4194305"),
        (["doctor", "4194305"], "hakmem: there is no process 4194305"),
        (["doctor", "7" * 5000], "hakmem: there is no process 7777777777..."),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hakmem", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(line)
    assert said.count("\n") == 1


def test_a_report_is_for_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "stats.json"
    report.write_text("{}")
    monkeypatch.setattr(sys, "argv", ["hakmem", "explain", str(report)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"hakmem: {report} is a report: only --decisions reads one\n"


def test_stats(checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, FRAGMENTED) as pid:
        as_json = lab("stats", str(pid), "--json")
        as_openmetrics = lab("stats", str(pid), "--openmetrics")
        as_text = lab("stats", str(pid))
    report = json.loads(as_json.stdout)
    assert (report["pid"], report["program"]) == (pid, "program")
    names = {family.name for family in text_string_to_metric_families(as_openmetrics.stdout)}
    assert {"hakmem_memory_held_bytes", "hakmem_class_live_blocks"} <= names
    values = re.findall(r"^│ (\w+ \w+) .* (\S.*?) +│$", as_text.stdout, re.MULTILINE)
    units = {name: value[-1] for name, value in values}
    assert units["memory held_bytes"] == units["heaps cached_bytes_most"] == "B"
    assert units["process mappings"].isdigit()


@pytest.mark.parametrize(
    "command", [["stats", "--json"], ["explain"], ["explain", "--decisions"], ["show-config"], ["doctor"]]
)
def test_the_launcher_stands_for_its_program(checkout: Checkout, tmp_path: Path, command: list[str]) -> None:
    program = compile_c(tmp_path / "program", FREED, "-pthread")
    start = [checkout.build / "hakmem-launch", checkout.library, "--", program]
    with running(start, environment()) as launcher:
        (pid,) = children_of(launcher)
        done = lab(*command, str(launcher))
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"hakmem: {launcher} is the launcher; its program is process {pid}\n"
    assert str(pid) in done.stdout


@pytest.mark.parametrize("under_another", [{}, {"HAKMEM_PROOF": "/none"}])
def test_the_launcher_had_another_child_before(
    checkout: Checkout, tmp_path: Path, under_another: dict[str, str]
) -> None:
    """The shell that became it had started one; that shell may itself be on hakmem."""
    program = compile_c(tmp_path / "program", FREED, "-pthread")
    launch_line = f"exec {checkout.build}/hakmem-launch {checkout.library} -- {program}"
    with running(["sh", "-c", f"sleep 60 & {launch_line}"], environment(**under_another)) as launcher:
        other, pid = children_of(launcher)
        try:
            done = lab("stats", "--json", str(launcher))
        finally:
            os.kill(other, signal.SIGKILL)
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"hakmem: {launcher} is the launcher; its program is process {pid}\n"
    assert json.loads(done.stdout)["pid"] == pid


def test_a_program_of_the_launcher_that_cannot_be_told(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It overwrote its environment, as programs that set their title do."""
    overwritten = "import sys; print('ready', flush=True); sys.stdin.read()"
    start = [checkout.build / "hakmem-launch", checkout.library, "--", sys.executable, "-c", overwritten]
    with running(start, environment()) as launcher:
        (pid,) = children_of(launcher)
        monkeypatch.setattr(common, "children_of", lambda _: [pid, os.getpid()])
        monkeypatch.setattr(Process, "environment", lambda _: {})
        assert common.process_asked(launcher).pid == pid
    told = f"its program is process {pid}, or another of its children: {os.getpid()}\n"
    assert capsys.readouterr().err == f"hakmem: {launcher} is the launcher; {told}"


def test_show_config(checkout: Checkout, build: Path, tmp_path: Path) -> None:
    done = lab("show-config", "--build", str(build), "--json", HAKMEM_DECAY="2s", HAKMEM_CONF="bin_depth:64")
    assert done.returncode == 0, done.stderr
    (config,) = json.loads(done.stdout)
    options = {one["name"]: one for one in config["options"]}
    assert (options["decay"]["value"], options["decay"]["source"]) == ("2s", "environment")
    assert (options["bin_depth"]["value"], options["bin_depth"]["source"]) == ("64", "conf")
    with on_hakmem(checkout, tmp_path, FREED, decay="2s", conf="bin_depth:64") as pid:
        (inside,) = json.loads(lab("show-config", str(pid), "--json").stdout)
    fields = ("name", "value", "source", "default", "accepts", "anytime", "text", "cost")
    assert [[one[field] for field in fields] for one in inside["options"]] == [
        [one[field] for field in fields] for one in config["options"]
    ]


def test_an_objective_decides_what_nobody_set(checkout: Checkout, build: Path, tmp_path: Path) -> None:
    asked = {"HAKMEM_PROFILE": "speed", "HAKMEM_CONF": "adapt:off"}
    (config,) = json.loads(lab("show-config", "--build", str(build), "--json", **asked).stdout)
    with on_hakmem(checkout, tmp_path, FREED, profile="speed", conf="adapt:off") as pid:
        (inside,) = json.loads(lab("show-config", str(pid), "--json").stdout)
    for of in (config, inside):
        options = {one["name"]: one for one in of["options"]}
        assert (options["objective"]["value"], options["objective"]["source"]) == ("speed", "profile")
        assert (options["decay"]["value"], options["decay"]["source"]) == ("2s", "objective")
        assert (options["thread_cache"]["value"], options["thread_cache"]["source"]) == ("32MiB", "objective")
        assert not [one for one in options.values() if one.get("decided", "") and one["name"] != "window"]
    asked |= {"HAKMEM_DECAY": "1s", "HAKMEM_THREAD_CACHE": "1M"}
    (config,) = json.loads(lab("show-config", "--build", str(build), "--json", **asked).stdout)
    options = {one["name"]: one for one in config["options"]}
    assert [options[name]["value"] for name in ("decay", "thread_cache")] == ["1s", "1MiB"]


def test_a_switch_that_is_not_one(checkout: Checkout, build: Path, tmp_path: Path) -> None:
    done = lab("show-config", "--build", str(build), "--", "true", HAKMEM_STAT="1")
    assert done.returncode == 1
    assert "HAKMEM_STAT is not an option and is ignored; the nearest is HAKMEM_STATS" in done.stdout
    with on_hakmem(checkout, tmp_path, FREED, decai="1s", quiet="1") as pid:
        done = lab("doctor", str(pid))
    assert done.returncode == 1
    assert "HAKMEM_DECAI" in done.stdout


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize(
    ("content", "variables", "line"),
    [
        (None, {}, "is ignored: it cannot be read"),
        (None, {"HAKMEM_QUIET": "1"}, "is ignored: it cannot be read"),
        ("#" * 5000, {}, "is ignored: it is longer than 4095 bytes"),
        (
            "decya = 2s\n",
            {},
            "profile file, line 1: decya is not an option and is ignored; the nearest is decay",
        ),
        ("decay = much\n", {}, "profile file, line 1: decay:much is not understood and is ignored"),
    ],
)
def test_a_profile_of_which_something_is_ignored(
    build: Path, tmp_path: Path, content: str | None, variables: dict[str, str], line: str
) -> None:
    profile, out = tmp_path / "my.profile", tmp_path / "found.json"
    if content is not None:
        profile.write_text(content)
    variables = {"HAKMEM_PROFILE": str(profile), **variables}
    shown = lab("show-config", "--build", str(build), "--json", **variables)
    assert shown.returncode == 1, shown.stderr
    ((mistake,),) = (config["mistakes"] for config in json.loads(shown.stdout))
    assert line in mistake["line"]
    asked = lab("doctor", "--build", str(build), "--json", str(out), **variables)
    assert asked.returncode == 1, asked.stderr
    problems = [one for one in json.loads(out.read_text())["findings"] if one["what"] == "option"]
    assert [one["means"] for one in problems] == [mistake["line"]]


def test_a_profile_that_a_process_did_not_read(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its path as the process sees it. One that it did read may have gone since."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    profile = Path("my.profile")
    with on_hakmem(checkout, tmp_path, FREED, profile="./my.profile", quiet="1") as pid:
        shown = lab("show-config", str(pid), "--json")
    assert shown.returncode == 1
    ((mistake,),) = (config["mistakes"] for config in json.loads(shown.stdout))
    assert mistake["line"] == "the profile ./my.profile is ignored: it cannot be read"
    profile.write_text("decay = 2s\n")
    with on_hakmem(checkout, tmp_path, FREED, profile="./my.profile") as pid:
        profile.unlink()
        assert lab("show-config", str(pid), "--json").returncode == 0


MOVED = """
#include <unistd.h>
#include <stdio.h>
int main(void) {
    if (chdir("/") != 0) return 1;
    puts("ready"), fflush(stdout);
    while (getchar() != EOF) continue;
}
"""


@pytest.mark.parametrize(
    ("source", "name", "content"),
    [
        pytest.param(FREED, "my.profile", "profile = small\n", id="only another profile"),
        pytest.param(MOVED, "my.profile", "quiet = off\n", id="overridden, from a folder that was left"),
    ],
)
def test_a_profile_that_a_process_did_read(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str, content: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    profile = Path(name)
    profile.write_text(content)
    with on_hakmem(checkout, tmp_path, source, profile=f"./{name}", quiet="1") as pid:
        if source is FREED:
            profile.unlink()
        (config,) = json.loads(lab("show-config", str(pid), "--json").stdout)
    assert config["mistakes"] == []


@pytest.mark.usefixtures("checkout")
def test_a_profile_whose_name_is_not_shown_as_it_is(build: Path, tmp_path: Path) -> None:
    """The library writes ? for what is not ASCII. All that this one sets is overridden."""
    profile = tmp_path / "größe.profile"
    profile.write_text("quiet = off\n")
    variables = {"HAKMEM_PROFILE": str(profile), "HAKMEM_QUIET": "1"}
    (config,) = json.loads(lab("show-config", "--build", str(build), "--json", **variables).stdout)
    assert config["mistakes"] == []


@pytest.mark.usefixtures("checkout")
def test_doctor_of_a_command(build: Path) -> None:
    out = lab("doctor", "--build", str(build), "--", sys.executable, "-c", "import time; time.sleep(0.5)")
    assert out.returncode == 0, out.stdout
    assert "proof of service" in out.stdout


FREES_ANOTHERS = (
    "#include <stdlib.h>\nint main(void) { static char own[64]; char *volatile at = own; free(at + 16); }\n"
)


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize(
    ("end", "status", "found"),
    [
        ("exit 3", 0, r"notice │ end +│ exit status 3 "),
        ("kill -TERM $$", 1, r"problem │ end +│ signal 15 \(Terminated\) +│ this signal"),
        ("exec ./frees", 1, r"problem │ end +│ signal 6 \(Aborted\) +│ .* its message is above"),
    ],
)
def test_doctor_of_a_command_that_ends_badly(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, status: int, found: str
) -> None:
    """Also if hakmem itself ended it."""
    compile_c(tmp_path / "frees", FREES_ANOTHERS)
    monkeypatch.chdir(tmp_path)
    out = lab("doctor", "--build", str(build), "--", "sh", "-c", f"sleep 0.5; {end}")
    assert out.returncode == status
    assert re.search(found, out.stdout)


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize(("command", "status"), [("doctor", 1), ("explain", 2), ("show-config", 2)])
def test_a_script_whose_interpreter_is_not_there(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, status: int
) -> None:
    (tmp_path / "script").write_text("#!/nosuch/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    done = lab(command, "--build", str(build), "--", "./script")
    assert done.returncode == status
    assert "./script: its interpreter /nosuch/interpreter cannot be executed" in done.stdout + done.stderr


@pytest.mark.usefixtures("checkout")
def test_doctor_of_a_static_program(build: Path, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "static", "int main(void) { return 0; }\n", "-static")
    out = lab("doctor", "--build", str(build), "--", str(program))
    assert out.returncode == 1
    assert "a static binary" in out.stdout


def test_doctor_of_a_made_up_machine(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Cpus_allowed_list:\t0\n")
    (tmp_path / "proc/self/limits").write_text("Limit  Soft Limit  Hard Limit  Units\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 1 kB\n")
    out = lab("doctor", "--root", str(tmp_path))
    assert out.returncode == 1
    assert "1 problem," in out.stdout
