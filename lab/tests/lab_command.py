"""The laboratory's command line, run as users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LAB = Path(__file__).resolve().parents[1]


def lab(*arguments: str, seconds: float = 300, **environment: str) -> subprocess.CompletedProcess[str]:
    """What became of `hakmem ARGUMENTS`, which has SECONDS."""
    return subprocess.run(
        [sys.executable, "-m", "hakmem_lab", *arguments],
        env={**os.environ, "PYTHONPATH": str(LAB), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def lab_by_shell(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What became of SCRIPT, in which `hakmem ARGUMENTS` is "$@": its files are as a shell has them."""
    line = ["bash", "-c", f"set -o pipefail; {script}", "bash", sys.executable, "-B", "-X", "utf8", "-m"]
    return subprocess.run(
        [*line, "hakmem_lab", *arguments],
        env={**os.environ, "PYTHONPATH": str(LAB)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
