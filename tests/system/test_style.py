"""Linters over what is not C: the shell scripts and the Python of tests, tools and laboratory."""

import json
import re
import sys

from toolbox import COMMAND, ROOT, run, tool


def test_shell_scripts() -> None:
    result = run(tool("shellcheck"), COMMAND, ROOT / ".ci/run")
    assert result.returncode == 0, result.stdout


def test_python_lint() -> None:
    result = run(sys.executable, "-m", "ruff", "check", "--no-cache", ROOT)
    assert result.returncode == 0, result.stdout


def test_python_format() -> None:
    result = run(sys.executable, "-m", "ruff", "format", "--no-cache", "--check", ROOT)
    assert result.returncode == 0, result.stdout


def test_the_command_knows_every_preset() -> None:
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    names = [preset["name"] for preset in presets if not preset.get("hidden")]
    listed = re.search(r'^hak_presets="(.*)"$', COMMAND.read_text(), re.MULTILINE)
    assert listed is not None
    assert listed[1].split() == names
