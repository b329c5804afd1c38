"""./hakmem and its launcher: what they say and pass on."""

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from toolbox import (
    COMMAND,
    TIMEOUT_SECONDS,
    Build,
    environment,
    has_statistics,
    only_line,
    run,
    run_well,
    tool,
)

# ---- the command line -------------------------------------------------------------------------------


COMMANDS = re.search(r'^commands="(.*)"$', COMMAND.read_text(), re.MULTILINE)[1].split()  # type: ignore[index]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    asked = run_well(COMMAND, command, "--help")
    assert asked.startswith("Usage: ./hakmem ")
    assert run_well(COMMAND, "help", command).startswith("Usage: ./hakmem ")


def test_help_names_every_command() -> None:
    text = run_well(COMMAND, "--help")
    assert all(re.search(f"^  {name}$|^  {name} ", text, re.MULTILINE) for name in COMMANDS)
    assert run_well(COMMAND, "help") == text


def test_version() -> None:
    name, version = run_well(COMMAND, "--version").split()
    assert name == "hakmem"
    assert all(part.isdigit() for part in version.split("."))


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["rum"], "run"),
        (["rnu"], "run"),
        (["--verison"], "--version"),
        (["run", "--stat", "--", "true"], "--stats"),
        (["build", "relase"], "release"),
        (["build", "--hlep"], "--help"),
        (["test", "--fsat"], "--fast"),
        (["soak", "--minute", "3"], "--minutes"),
        (["soak", "--programs", "--reprot", "x"], "--report"),
        (["soak", "--programs", "--minuts", "3"], "--minutes"),
        (["fuzz", "--alf"], "--afl"),
        (["help", "tset"], "test"),
    ],
)
def test_mistakes_get_one_line_and_the_nearest_name(arguments: list[str], suggestion: str) -> None:
    result = run(COMMAND, *arguments)
    assert result.returncode == 2
    assert only_line(result.stderr).endswith(f"did you mean {suggestion}?")
    assert not result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-thing-at-all"],
        ["run"],
        ["run", "--"],
        ["run", "--profile"],
        ["build", "release", "asan"],
        ["test", "a|b"],
        ["soak", "--minutes", "0"],
        ["soak", "--minutes", "soon"],
        ["soak", "--minutes", "3", "--programs"],
        ["soak", "--programs", "a|b"],
        ["soak", "--programs", "--report"],
        ["soak", "--programs", "--minutes", "no"],
        ["soak", "--programs", "checked"],
        ["soak", "--minutes", "3", "--failures"],
        ["soak", "--failures", "--what"],
        ["fuzz", "--minutes"],
        ["fuzz", "--minutes", "0.0"],
        ["fuzz", "--minutes", "1m"],
    ],
)
def test_other_mistakes_get_one_line(arguments: list[str]) -> None:
    result = run(COMMAND, *arguments)
    assert result.returncode == 2
    only_line(result.stderr)


def test_no_command_shows_the_help() -> None:
    result = run(COMMAND)
    assert result.returncode == 2
    assert "Usage" in result.stderr


@pytest.mark.parametrize("shell", ["dash", "busybox", "bash"])
def test_runs_in_every_shell(shell: str, build: Build) -> None:
    prefix = [tool(shell), "sh"] if shell == "busybox" else [tool(shell)]
    result = run(*prefix, COMMAND, "run", "--", "echo", "a  b", env=build.environment())
    assert (result.returncode, result.stdout, result.stderr) == (0, "a  b\n", "")
    assert "did you mean" in run(*prefix, COMMAND, "rum").stderr


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with what a minimal system has, and neither compiler nor CMake."""
    folder = tmp_path / "bin"
    folder.mkdir()
    names = "awk cat cmp dirname find flock grep head id mkdir mv nproc paste readlink rm sed sh tail"
    for name in names.split():
        found = run_well("sh", "-c", f"command -v {name}").strip()
        (folder / name).symlink_to(Path(found).resolve() if name != "awk" else found)
    return folder


@pytest.fixture
def clean_checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing was ever built."""
    target = tmp_path / "checkout"
    target.mkdir()
    source = COMMAND.parent
    for name in (
        "hakmem",
        "CMakeLists.txt",
        "CMakePresets.json",
        "cmake",
        "include",
        "src",
        "tools",
        "tests",
        "bench",
    ):
        run_well("cp", "-R", source / name, target)
    return target


def test_says_what_is_missing_when_it_may_not_install(bare_path: Path, clean_checkout: Path) -> None:
    (bare_path / "apt-get").write_text("#!/bin/sh\nexit 99\n")
    (bare_path / "apt-get").chmod(0o755)
    env = environment(PATH=str(bare_path), HAKMEM_NO_INSTALL="1", CC=None, CXX=None)
    result = run(clean_checkout / "hakmem", "run", "--", "true", env=env)
    assert result.returncode == 125
    line = only_line(result.stderr)
    assert "run this as root: apt-get install" in line
    assert all(f" {package}" in line for package in ("g++", "cmake", "make"))
    assert run(clean_checkout / "hakmem", "build", env=env).returncode == 1


def test_says_what_is_missing_where_there_is_no_apt(bare_path: Path, clean_checkout: Path) -> None:
    env = environment(PATH=str(bare_path), HAKMEM_NO_INSTALL="1", CC=None, CXX=None)
    result = run(clean_checkout / "hakmem", "build", env=env)
    assert result.returncode == 1
    assert "package manager" in only_line(result.stderr)


def test_a_build_that_fails_shows_its_end(clean_checkout: Path) -> None:
    (clean_checkout / "src/base/broken.c").write_text("#error planted here\n")
    result = run(clean_checkout / "hakmem", "run", "--", "true")
    assert result.returncode == 125
    assert "planted here" in result.stderr
    assert "hakmem-build.log" in result.stderr.splitlines()[-1]
    assert not result.stdout


@pytest.mark.slow
def test_builds_by_itself_and_again_after_a_change(clean_checkout: Path) -> None:
    command = clean_checkout / "hakmem"
    assert run_well(command, "run", "--", "echo", "one") == "one\n"
    library = clean_checkout / "build/libhakmem.so"
    first = library.stat().st_mtime_ns
    assert run(command, "run", "--", "echo", "two").stderr == ""
    assert library.stat().st_mtime_ns == first
    (clean_checkout / "src/base/extra.c").write_text(
        "int extra_for_test(void);\nint extra_for_test(void) { return 1; }\n"
    )
    assert run_well(command, "run", "--", "echo", "three") == "three\n"
    assert library.stat().st_mtime_ns > first


@pytest.mark.slow
@pytest.mark.alone
def test_adds_little_to_the_start(clean_checkout: Path) -> None:
    command = clean_checkout / "hakmem"
    run_well(command, "run", "--", "true")
    began = time.monotonic()
    for _ in range(5):
        run_well(command, "run", "--", "true")
    assert (time.monotonic() - began) / 5 < 0.1


@pytest.fixture
def foreign_checkout() -> Iterator[Path]:
    """One that only its owner may write: built, and with an environment whose Python says what it was asked."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are private
        target = Path(name)
        for folder in ("src", "build", ".tools", ".venv/bin"):
            (target / folder).mkdir(parents=True)
        run_well("cp", COMMAND, COMMAND.parent / "requirements.txt", target)
        run_well("cp", target / "requirements.txt", target / ".venv/requirements.installed")
        (target / ".venv/bin/python").write_text('#!/bin/sh\necho "$*"\n')
        (target / ".venv/bin/python").chmod(0o755)
        (target / "src/a.c").touch()
        (target / "build/.lock").touch()
        (target / "build/.built").touch()
        folders = [target, target / "build", target / ".tools"]
        for folder in folders:
            folder.chmod(0o555)
        yield target
        for folder in folders:
            folder.chmod(0o755)


def as_a_guest(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """By somebody who may not write there: for root that is another user."""
    env = environment(HAKMEM_NO_INSTALL="1")
    user = "nobody" if os.geteuid() == 0 else None
    return run(checkout / "hakmem", *arguments, env=env, cwd=Path("/"), user=user)


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["doctor"], "doctor"),
        (["help", "ab"], "ab --help"),
        (["where", "--help"], "where --help"),
    ],
)
def test_the_laboratory_of_a_checkout_that_cannot_be_written(
    foreign_checkout: Path, arguments: list[str], asked: str
) -> None:
    result = as_a_guest(foreign_checkout, *arguments)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"-B -m hakmem_lab {asked}\n", "")


def test_a_build_that_is_out_of_date_and_cannot_be_written(foreign_checkout: Path) -> None:
    now = time.time() + 60
    os.utime(foreign_checkout / "src/a.c", (now, now))
    result = as_a_guest(foreign_checkout, "doctor")
    assert result.returncode == 2
    assert f"{foreign_checkout}/build cannot be written" in only_line(result.stderr)
    assert as_a_guest(foreign_checkout, "run", "--", "true").returncode == 125


def test_an_environment_that_is_missing_and_cannot_be_written(foreign_checkout: Path) -> None:
    (foreign_checkout / ".venv/requirements.installed").unlink()
    result = as_a_guest(foreign_checkout, "doctor")
    assert result.returncode == 2
    only_line(result.stderr)


PYTHON = """#!/bin/sh
case "$*" in
    -c*) exec {real} "$@" ;;
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip "*)
        at=$(dirname "$0")
        ls {checkout}/.venv/bin >>{checkout}/seen
        printf '#!%s/python\n' "$at" >"$at/script"
        [ ! -e {checkout}/refuse ] ;;
    *) echo "anew: $*" ;;
esac
"""


@pytest.fixture
def outdated_checkout(tmp_path: Path) -> Path:
    """Its environment is of other requirements; a Python that only seems to make another comes first in bin."""
    target = tmp_path / "check out"
    for folder in (".venv/bin", "bin"):
        (target / folder).mkdir(parents=True)
    run_well("cp", COMMAND, COMMAND.parent / "requirements.txt", target)
    (target / ".venv/requirements.installed").touch()
    (target / ".venv/bin/old").touch()
    quoted = shlex.quote(str(target))
    (target / "bin/python3").write_text(PYTHON.format(real=shlex.quote(sys.executable), checkout=quoted))
    (target / "bin/python3").chmod(0o755)
    return target


def lab_start(checkout: Path) -> subprocess.Popen[str]:
    env = environment(PATH=f"{checkout}/bin:{os.environ['PATH']}")
    return subprocess.Popen([checkout / "hakmem", "help", "ab"], env=env, stdout=subprocess.PIPE, text=True)


def test_an_environment_is_replaced_when_the_new_one_is_whole_and_once(outdated_checkout: Path) -> None:
    both = [lab_start(outdated_checkout) for _ in range(2)]
    assert [one.communicate(timeout=60)[0] for one in both] == ["anew: -B -m hakmem_lab ab --help\n"] * 2
    assert (outdated_checkout / "seen").read_text() == "old\n"
    kept = outdated_checkout / ".venv"
    assert (kept / "bin/script").read_text() == f"#!{kept}/bin/python\n"
    assert not (kept / "bin/old").exists()
    assert list((outdated_checkout / ".tools").glob(".venv.new*")) == []


def test_an_environment_that_cannot_be_had_leaves_the_old_one(outdated_checkout: Path) -> None:
    (outdated_checkout / "refuse").touch()
    process = lab_start(outdated_checkout)
    assert (process.communicate(timeout=60)[0], process.returncode) == ("", 2)
    assert [one.name for one in (outdated_checkout / ".venv/bin").iterdir()] == ["old"]
    assert list((outdated_checkout / ".tools").glob(".venv.new*")) == []


def test_a_build_directory_without_a_build_is_refused(tmp_path: Path) -> None:
    env = environment(HAKMEM_BUILD_DIR=str(tmp_path))
    result = run(COMMAND, "run", "--", "true", env=env)
    assert result.returncode == 125
    assert str(tmp_path) in only_line(result.stderr)


# ---- what is passed on ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 2, 42, 125, 255])
def test_exit_status(build: Build, status: int) -> None:
    result = build.run("sh", "-c", f"exit {status}")
    assert (result.returncode, result.stderr) == (status, "")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGINT", "SIGUSR1"])
def test_death_by_signal(build: Build, name: str, tmp_path: Path) -> None:
    number = signal.Signals[name]
    # A shell starts what it puts in the background with SIGINT ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    result = build.run("sh", "-c", f"kill -{number.value} $$", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (-number, "")


def test_output_input_and_arguments(build: Build) -> None:
    script = "cat; printf 'err' >&2; printf '<%s>' \"$@\""
    result = build.run("sh", "-c", script, "name", "a b", "", "*", "--", "-x", stdin="in\n")
    assert result.stdout == "in\n<a b><><*><--><-x>"
    assert result.stderr == "err"


def test_the_separator_may_be_left_out(build: Build) -> None:
    result = run(COMMAND, "run", "echo", "--stats", env=build.environment())
    assert (result.returncode, result.stdout, result.stderr) == (0, "--stats\n", "")


def test_working_directory(build: Build, tmp_path: Path) -> None:
    assert build.run("pwd", "-P", cwd=tmp_path).stdout.strip() == str(tmp_path.resolve())


def test_statistics_go_to_standard_error_only(build: Build) -> None:
    result = build.run("echo", "out", options=("--stats",))
    assert result.stdout == "out\n"
    assert has_statistics(result.stderr)
    assert not build.run("echo", "out").stderr


def test_profile_reaches_the_library(build: Build) -> None:
    for options in (("--profile", "small"), ("--profile=small",)):
        assert build.run("sh", "-c", "echo $HAKMEM_PROFILE", options=options).stdout == "small\n"


def test_other_preloads_stay(build: Build) -> None:
    other = "libm.so.6"
    result = build.run("sh", "-c", "echo $LD_PRELOAD", env={"LD_PRELOAD": other})
    assert result.stdout == f"{build.library.resolve()}:{other}\n"


def test_leaves_no_file_behind(build: Build, tmp_path: Path) -> None:
    for command in ("exit 0", "kill -9 $$"):
        build.run("sh", "-c", command, env={"TMPDIR": str(tmp_path)})
    assert not list(tmp_path.iterdir())


def test_program_found_in_path(build: Build, tmp_path: Path) -> None:
    script = tmp_path / "my-program"
    script.write_text("#! /bin/sh\necho found\n")
    script.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert build.run("my-program", env={"PATH": path}).stdout == "found\n"


def test_script_without_an_interpreter_line(build: Build, tmp_path: Path) -> None:
    script = tmp_path / "plain"
    script.write_text("echo plain $1\n")
    script.chmod(0o755)
    result = build.run(script, "argument")
    assert (result.returncode, result.stdout) == (0, "plain argument\n")


def test_wrapper_that_executes_another_program(build: Build) -> None:
    assert build.run("env", "nice", "sh", "-c", "exec echo done").stdout == "done\n"


# ---- signals ----------------------------------------------------------------------------------------

CATCHER = """
import signal, sys, time
counts = {}
def count(number, frame):
    counts[number] = counts.get(number, 0) + 1
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), count)
print("ready", flush=True)
deadline = time.monotonic() + 10
while not counts and time.monotonic() < deadline:
    time.sleep(0.02)
time.sleep(0.3)
print(sorted(counts.items()), flush=True)
sys.exit(7)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def start(build: Build, started: list[subprocess.Popen[str]], *command: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [COMMAND, "run", "--", *command],
        env=build.environment(),
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,  # the kernel stops no process of a group that nobody could continue
    )
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_signal_to_the_launcher_reaches_the_program_once(
    build: Build, started: list[subprocess.Popen[str]], name: str
) -> None:
    process = start(build, started, sys.executable, "-c", CATCHER, name)
    process.send_signal(signal.Signals[name])
    output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert output == f"[({signal.Signals[name].value}, 1)]\n"
    assert process.returncode == 7


def test_signal_that_is_not_caught_ends_both(build: Build, started: list[subprocess.Popen[str]]) -> None:
    process = start(build, started, "sh", "-c", "echo ready; exec sleep 60")
    process.terminate()
    assert process.wait(TIMEOUT_SECONDS) == -signal.SIGTERM


def test_stops_and_continues_with_the_program(build: Build, started: list[subprocess.Popen[str]]) -> None:
    process = start(build, started, "sh", "-c", "echo ready; sleep 1; exit 5")
    process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    assert process.wait(TIMEOUT_SECONDS) == 5


def test_interrupt_from_the_terminal_arrives_once(build: Build) -> None:
    child, terminal = pty.fork()
    if child == 0:
        command = [str(COMMAND), "run", "--", sys.executable, "-c", CATCHER, "SIGINT"]
        os.execve(COMMAND, command, build.environment())
    output = b""
    while b"ready" not in output:
        output += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    while b"]" not in output:
        output += os.read(terminal, 1000)
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert b"[(2, 1)]" in output
    assert os.waitstatus_to_exitcode(status) == 7
