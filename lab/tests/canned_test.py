"""Canned comparisons are files that name arms and workloads that there are."""

from __future__ import annotations

import csv
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hakmem_lab.allocators import builds, forms
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.asking import calibrate_choose
from hakmem_lab.commands.canned import Told, canned, limit_lines, list_grid, overall_estimate
from hakmem_lab.commands.units import seconds_parse
from hakmem_lab.errors import LabError
from hakmem_lab.statistics.estimate import Estimate
from hakmem_lab.studies.ab import Control, Design
from hakmem_lab.workloads.canned.file import Canned, canned_find, canned_names, canned_read

NAMES = canned_names()
ROOT = Path(__file__).resolve().parents[2]
OPTIONS = (ROOT / "docs/options.md").read_text()


def test_what_the_issue_asks_for_is_there() -> None:
    assert NAMES == ["builds", "depth", "fixed", "large-decay", "larson-pgo", "profiles", "thread-caches"]
    assert len(list_grid([canned_find(name) for name in NAMES]).rows) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_workload_and_arm_is_there(name: str) -> None:
    canned = canned_find(name)
    assert seconds_parse(canned.budget) >= 60
    for bench in canned.benches:
        calibrate_choose(bench, None)
    presets = builds.presets(Checkout.find())
    for arm in canned.arms:
        of, _, settings = arm.partition(":")
        assert (
            of == "hakmem"
            or of.removeprefix(builds.MARK) in presets
            or of.removeprefix(forms.MARK) in forms.FORMS
        )
        for setting in filter(None, settings.split(",")):
            assert f"| `{setting.partition('=')[0]}` |" in OPTIONS
    assert canned.arms[0] == "hakmem"
    assert len(set(canned.arms)) == len(canned.arms)


@pytest.mark.parametrize("name", NAMES)
def test_no_arm_repeats_the_base_by_naming_a_default(name: str) -> None:
    defaults = dict(re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\| `([^`]*)` \|", OPTIONS, re.MULTILINE))
    assert defaults["thread_cache"] == "16MiB"
    for arm in canned_find(name).arms:
        option, _, value = arm.partition(":")[2].partition("=")
        default = defaults.get(option, "")
        assert not value or value not in (default, default.removesuffix("iB"))  # 16M is 16MiB


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dept", "there is no canned comparison 'dept', did you mean depth?"),
        ("xyzzy", "there is no canned comparison 'xyzzy'; there are: builds, depth, "),
        ("/nowhere/own.toml", "/nowhere/own.toml cannot be read"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(LabError) as caught:
        canned_find(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("about = 1", "own.toml: 'about' is not a text"),
        ("about = ''", "own.toml: 'arms' is missing"),
        (
            "arms = ['hakmem']\nbenches = ['larson']\nabout = ''\nbudget = '1m'",
            "own.toml: a comparison has two arms",
        ),
        ("arms = [", "own.toml is no canned comparison"),
        ("about = ''\narms = 'abc'", "own.toml: 'arms' is not a list"),
        (
            "arms = ['a', 'b']\nbenches = ['c']\nbudget = 60\nabout = ''",
            "own.toml: 'budget' is not a text",
        ),
        (
            "arms = ['a', 'b']\nbenches = ['c']\nbudget = '1m'\nabout = ''\nwrong = 1",
            "own.toml: there is no 'wrong'",
        ),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(LabError) as caught:
        canned_read(path)
    assert str(caught.value).startswith(f"{path.parent}/{message}")


@pytest.mark.parametrize(
    ("benches", "limit", "message"),
    [("'redis'", "abc", "'abc'"), ("'redis', 'rediss'", "5%", "rediss")],
    ids=["limit", "workload"],
)
def test_wrong_input_is_said_before_anything_is_measured(
    tmp_path: Path, benches: str, limit: str, message: str
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        f"about = ''\narms = ['hakmem', 'glibc']\nbudget = '1m'\nbenches = [{benches}]\nlimit = '{limit}'"
    )
    with pytest.raises(LabError, match=message):
        canned(str(path))


def told_of(*ratios: tuple[float, float, float], same: Control = Control.PASSED) -> Told:
    """A workload with an arm for each ratio, of thirty pairs that lie evenly within its interval."""
    names = [f"arm{number}" for number in range(len(ratios))]
    answers = [
        SimpleNamespace(name=name, estimate=Estimate(*ratio, 30))
        for name, ratio in zip(names, ratios, strict=True)
    ]
    pairs = {
        name: [
            SimpleNamespace(log_ratio=float(log), disturbed=False)
            for log in np.linspace(math.log(low), math.log(high), 30)
        ]
        for name, (_, low, high) in zip(names, ratios, strict=True)
    }
    outcome = SimpleNamespace(answers=answers, design=Design(), same_state=same, slowed_state=Control.PASSED)
    return Told("bench", SimpleNamespace(outcome=outcome, pairs_of=pairs.get), [], Path())  # type: ignore[arg-type]  # what limits look at


def limits_of(chosen: Canned, *told: Told) -> list[str]:
    return limit_lines(told, chosen, {arm: overall_estimate(told, arm) for arm in chosen.arms[1:]})


def test_whether_the_base_keeps_its_limit_is_said() -> None:
    chosen = Canned("own", "Mine", ("hakmem", "arm0", "arm1"), ("bench", "bench"), "60s", limit="5%")
    lines = limits_of(
        chosen, told_of((1.2, 1.1, 1.3), (0.8, 0.7, 0.9)), told_of((0.5, 0.4, 0.6), (0.9, 0.8, 1.04))
    )
    assert (
        lines[0]
        == "Clearly more than 5% slower than one of the 2 others: bench, arm0: 1.200 (1.100 to 1.300)."
    )
    assert lines[1] == "Clearly not more than 5% slower than any of them: in 1 of 2 workloads."
    several = [told_of((0.9, 0.7, 1.2), (0.9, 0.85, 0.95)), told_of((1.1, 0.9, 1.3), (0.8, 0.75, 0.85))] * 3
    over_all = limits_of(chosen, *several)[2]
    assert over_all.startswith("Not clearly slower than hakmem over all workloads: arm0 0.9")
    assert "arm1" not in over_all
    same = limits_of(chosen, told_of((1.0, 0.99, 1.01), (0.5, 0.4, 0.6)))
    assert same[0].endswith(": in no workload.")
    assert same[1].endswith("in 1 of 1 workloads.")
    void = limits_of(chosen, told_of((1.2, 1.1, 1.3), (0.5, 0.4, 0.6), same=Control.FAILED))
    assert void[0].endswith(": in no workload.")
    assert void[1].endswith("in 0 of 1 workloads.")
    assert void[2].endswith(": none of them.")


# ---- live ---------------------------------------------------------------------------------------------------


def test_one_page_holds_all_workloads_with_their_samples(build: Path, tmp_path: Path) -> None:
    own, page = tmp_path / "own.toml", tmp_path / "page.md"
    benches = ["LIFO burst, 64 of 64 B", "LIFO burst, 4000 of 64 B"]
    own.write_text(
        f"about = 'Mine'\narms = ['hakmem', 'glibc']\nbenches = {benches}\nbudget = '1s'\nlimit = '5%'\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "hakmem_lab", "canned", own, "--build", build, "--report", page],
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    text = page.read_text()
    assert text.startswith("# Mine\n")
    assert "\nClearly more than 5% slower than one of the 1 others: " in text
    assert "\n| all, geometric mean | " in text
    assert all(f"## {bench}: Against hakmem" in text for bench in benches)
    with page.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["cell"] for row in rows} == set(benches)
    assert {row["arm"] for row in rows} >= {"hakmem", "glibc"}
