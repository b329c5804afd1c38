from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.errors import LabError, ProcessFailedError
from hakmem_lab.measure.backing import Backing
from hakmem_lab.measure.provenance import Provenance
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.service import Service
from hakmem_lab.measure.turns import Seat
from hakmem_lab.reports.compare import (
    change_text,
    medians_grid,
    note_lines,
    plan_line,
    result_content,
    sentence,
    short_line,
    verdict_grid,
)
from hakmem_lab.statistics.estimate import Estimate, Verdict
from hakmem_lab.studies.compare import Arms, Comparing, Course, Plan, Sample, observe_first
from hakmem_lab.studies.compare_samples import COLUMNS, sample_row
from hakmem_lab.studies.compare_verdicts import IDLE, PEAK, TIME, Answer, Outcome, outcome_make
from hakmem_lab.workloads.cells import Measure
from lab_pairs import RUN

OWN = Arm(Peer("glibc", "2.36", None, "id"))
SERVED = Service("", "fake", "libc.so.6")
SOURCE = Provenance(*("",) * 8, 2, "", "", ())
ALPHA, MARGIN = 0.01, 0.03


def peer(name: str) -> Arm:
    return Arm(Peer(name, "1", Path(f"/lib/{name}.so"), "id"))


@dataclass
class FakeTask:
    """Takes as long as it is told, under each allocator."""

    seconds: dict[str, float]
    noise: float = 0.004
    kib: dict[str, int] = field(default_factory=dict)
    fails: Callable[[str, int], str] = lambda _name, _run: ""
    checksum: Callable[[str], str] = lambda _name: "aa"
    complaints: dict[str, str] = field(default_factory=dict)
    name: str = "fake"
    threads: int = 1
    measure: Measure = Measure.TIME
    switches_are_noise: bool = False
    takes_turns: bool = False
    backing: Backing = field(default_factory=Backing)
    runs: list[tuple[str, Conditions]] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(3))

    def run(self, arm: Arm, conditions: Conditions, _seat: Seat | None = None) -> Measured:
        name = arm.peer.name
        if outcome := self.fails(name, len(self.runs)):
            raise ProcessFailedError(f"fake under {name} failed", outcome)
        self.runs.append((arm.name, conditions))
        known = name.removesuffix(" again")
        noise = math.exp(self.rng.gauss(0, self.noise))
        seconds = self.seconds[known] * (1 + arm.slowdown_percent / 100) * noise
        return replace(
            RUN,
            seconds=seconds,
            cpu_seconds=seconds,
            wall_seconds=seconds,
            peak_rss_kib=self.kib.get(known, 1000),
            checksum=self.checksum(name),
        )

    def limited(self, _seconds: float) -> FakeTask:
        return self

    def observe(self, arm: Arm, conditions: Conditions) -> tuple[Measured, Service]:
        complaint = self.complaints.get(arm.peer.name, "")
        return self.run(arm, conditions), replace(SERVED, complaint=complaint)


class Busy(FakeTask):
    """Every run is disturbed."""

    def run(self, arm: Arm, conditions: Conditions, _seat: Seat | None = None) -> Measured:
        return replace(super().run(arm, conditions), major_faults=1)


@dataclass
class Done:
    outcome: Outcome
    course: Course
    plan: Plan
    samples: list[Sample]

    def row(self, name: str) -> str:
        return next(" | ".join(row) for row in verdict_grid(self.outcome).rows if row[0] == name)

    def verdict(self, name: str, figure: str = TIME.name) -> Verdict:
        return next(row.judged[figure].verdict for row in self.outcome.rows if row.name == name)


def study(task: FakeTask, budget: float = 60.0, is_late: Callable[[int], bool] = lambda _runs: False) -> Done:
    samples: list[Sample] = []
    rng = random.Random(1)
    arms = Arms.of(OWN, [peer(name) for name in task.seconds if name != OWN.name], 200 * MARGIN)
    first = observe_first(task, OWN, rng)
    comparing = Comparing(task, first, arms, ALPHA, rng, samples.append)
    course = Course()
    comparing.observe(course)
    plan = comparing.plan(course, budget)
    comparing.screen(course, plan)

    def judge() -> Outcome:
        return outcome_make(course, arms, task, MARGIN, ALPHA)

    def decided() -> bool:
        return judge().is_decided and not judge().blind

    comparing.judge_rounds(course, plan, decided, lambda: is_late(len(task.runs)))
    return Done(judge(), course, plan, samples)


def test_what_takes_far_longer_than_before_hangs() -> None:
    for seconds, limit in ((0.1, 10.0), (5.0, 100.0)):
        task = FakeTask({"glibc": seconds}, noise=0)
        assert observe_first(task, OWN, random.Random(1)).hangs_seconds == pytest.approx(limit)


# ---- verdicts ----------------------------------------------------------------------------------------------


def test_faster_slower_and_equal_are_told_apart() -> None:
    done = study(FakeTask({"glibc": 0.5, "fast": 0.4, "slow": 0.6, "same": 0.5}), budget=90)
    assert done.verdict("fast") is Verdict.AHEAD
    assert done.verdict("slow") is Verdict.BEHIND
    assert done.verdict("same") is Verdict.EQUAL
    assert [row.name for row in done.outcome.rows] == ["fast", "same", "slow"]
    said = sentence(done.outcome, done.plan)
    assert said.startswith("Use fast: it takes 20 % less time (at least ")
    assert "than glibc, and as much memory at its peak; 99 % sure" in said


def test_a_round_runs_everything_once_under_the_same_conditions() -> None:
    done = study(FakeTask({"glibc": 0.5, "one": 0.5, "two": 0.5}))
    judged = [sample for sample in done.samples if sample.phase == "judged"]
    orders = set()
    for number in range(done.outcome.rounds):
        mine = [sample for sample in judged if sample.round == number]
        assert {sample.arm.name for sample in mine} == {
            *("glibc", "glibc again", "glibc slowed by 6 %", "one", "two")
        }
        assert len({sample.conditions for sample in mine}) == 1
        orders.add(tuple(sample.arm.name for sample in mine))
    assert len(orders) > 3


def test_a_machine_that_is_too_noisy_says_nothing() -> None:
    done = study(FakeTask({"glibc": 0.5, "other": 0.5}, noise=0.3))
    assert done.outcome.blind
    assert done.verdict("other") is Verdict.UNCLEAR
    assert done.verdict("other", PEAK.name) is Verdict.EQUAL
    assert "the budget was too small to be sure" in sentence(done.outcome, done.plan)
    assert "was missed: no time is called equivalent" in note_lines(done.outcome)[0]


@pytest.mark.parametrize(("share", "said"), [(0.8, "-20 "), (0.98, "-2.")])
def test_a_control_that_differs_makes_the_run_void_within_the_margin_too(share: float, said: str) -> None:
    class Crooked(FakeTask):
        def run(self, arm: Arm, conditions: Conditions, _seat: Seat | None = None) -> Measured:
            run = super().run(arm, conditions)
            return replace(run, seconds=run.seconds * (share if arm.name == "glibc again" else 1))

    done = study(Crooked({"glibc": 0.5, "fast": 0.3}))
    assert done.outcome.is_void
    assert done.verdict("fast") is Verdict.VOID
    assert sentence(done.outcome, done.plan).startswith(f"No answer: glibc beside itself differed ({said}")


def test_the_same_speed_in_less_memory_is_said() -> None:
    done = study(FakeTask({"glibc": 0.5, "small": 0.5, "big": 0.5}, kib={"small": 700, "big": 1500}))
    assert done.verdict("small", PEAK.name) is Verdict.AHEAD
    assert done.verdict("big", PEAK.name) is Verdict.BEHIND
    said = sentence(done.outcome, done.plan)
    assert said.startswith("Nothing is clearly faster than glibc, but small takes as long within 3 %")
    assert "30 % less memory (at least 30 %) at its peak" in said


class Jittery(FakeTask):
    """One of the allocators takes now more, now less."""

    def run(self, arm: Arm, conditions: Conditions, _seat: Seat | None = None) -> Measured:
        run = super().run(arm, conditions)
        factor = math.exp(self.rng.gauss(0, 0.1)) if arm.name == "jittery" else 1.0
        return replace(run, seconds=run.seconds * factor)


def test_what_is_said_to_be_sure_is_an_answer_also_where_another_is_not_decided() -> None:
    done = study(Jittery({"glibc": 0.5, "small": 0.5, "jittery": 0.5}, kib={"small": 700}))
    assert done.verdict("small") is Verdict.EQUAL
    assert done.verdict("jittery") is Verdict.UNCLEAR
    assert done.outcome.decision.answer is Answer.SMALLER
    assert done.outcome.decision.is_conclusive
    said = sentence(done.outcome, done.plan)
    assert said.startswith("Nothing is clearly faster than glibc, but small takes as long within 3 %")


def test_an_allocator_without_the_figure_that_decides_leaves_it_open() -> None:
    """A run too short to have taken any processor time."""

    class Idle(FakeTask):
        def run(self, arm: Arm, conditions: Conditions, _seat: Seat | None = None) -> Measured:
            run = super().run(arm, conditions)
            return replace(run, cpu_seconds=0.0) if arm.name == "idle" else run

    done = study(Idle({"glibc": 0.5, "idle": 0.5}, measure=Measure.CPU))
    assert done.outcome.decision.answer is Answer.OPEN
    assert sentence(done.outcome, done.plan).startswith(
        "Nothing is clearly better than glibc, but the budget"
    )


@pytest.mark.parametrize(
    ("seconds", "repeat", "said"), [(0.001, 1, 401), (0.001, 100, 401), (0.001, 300, 0), (0.3, 1, 0)]
)
def test_a_short_run_is_told_what_would_do(seconds: float, repeat: int, said: int) -> None:
    line = short_line(seconds, repeat)
    assert bool(line) == bool(said)
    if said:
        assert line.startswith(f"One run takes {1000 * seconds * repeat:.0f} ms: ")
        assert f"--repeat {said} for" in line


def test_nothing_better_is_an_answer() -> None:
    done = study(FakeTask({"glibc": 0.5, "same": 0.5, "slow": 0.7}))
    assert done.outcome.is_decided
    assert sentence(done.outcome, done.plan).startswith(
        "Nothing is clearly better than glibc for this program: stay with it; 99 % sure"
    )


def test_a_figure_that_the_program_does_not_have_is_left_out() -> None:
    done = study(FakeTask({"glibc": 0.5, "fast": 0.4}))
    assert IDLE.name not in verdict_grid(done.outcome).columns
    assert PEAK.name in verdict_grid(done.outcome).columns


def test_results_and_samples_can_be_written() -> None:
    task = FakeTask({"glibc": 0.5, "fast": 0.4})
    done = study(task)
    assert all(len(sample_row(task, sample)) == len(COLUMNS) for sample in done.samples)
    assert change_text(Estimate(1.25, 1.0, 2.0, 9)) == "-20 (-50 to +0.0) %"
    text = json.dumps(result_content(SOURCE, done.course, done.plan, done.outcome, "x"), allow_nan=False)
    assert '"verdict": "better"' in text


# ---- the budget --------------------------------------------------------------------------------------------


def test_a_short_budget_screens_and_judges_the_fastest() -> None:
    names = {f"peer-{number}": 1.0 + number / 10 for number in range(8)}
    done = study(FakeTask({"glibc": 1.2, **names}), budget=150)
    assert done.plan.screening >= 1
    assert 1 <= done.plan.finalists < 8
    assert done.verdict("peer-0") is Verdict.AHEAD
    assert "screened out" in done.row("peer-7")
    judged = {sample.arm.name for sample in done.samples if sample.phase == "judged"}
    assert "peer-7" not in judged
    medians = {row[0]: row for row in medians_grid(done.course, done.outcome).rows}
    assert medians["peer-0"][1] != "" == medians["peer-7"][1]


def test_a_budget_that_decides_nothing_says_which_would() -> None:
    done = study(FakeTask({"glibc": 1.0, "fast": 0.5}), budget=6)
    assert not done.plan.enough
    assert done.verdict("fast") is Verdict.UNCLEAR
    said = sentence(done.outcome, done.plan)
    assert said.endswith("the budget was too small to be sure: --budget 30s might do.")


def test_a_budget_that_observing_exceeds_leaves_one_round() -> None:
    done = study(FakeTask({"glibc": 1.0, "fast": 0.5, "slow": 2.0}), budget=-90)
    assert (done.plan.screening, done.plan.finalists, done.plan.rounds) == (0, 1, 1)
    assert "rounds to choose" not in plan_line(done.plan, done.course, done.outcome)


def test_a_decided_run_ends_early() -> None:
    done = study(FakeTask({"glibc": 0.1, "fast": 0.05}), budget=120)
    assert done.outcome.rounds < done.plan.rounds
    assert done.verdict("fast") is Verdict.AHEAD


def test_a_budget_that_ends_before_the_rounds_do_is_kept() -> None:
    task = FakeTask({"glibc": 1.0, "fast": 0.7})
    done = study(task, budget=120, is_late=lambda runs: runs > 46)
    assert done.course.late
    assert done.outcome.rounds == 12 < done.plan.rounds
    assert sum(look.share for look in done.course.looks) == pytest.approx(1)
    assert done.verdict("fast") is Verdict.AHEAD


def test_disturbed_rounds_are_measured_again_within_a_limit() -> None:
    done = study(Busy({"glibc": 1.0, "same": 1.0}, noise=0.2), budget=100)
    rounds = {sample.round for sample in done.samples if sample.phase == "judged"}
    assert len(rounds) == done.plan.rounds + done.plan.rounds // 2
    assert done.outcome.rounds == done.plan.rounds


def test_disturbed_rounds_count_where_the_others_are_too_few() -> None:
    task = Busy({"glibc": 1.0, "fast": 0.7})
    done = study(task, budget=40, is_late=lambda runs: runs >= 2 + 4 * 12)
    assert (done.plan.rounds, done.outcome.rounds) == (10, 12)
    assert done.verdict("fast") is Verdict.AHEAD
    said = "7 of 10 planned rounds and 5 disturbed ones, without which they would be too few (the budget"
    assert said in plan_line(done.plan, done.course, done.outcome)


def test_rounds_of_a_plan_that_was_too_small_count_with_the_disturbed_ones() -> None:
    done = study(Busy({"glibc": 1.0, "fast": 0.7}), budget=25)
    assert (done.plan.rounds, done.outcome.rounds) == (6, 9)
    assert done.verdict("fast") is Verdict.AHEAD


def test_the_budget_ends_disturbed_rounds_too() -> None:
    done = study(Busy({"glibc": 1.0, "fast": 0.7}), budget=120, is_late=lambda _: True)
    assert {sample.round for sample in done.samples if sample.phase == "judged"} == {0}
    assert done.course.late


# ---- what goes wrong ---------------------------------------------------------------------------------------


def test_a_peer_that_crashes_has_its_row_and_the_others_go_on() -> None:
    def fails(name: str, run: int) -> str:
        return "crashed: signal 11" if name == "bad" and run > 20 else ""

    done = study(FakeTask({"glibc": 0.5, "fast": 0.4, "bad": 0.4}, fails=fails))
    assert done.row("bad").startswith("bad | crashed: signal 11")
    assert done.verdict("fast") is Verdict.AHEAD
    assert done.outcome.rows[-1].name == "bad"


def test_when_all_have_crashed_there_is_no_answer() -> None:
    def fails(name: str, run: int) -> str:
        return "crashed: signal 11" if name == "bad" and run > 20 else ""

    done = study(FakeTask({"glibc": 0.5, "bad": 0.4}, fails=fails))
    assert sentence(done.outcome, done.plan).startswith("No answer: no other allocator than glibc ran")


def test_when_the_last_one_crashes_in_a_disturbed_first_round_there_is_no_answer() -> None:
    """No round is left whose figures could be shown."""

    def fails(name: str, run: int) -> str:
        return "crashed: signal 11" if name == "bad" and run > 2 else ""

    done = study(Busy({"glibc": 0.5, "bad": 0.4}, fails=fails))
    assert done.outcome.rounds == 0
    assert sentence(done.outcome, done.plan).startswith("No answer: no other allocator than glibc ran")
    assert plan_line(done.plan, done.course, done.outcome)
    assert verdict_grid(done.outcome).rows and medians_grid(done.course, done.outcome).rows
    result_content(SOURCE, done.course, done.plan, done.outcome, "No answer")


def test_a_peer_that_did_not_serve_is_not_measured() -> None:
    done = study(FakeTask({"glibc": 0.5, "fast": 0.4, "idle": 0.1}, complaints={"idle": "sh: not mapped"}))
    assert done.row("idle").startswith("idle | did not serve: sh: not mapped")
    assert not any(sample.arm.name == "idle" and sample.phase == "judged" for sample in done.samples)


def test_a_peer_that_does_other_work_is_not_compared() -> None:
    def checksum(name: str) -> str:
        late = name == "later" and len(task.runs) > 20
        return "bb" if name == "odd" or late else "aa"

    task = FakeTask({"glibc": 0.5, "odd": 0.1, "later": 0.4, "fast": 0.4}, checksum=checksum)
    done = study(task)
    assert done.row("odd").startswith("odd | its output is another")
    assert done.row("later").startswith("later | its output is another")
    assert sum(sample.arm.name == "odd" for sample in done.samples) == 1


def test_a_program_that_fails_by_itself_is_an_error() -> None:
    with pytest.raises(ProcessFailedError, match="fake under glibc failed"):
        study(
            FakeTask({"glibc": 0.5, "fast": 0.4}, fails=lambda name, _: "failed" if name == "glibc" else "")
        )


@pytest.mark.parametrize("control", ["glibc", "glibc again"])
def test_a_program_that_fails_now_and_then_is_said_to_fail_by_itself(control: str) -> None:
    def fails(name: str, run: int) -> str:
        return "failed: status 1" if name == control and run > 20 else ""

    said = f"^fake under {control} failed; it fails by itself, which tells nothing of allocators$"
    with pytest.raises(LabError, match=said):
        study(FakeTask({"glibc": 0.5, "fast": 0.4}, fails=fails))


def test_nothing_to_compare_is_one_line() -> None:
    with pytest.raises(LabError, match="there is nothing to compare: bad crashed: signal 6"):
        study(
            FakeTask(
                {"glibc": 0.5, "bad": 1}, fails=lambda name, _: "crashed: signal 6" if name == "bad" else ""
            )
        )
