"""What every system test uses: the checkout, the build under test, and the tools of the machine."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "hakmem"
TIMEOUT_SECONDS = 300  # a machine that does other work configures and builds within it

# In strict mode a test that cannot be run is a test that failed.
STRICT = os.environ.get("HAKMEM_STRICT") == "1"


def cannot_run(reason: str) -> None:
    """Ends the test: skipped, or failed in strict mode."""
    if STRICT:
        pytest.fail(f"cannot be run: {reason}")
    pytest.skip(reason)


def soname() -> str:
    """What programs that are linked with the shared object ask for: another name where the interface may be another."""
    header = (ROOT / "include/hakmem/hakmem.h").read_text()
    major, minor, _ = re.findall(r"^#define HAKMEM_VERSION_\w+ (\d+)$", header, re.MULTILINE)
    return f"libhakmem.so.0.{minor}" if major == "0" else f"libhakmem.so.{major}"


def packages_of(command: str) -> str:
    """The Debian packages that bring a command, from the one table that knows."""
    for line in (ROOT / "tests/system/tools.txt").read_text().splitlines():
        name, *packages = line.split() or [""]
        if name == command:
            return " ".join(packages)
    raise KeyError(f"tests/system/tools.txt does not know {command}")


def tool(command: str) -> str:
    """The path of a command; without it the test is skipped, and the package named."""
    packages = packages_of(command)
    path = shutil.which(command)
    if path is None:
        cannot_run(f"needs {command} (on Debian: apt-get install {packages})")
        raise AssertionError
    return path


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment without hakmem's variables, changed; None removes a variable."""
    result = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    for name, value in changes.items():
        result.pop(name, None)
        if value is not None:
            result[name] = value
    return result


def variables_of_the_script() -> dict[str, str]:
    """A user's variables, with the names that ./hakmem has for its own behind their prefix."""
    names = re.findall(
        r"(?:^|[ ;({])(?:hak_)?([a-z_]+)=|\bfor (?:hak_)?(\w+) in", COMMAND.read_text(), re.MULTILINE
    )
    assert ("root", "") in names
    return {assigned or counted: "the user's" for assigned, counted in names}


def changes_of(given: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, str | None]:
    """How the environment that a program has SEEN differs from the one that was GIVEN; but for what shells set."""
    names = (given.keys() | seen.keys()) - {"_", "OLDPWD", "PWD", "SHLVL"}
    return {name: seen.get(name) for name in names if given.get(name) != seen.get(name)}


def run(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    user: str | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, as another user if one is named, and keeps what it printed. Its errors go to a file: many
    programs close theirs before hakmem's last words, and of a pipe hakmem keeps no copy."""
    with tempfile.TemporaryFile("a+") as errors:
        done = subprocess.run(
            [str(argument) for argument in arguments],
            env=environment() if env is None else dict(env),
            cwd=cwd,
            input=stdin,
            user=user,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=timeout,
            check=False,
        )
        errors.seek(0)
        done.stderr = errors.read()
    return done


def run_well(*arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """The output of a command that must succeed."""
    result = run(*arguments, env=env, cwd=cwd)
    assert result.returncode == 0, f"{arguments} ended with {result.returncode}:\n{result.stderr}"
    return result.stdout


def compile_c(target: Path, source: str, *flags: str, compiler: str = "gcc") -> Path:
    """Compiles a small program, in C++ if the compiler is."""
    language = "c++" if compiler.endswith("++") else "c"
    file = target.with_suffix(".cc" if language == "c++" else ".c")
    file.write_text(source)
    run_well(tool(compiler), "-O1", "-o", target, file, *flags)
    return target


@dataclass(frozen=True)
class Build:
    """A build directory of the release preset."""

    directory: Path

    @property
    def library(self) -> Path:
        return self.directory / "libhakmem.so"

    @property
    def launcher(self) -> Path:
        return self.directory / "hakmem-launch"

    def environment(self, **changes: str | None) -> dict[str, str]:
        """Makes ./hakmem run take this build as it is."""
        return environment(**{"HAKMEM_BUILD_DIR": str(self.directory), **changes})

    def run(
        self,
        *command: str | Path,
        options: tuple[str, ...] = (),
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: str = "",
        timeout: float = TIMEOUT_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command through ./hakmem run."""
        return run(
            COMMAND,
            "run",
            *options,
            "--",
            *command,
            env=self.environment(**(env or {})),
            cwd=cwd,
            stdin=stdin,
            timeout=timeout,
        )

    def serve(
        self,
        *command: str | Path,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: str = "",
    ) -> str:
        """The output of a command that must succeed on hakmem, with proof that hakmem served it: the
        launcher saw the library's word, and the process printed its statistics."""
        result = self.run(*command, options=("--stats",), env=env, cwd=cwd, stdin=stdin)
        assert result.returncode == 0, f"ended with {result.returncode}:\n{result.stderr}"
        assert has_statistics(result.stderr), result.stderr
        return result.stdout


def has_statistics(text: str) -> bool:
    return any(line.startswith("hakmem") and "statistics" in line for line in text.splitlines())


def only_line(text: str) -> str:
    """The one line that TEXT must be: a message of hakmem's."""
    lines = text.splitlines()
    assert len(lines) == 1, text
    assert lines[0].startswith("hakmem: ")
    return lines[0]


@cache
def ctest_names(directory: Path) -> frozenset[str]:
    """What CTest knows of in a build."""
    listed = json.loads(run_well("ctest", "--test-dir", directory, "--show-only=json-v1"))
    return frozenset(test["name"] for test in listed["tests"])


@cache
def system_tests(*files: Path) -> frozenset[str]:
    """The functions of the system tests, or of those files."""
    names: set[str] = set()
    for path in files or (ROOT / "tests/system").glob("test_*.py"):
        names.update(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
    return frozenset(names)


# Sets a value and gives the old one back when its standard input ends, however its parent ended.
KEEPER = """
import signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
path, value, before = sys.argv[1:]
with open(path, "w") as file:
    file.write(value)
try:
    print("set", flush=True)
    sys.stdin.read()
finally:
    with open(path, "w") as file:
        file.write(before)
"""


@contextmanager
def machine_setting(path: Path, value: str) -> Iterator[None]:
    """A setting of the whole machine, which is as before afterwards, however this process ends. Only for tests
    marked `alone`. A choice like that of huge pages shows all its values, the one that holds in brackets."""
    if not path.is_file():
        cannot_run(f"{path} is not there")
    before = path.read_text()
    chosen = re.search(r"\[(\S+)\]", before)
    keeper = subprocess.Popen(
        [sys.executable, "-c", KEEPER, str(path), value, before if chosen is None else chosen[1]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        process_group=0,
    )
    assert keeper.stdout is not None
    assert keeper.stdin is not None
    said = keeper.stdout.readline()
    try:
        if said != "set\n":
            cannot_run(f"{path} cannot be written here")
        yield
    finally:
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()
        assert path.read_text() == before
