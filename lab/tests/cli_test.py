from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hakmem_lab.measure.samples import COLUMNS

LAB = Path(__file__).resolve().parents[1]


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hakmem_lab", *arguments],
        env={**os.environ, "PYTHONPATH": str(LAB), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figures", "--only", "nosuch"], "hakmem: no cell is named like 'nosuch'; there are: "),
        (["figures", "--build", "/nowhere"], "hakmem: libhakmem.so is not there: run ./hakmem build first"),
        (["footprint", "--only", "nosuch"], "hakmem: no program is named like 'nosuch'; there are: "),
        (["instructions", "--build", "/nowhere"], "hakmem: libhakmem.so is not there"),
    ],
)
def test_an_error_is_one_line(arguments: list[str], message: str) -> None:
    done = lab(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_a_wrong_option_is_refused() -> None:
    done = lab("figures", "--budget", "much")
    assert done.returncode == 2
    assert "budget" in done.stderr


@pytest.fixture
def served(build: Path) -> Path:
    if not (build / "libhakmem.so").is_file():
        pytest.skip("libhakmem.so is not built: ./hakmem build")
    return build


def test_a_missing_peer_is_an_error(served: Path) -> None:
    done = lab("figures", "--build", str(served), "--peers", "glibc,nosuch")
    assert done.returncode == 2
    assert done.stderr.startswith("hakmem: there is no peer 'nosuch'; known: ")


def test_footprint_from_beginning_to_end(served: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    options = ["--rounds", "2", "--peers", "glibc", "--only", "random mix", "--seed", "5"]
    done = lab("footprint", "--build", str(served), *options, "--report", str(report))
    assert done.returncode in (0, 1), done.stderr
    text = report.read_text()
    for part in ("--rounds 2 --peers glibc --seed 5", "| random mix, 256 slots |", "report.csv"):
        assert part in text
    assert str(tmp_path) not in text
    with report.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2
    assert {row["arm"] for row in rows} == {"hakmem", "glibc"}
    assert all(
        int(row["peak_rss_kib"]) >= int(row["rss_kib"]) > int(row["anonymous_kib"]) > 100 for row in rows
    )


@pytest.mark.slow
def test_figures_from_beginning_to_end(served: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    results = tmp_path / "results.json"
    options = ["--budget", "0.1", "--confidence", "50", "--peers", "glibc", "--seed", "5"]
    only = ["--only", "64 of 64 B,control"]
    done = lab(
        "figures", "--build", str(served), *options, *only, "--report", str(report), "--json", str(results)
    )
    assert done.returncode in (0, 1), done.stderr
    text = report.read_text()
    for part in ("--seed 5", "Speed, losses first", "Controls", "itself, slowed", "report.csv"):
        assert part in text
    assert str(tmp_path) not in text
    with report.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert {row["arm"] for row in rows} == {"hakmem", "glibc", "hakmem-again", "hakmem-again slowed by 6 %"}
    assert all(float(row["seconds"]) > 0.05 for row in rows)
    content = json.loads(results.read_text())
    assert {one["cell"]["name"] for one in content["results"]} == {"LIFO burst, 64 of 64 B"}
