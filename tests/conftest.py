"""Fixtures of every test in Python. Nothing is built when HAKMEM_BUILD_DIR names a build."""

import os
from pathlib import Path

import pytest
from toolbox import COMMAND, ROOT, Build, run_well


@pytest.fixture(scope="session")
def build() -> Build:
    """The release build, brought up to date unless one is given."""
    given = os.environ.get("HAKMEM_BUILD_DIR")
    if given is not None:
        return Build(Path(given))
    run_well(COMMAND, "build")
    return Build(ROOT / "build")
