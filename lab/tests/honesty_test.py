from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.cli import app
from hakmem_lab.errors import LabError
from hakmem_lab.measure.runner import Arm, Conditions
from hakmem_lab.reports.honesty import simulated_checks
from hakmem_lab.studies.ab import Design
from hakmem_lab.studies.honesty import AGAIN, BASE, NAIVE, OTHER, Simulated, naive_ask, simulate, truths
from hakmem_lab.studies.honesty_live import (
    COLUMNS,
    SAME_TRUTH,
    SLOWED_TRUTH,
    Lived,
    live_earlier,
    live_rates,
    live_read,
    truths_left,
)
from hakmem_lab.studies.noise import (
    BLOCK_RUNS,
    Noise,
    Playback,
    Run,
    Trace,
    company,
    conditions,
    noise_read,
    noise_write,
)

DESIGN = Design(budget_seconds=15.0)
CONDITIONS = Conditions(1, 0, (0,))


def trace_make(spread: float, drift: float = 0.0, count: int = 200) -> Trace:
    rng = random.Random(1)
    runs = []
    for index in range(count):
        seconds = 0.24 * (1 + drift * index / count) * (1 + rng.uniform(-spread, spread))
        runs.append(Run(seconds, seconds + 0.005, 0, index % 3, 0))
    return Trace("made", 0.0, tuple(runs))


def test_a_playback_repeats_whole_blocks_of_the_trace() -> None:
    trace = trace_make(0.0, drift=1.0)
    playback = Playback(trace, {}, random.Random(3))
    places = [trace.runs.index(playback.take()) for _ in range(10 * BLOCK_RUNS)]
    for start in range(0, len(places), BLOCK_RUNS):
        block = places[start : start + BLOCK_RUNS]
        assert block[0] % 2 == 0
        assert block == [(block[0] + step) % len(trace.runs) for step in range(BLOCK_RUNS)]
    assert len(set(places[::BLOCK_RUNS])) > 5


def test_an_arm_changes_nothing_but_the_time() -> None:
    trace = trace_make(0.0)
    factors = {OTHER.name: 1.5}
    base, other, slowed = (
        Playback(trace, factors, random.Random(3)).run(arm, CONDITIONS)
        for arm in (BASE, OTHER, Arm(AGAIN.peer, 6.0))
    )
    assert other.seconds == pytest.approx(1.5 * base.seconds)
    assert slowed.seconds == pytest.approx(1.06 * base.seconds)
    assert other.involuntary_switches == base.involuntary_switches
    assert other.wall_seconds - other.seconds == pytest.approx(0.005)


def simulated(trace: Trace, trials: int = 25) -> dict[str, Simulated]:
    rng = random.Random(5)
    return {
        truth.right: simulate(trace, truth, DESIGN, trials, rng, lambda: None)
        for truth in truths(DESIGN.margin)
    }


def test_the_truth_is_found_where_noise_is_small() -> None:
    for right, one in simulated(trace_make(0.01)).items():
        assert one.words[right] >= 24, one
        assert one.wrong == 0


def test_drift_fools_the_naive_design_and_not_this_one() -> None:
    trace = trace_make(0.01, drift=0.5)
    one = simulated(trace)["equivalent"]
    assert one.wrong == 0
    assert one.naive[NAIVE[0]] > 5
    assert one.naive[NAIVE[1]] > 5


def test_the_naive_design_sees_what_is_plain() -> None:
    plain = truths(0.2)[2]
    assert naive_ask(trace_make(0.001), plain, DESIGN, random.Random(1)) == set(NAIVE)
    assert naive_ask(trace_make(0.001), truths(0.2)[0], DESIGN, random.Random(1)) <= {NAIVE[1]}


def result(truth_index: int, **words: int) -> Simulated:
    truth = truths(0.03)[truth_index]
    return Simulated("made", 15.0, truth, 1000, Counter(words), 0, Counter(), 10)


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (result(0, better=4, worse=6, equivalent=990), "met"),
        (result(0, better=5, equivalent=995), "missed"),
        (result(0, better=4, worse=7, equivalent=989), "missed"),
        (result(1, worse=10), "met"),
        (result(1, worse=6, better=5), "missed"),
        (result(2, equivalent=6, better=5, worse=989), "missed"),
        (result(2, worse=1000), "met"),
    ],
)
def test_the_limits_of_false_verdicts(one: Simulated, state: str) -> None:
    states = {check.state for check in simulated_checks([one])}
    assert ("missed" if "missed" in states else "met") == state


def test_the_recorded_noise_is_there_and_says_where_it_is_from() -> None:
    noise = noise_read()
    assert [trace.condition for trace in noise.traces] == [one.name for one in conditions()]
    assert all(len(trace.runs) >= 2 * BLOCK_RUNS for trace in noise.traces)
    assert {"date", "command", "commit", "kernel", "processor"} <= set(noise.provenance)


def test_noise_is_read_as_it_was_written(tmp_path: Path) -> None:
    noise = Noise({"date": "some"}, (trace_make(0.01), trace_make(0.02)))
    noise_write(noise, tmp_path / "noise.json")
    assert noise_read(tmp_path / "noise.json") == noise
    with pytest.raises(LabError, match=r"none.json is not there"):
        noise_read(tmp_path / "none.json")


@pytest.mark.parametrize("record", ["1", "3"])
def test_noise_that_is_not_of_pairs_is_not_recorded(record: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the recorded noise would be replaced by some that cannot be played back."""

    def find(_: Path | None = None) -> Checkout:
        raise AssertionError("it began")

    monkeypatch.setattr(Checkout, "find", find)
    with pytest.raises(LabError, match="--record is an even number, 2 or more"):
        app(["honesty", "--record", record], standalone_mode=False)


def test_company_ends_with_the_recording() -> None:
    started = time.monotonic()
    with company(["import time; time.sleep(20)"]) as processes:
        assert all(process.poll() is None for process in processes)
    assert all(process.poll() is not None for process in processes)
    assert time.monotonic() - started < 15


def lived(truth: str, verdict: str, reason: str = "", setting: str = "s") -> Lived:
    return Lived(truth, verdict, 1.0, 0.98, 1.02, 12, 15.0, reason, setting)


def live_write(folder: Path, rows: list[Lived]) -> None:
    folder.mkdir(parents=True)
    lines = [",".join(str(getattr(row, column)) for column in COLUMNS) for row in rows]
    (folder / "live.csv").write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")


def test_an_interrupted_session_is_taken_up(tmp_path: Path) -> None:
    live_write(tmp_path / "1", [lived(SAME_TRUTH, "better")])
    rows = [lived(SAME_TRUTH, "equivalent"), lived(SLOWED_TRUTH, "worse"), lived(SLOWED_TRUTH, "worse")]
    live_write(tmp_path / "2", rows)
    assert live_read(tmp_path / "2" / "live.csv") == rows
    earlier = live_earlier(tmp_path, "s")
    assert earlier == rows
    left = truths_left(earlier, 5, random.Random(1))
    assert Counter(left) == {SAME_TRUTH: 4, SLOWED_TRUTH: 3}


def test_a_session_that_asked_something_else_is_not(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no earlier session"):
        live_earlier(tmp_path, "s")
    live_write(tmp_path / "1", [lived(SAME_TRUTH, "better")])
    with pytest.raises(LabError, match="had another library"):
        live_earlier(tmp_path, "another")
    (tmp_path / "1" / "live.csv").write_text("what\nelse\n")
    with pytest.raises(LabError, match=r"1/live.csv is damaged"):
        live_earlier(tmp_path, "s")


def test_a_last_row_that_a_full_disk_cut_off_is_left_out(tmp_path: Path) -> None:
    rows = [lived(SAME_TRUTH, "equivalent"), lived(SLOWED_TRUTH, "worse")]
    live_write(tmp_path / "1", rows)
    path = tmp_path / "1" / "live.csv"
    whole = path.read_text()
    for cut in ("slowed,wor", "slowed,worse,0.9,0.8,1.0,1"):
        path.write_text(whole + cut)
        assert live_earlier(tmp_path, "s") == rows
    path.write_text(",".join(COLUMNS)[:20])
    assert live_earlier(tmp_path, "s") == []


def test_live_rates_count_each_truth_by_itself() -> None:
    void = "the run is void: something"
    rows = [lived(SAME_TRUTH, "better"), lived(SAME_TRUTH, "inconclusive", void)]
    rows += [lived(SLOWED_TRUTH, "worse")] * 3 + [lived(SLOWED_TRUTH, "equivalent")]
    rates = {(one.truth, one.what): (one.rate.hits, one.rate.trials) for one in live_rates(rows)}
    assert rates[SAME_TRUTH, "false win or loss"] == (1, 2)
    assert rates[SAME_TRUTH, "of these void"] == (1, 2)
    assert rates[SLOWED_TRUTH, "seen: worse"] == (3, 4)
    assert rates[SLOWED_TRUTH, "wrong: better or equivalent"] == (1, 4)
