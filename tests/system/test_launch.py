"""The launcher: what it passes on to the program and back, and whom it waits for."""

import ctypes
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from toolbox import (
    COMMAND,
    TIMEOUT_SECONDS,
    Build,
    changes_of,
    compile_c,
    has_statistics,
    only_line,
    run,
    run_well,
    tool,
    variables_of_the_script,
)

BEFORE_THE_PROGRAM = """
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int prctl(int option, ...) {
    va_list rest;
    va_start(rest, option);
    const unsigned long argument = va_arg(rest, unsigned long);
    va_end(rest);
    const pid_t parent = getppid();
    (void)parent;
    if (option == PR_SET_PDEATHSIG) { ACTION }
    return (int)syscall(SYS_prctl, option, argument, 0, 0, 0);
}
"""


def run_before_the_program(target: Path, action: str) -> Path:
    """A library that, preloaded into the launcher, makes its child do something just before that executes the program."""
    return compile_c(target, BEFORE_THE_PROGRAM.replace("ACTION", action), "-shared", "-fPIC")


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


def test_a_profiles_file_is_found_from_every_folder(build: Build, tmp_path: Path) -> None:
    (tmp_path / "p").write_text("decay = 7s\n")
    (tmp_path / "elsewhere").mkdir()
    report = tmp_path / "report"
    result = build.run(
        "sh",
        "-c",
        "cd elsewhere && HAKMEM_STATS=1 exec cat /dev/null",
        options=("--profile", "./p"),
        env={"HAKMEM_STATS_FILE": str(report)},
        cwd=tmp_path,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert " decay 7s (file)\n" in report.read_text()
    # What cannot be found is named as it was given, and so is what would be too long for the library.
    deep = tmp_path / ("a" * 200)
    deep.mkdir()
    (tmp_path / "p").rename(deep / "p")
    assert build.run("true", options=("--profile", "./p"), cwd=deep).stderr == ""
    result = build.run("true", options=("--profile", "./none"), cwd=tmp_path)
    assert only_line(result.stderr) == "hakmem: the profile ./none is ignored: it cannot be read"


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(
    ("options", "documented"),
    [
        ((), {}),
        (("--stats", "--profile", "small"), {"HAKMEM_STATS": "1", "HAKMEM_PROFILE": "small"}),
    ],
)
def test_the_environment_is_the_users_and_what_is_documented(
    build: Build, shell: str, options: tuple[str, ...], documented: dict[str, str]
) -> None:
    given = build.environment() | variables_of_the_script()
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    line = (tool(shell), COMMAND, "run", *options, "--", sys.executable, "-I", "-c", script)
    changes = changes_of(given, json.loads(run_well(*line, env=given)))
    assert changes.pop("HAKMEM_PROOF")
    assert changes == {"LD_PRELOAD": str(build.library.resolve()), **documented}


def test_other_preloads_stay(build: Build) -> None:
    other = "libm.so.6"
    result = build.run("sh", "-c", "echo $LD_PRELOAD", env={"LD_PRELOAD": other})
    assert result.stdout == f"{build.library.resolve()}:{other}\n"


def test_leaves_no_file_behind(build: Build, tmp_path: Path) -> None:
    for command in ("exit 0", "kill -9 $$"):
        build.run("sh", "-c", command, env={"TMPDIR": str(tmp_path)})
    assert not list(tmp_path.iterdir())


def test_a_proof_that_was_removed_is_read(build: Build, tmp_path: Path) -> None:
    result = build.run("sh", "-c", 'rm "$HAKMEM_PROOF"; exit 3', env={"TMPDIR": str(tmp_path)})
    assert (result.returncode, result.stderr) == (3, "")


NO_PROOF = "it is not known whether hakmem served {}: its word could not be written to {}/hakmem-proof-"


def test_no_proof_where_no_file_may_be_written(build: Build, tmp_path: Path) -> None:
    line = ["sh", "-c", 'ulimit -f 0 && exec "$@" 2>&1 | cat', "sh", build.launcher, build.library, "--"]
    env = build.environment(TMPDIR=str(tmp_path))
    result = run(*line, "sh", "-c", "echo served; exit 3", env=env)
    assert result.stdout.startswith(f"served\nhakmem: {NO_PROOF.format('sh', tmp_path)}")


def test_no_proof_where_it_was_removed_before_the_program_began(build: Build, tmp_path: Path) -> None:
    removes = run_before_the_program(tmp_path / "removes.so", 'unlink(getenv("HAKMEM_PROOF"));')
    env = build.environment(LD_PRELOAD=str(removes), TMPDIR=str(tmp_path))
    result = run(build.launcher, build.library, "--", "sh", "-c", "exit 3", env=env)
    assert result.returncode == 3
    assert NO_PROOF.format("sh", tmp_path) in only_line(result.stderr)


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


SENT = [
    "SIGTERM",
    "SIGINT",
    "SIGHUP",
    "SIGQUIT",
    "SIGUSR1",
    "SIGUSR2",
    "SIGWINCH",
    "SIGALRM",
    "SIGPIPE",
    "SIGTTIN",
    "SIGPWR",
    "SIGRTMIN",
]


@pytest.mark.parametrize("name", SENT)
def test_signal_to_the_launcher_reaches_the_program_once(
    build: Build, started: list[subprocess.Popen[str]], name: str
) -> None:
    process = start(build, started, sys.executable, "-c", CATCHER, name)
    process.send_signal(signal.Signals[name])
    output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert output == f"[({signal.Signals[name].value}, 1)]\n"
    assert process.returncode == 7


GROUP_SENDER = """
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile sig_atomic_t count;
static void take(int number) { (void)number, count++; }
int main(void) {
    signal(SIGRTMIN, take); /* of these each one arrives */
    puts("ready");
    fflush(stdout);
    kill(0, SIGRTMIN);
    for (int i = 0; i < 15; i++) usleep(20000);
    printf("%d\\n", count);
    return 0;
}
"""


def test_what_the_program_sends_to_its_group_reaches_it_once(
    build: Build, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    """As the `kill 0` of a shell does."""
    process = start(build, started, str(compile_c(tmp_path / "sender", GROUP_SENDER)))
    output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert output == "1\n"


VALUE_TAKER = """
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile int value;
static void take(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    value = info->si_value.sival_int;
}
int main(void) {
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = take;
    sigaction(SIGRTMIN + 1, &action, NULL);
    puts("ready");
    fflush(stdout);
    for (int i = 0; value == 0 && i < 500; i++) usleep(20000);
    printf("%d\\n", value);
    return 0;
}
"""


def test_a_signal_brings_its_value(
    build: Build, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = start(build, started, str(compile_c(tmp_path / "taker", VALUE_TAKER)))
    assert ctypes.CDLL(None).sigqueue(process.pid, signal.SIGRTMIN + 1, ctypes.c_void_p(4711)) == 0
    output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert output == "4711\n"


def test_an_alarm_set_before_ends_the_program(build: Build) -> None:
    """The usual way to limit a command's time where there is no timeout."""
    script = "import os, signal, sys; signal.alarm(1); os.execv(sys.argv[1], sys.argv[1:])"
    result = run(sys.executable, "-c", script, COMMAND, "run", "--", "sleep", "60", env=build.environment())
    assert result.returncode == -signal.SIGALRM


def test_nothing_is_started_for_a_launcher_that_was_killed_meanwhile(build: Build, tmp_path: Path) -> None:
    kills = "kill(parent, SIGKILL); while (getppid() == parent) usleep(1000);"
    preloaded = run_before_the_program(tmp_path / "kills.so", kills)
    env = build.environment(LD_PRELOAD=str(preloaded), TMPDIR=str(tmp_path))
    result = run(build.launcher, build.library, "--", "echo", "started", env=env)
    assert (result.returncode, result.stdout) == (-signal.SIGKILL, "")


def test_signal_that_is_not_caught_ends_both(build: Build, started: list[subprocess.Popen[str]]) -> None:
    process = start(build, started, "sh", "-c", "echo ready; exec sleep 60")
    process.terminate()
    assert process.wait(TIMEOUT_SECONDS) == -signal.SIGTERM


def test_stops_and_continues_with_the_program(
    build: Build, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    told = tmp_path / "told"
    process = start(
        build, started, "sh", "-c", f"echo ready; until [ -e {told} ]; do sleep 0.05; done; exit 5"
    )
    process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    told.touch()
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


# ---- other children -----------------------------------------------------------------------------------

LEAVES_ORPHANS = """
import os, sys, time
reader, writer = os.pipe()
if os.fork() == 0:
    orphans = [os.fork() for _ in range(2)]
    if 0 not in orphans:
        os.write(writer, " ".join(map(str, orphans)).encode())
    elif orphans[0] == 0:
        time.sleep(0.2)
    os._exit(3)
os.wait()
orphans = os.read(reader, 100).decode().split()
deadline = time.monotonic() + 60
while any(os.path.exists(f"/proc/{pid}") for pid in orphans) and time.monotonic() < deadline:
    time.sleep(0.01)
print([pid for pid in orphans if os.path.exists(f"/proc/{pid}")], flush=True)
sys.exit(5)
"""


def test_no_orphan_is_left_a_zombie(build: Build) -> None:
    """As process 1 of a container it inherits whoever's parent has ended."""
    inherits = (
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    result = run(
        sys.executable,
        *("-c", inherits, COMMAND, "run", "--", sys.executable, "-c", LEAVES_ORPHANS),
        env=build.environment(),
    )
    assert (result.returncode, result.stdout, result.stderr) == (5, "[]\n", "")
