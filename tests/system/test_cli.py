"""The command line of ./hakmem: what it explains, and what it says of mistakes."""

import re

import pytest
from toolbox import COMMAND, Build, only_line, run, run_well, tool

COMMANDS = re.search(r'^hak_commands="(.*)"$', COMMAND.read_text(), re.MULTILINE)[1].split()  # type: ignore[index]


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
        ["run", "--profile="],
        ["run", "--profile", "", "--", "true"],
        ["run", "--profile", "--", "true"],
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
