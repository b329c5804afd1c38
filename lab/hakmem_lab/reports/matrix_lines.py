"""The matrix in sentences: the results, the caveats, and how to read it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import quantiles

from hakmem_lab.allocators.peers import glibc_note
from hakmem_lab.allocators.pins import pinned_note
from hakmem_lab.measure.rounds import UNDECIDED
from hakmem_lab.measure.turns import TURN_SECONDS
from hakmem_lab.reports.report import ratio_text
from hakmem_lab.statistics.estimate import Verdict
from hakmem_lab.studies.comparing import NOT_MEASURED
from hakmem_lab.studies.judging import TOO_FEW_ROUNDS, Matrix, Outcome
from hakmem_lab.studies.suites import ALL, GroupMean
from hakmem_lab.studies.tails import BEHIND_CHANCE, JUDGED
from hakmem_lab.workloads.cells import Measure


def summary_lines(matrix: Matrix, means: Sequence[GroupMean]) -> list[str]:
    counts = {outcome: sum(1 for one in matrix.cells if one.outcome is outcome) for outcome in Outcome}
    against = len(matrix.plan.peers)
    lines = [
        f"Against the best of {against} peers in each of {len(matrix.cells)} workloads: "
        + ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items())
        + "."
    ]
    lines += [
        f"Geometric mean over {_share_text(one.workloads, len(matrix.cells))}: {ratio_text(one.estimate)} times as fast"
        f" as {one.peer}."
        for one in means
        if one.group == ALL
    ]
    return [*lines, *floor_lines(matrix)]


def _share_text(number: int, of: int) -> str:
    return "all workloads" if number == of else f"{number} of {of} workloads"


def floor_lines(matrix: Matrix) -> list[str]:
    """The minimum that the earlier design set itself, by intervals."""
    if "glibc" not in matrix.plan.peers:
        return []
    beside = [one for cell in matrix.cells if (one := matrix.result(cell.row.name, "glibc"))]
    valid = [(one, one.estimate) for one in beside if one.estimate and one.verdict is not Verdict.VOID]
    texts = [(f"{one.row.name} ({ratio_text(estimate)})", estimate) for one, estimate in valid]
    below = [text for text, estimate in texts if estimate.high < 0.5]
    unsure = [text for text, estimate in texts if estimate.low < 0.5 <= estimate.high]
    if not valid:
        line = "No workload has a verdict beside glibc."
    elif below or unsure:
        told = (("Below half of glibc", below), ("Not decided whether below half of glibc", unsure))
        line = " ".join(f"{what}: {'; '.join(names)}." for what, names in told if names)
    elif len(valid) == len(beside):
        line = "No workload is below half of glibc."
    else:
        line = f"Of the {len(valid)} of {len(beside)} workloads that have a verdict beside glibc none is below half of it."
    failed = [one.row.name for one in beside if matrix.failed(one.row.name)]
    return [f"{line} hakmem failed in {'; '.join(failed)}." if failed else line]


def warning_lines(matrix: Matrix) -> list[str]:
    """What was measured under conditions other than intended, or not at all; first of all where hakmem failed."""
    plan = matrix.plan
    processors = plan.source.processors
    told = {(row, what): None for (row, arm), what in matrix.failures.items() if arm in plan.own}
    failed = [f"{row}: {what}" for row, what in told if what != UNDECIDED]
    lines = [f"hakmem failed in {'; '.join(failed)}."] if failed else []
    undecided = [row for row, what in told if what == UNDECIDED and not matrix.failed(row)]
    if undecided:
        lines.append(
            f"Open, since different work was done and no majority says whose was right: {'; '.join(undecided)}."
        )
    lines += [f"Not measured: {name}: {why}." for name, why in plan.missing.items()]
    moved = [one.name for one in matrix.controls if one.row.control and not one.passed]
    if moved:
        lines.append(
            f"The run is void: a program that allocates nothing differed, or could not be run, under {', '.join(moved)}."
        )
    crowded = [row.name for row in plan.rows if row.threads > processors]
    if crowded:
        noun = "processor" if processors == 1 else "processors"
        lines.append(f"More threads than the {processors} {noun}: {'; '.join(crowded)}.")
    few = [one.row.name for one in matrix.cells if one.note == TOO_FEW_ROUNDS]
    if few:
        lines.append(f"Too few rounds for a choice of the best peer: {'; '.join(few)}.")
    none = [one.row.name for one in matrix.cells if one.note == NOT_MEASURED]
    if none:
        lines.append(f"No round was measured of {'; '.join(none)}.")
    busy = {one.row.name for one in matrix.results if one.estimate and one.disturbed >= one.estimate.pairs}
    if busy:
        lines.append(f"The machine was busy: all pairs were disturbed in {'; '.join(sorted(busy))}.")
    return lines + touch_lines(matrix.touches)


def touch_lines(touches: Sequence[float]) -> list[str]:
    """What a page fault cost: it differs tenfold from hour to hour, and with it who is ahead."""
    if len(touches) < 2:
        return []
    twentieths = quantiles(touches, n=20, method="inclusive")
    low, middle, high = twentieths[0], twentieths[9], twentieths[-1]
    return [
        f"Before a timed run the first touch of a page of 4 KiB took {middle:.2g} µs in the median, and in nine tenths of them"
        f" {low:.2g} to {high:.2g} µs."
    ]


def turns_lines(matrix: Matrix) -> list[str]:
    """Where the processes of a round took turns; nothing where none did."""
    if not matrix.in_turns:
        return []
    others = [row.name for row in matrix.plan.rows if row.name not in matrix.in_turns]
    shortest, longest = (1000 * seconds for seconds in TURN_SECONDS)
    text = (
        f"The processes of a round took turns of {shortest:g} to {longest:g} ms, each with a clock that stands still while it is"
        " stopped, so that whatever changes the machine's speed meets all of them alike."
    )
    return [text + (f" One after the other ran those of {'; '.join(others)}." if others else "")]


def reading_lines(matrix: Matrix) -> list[str]:
    plan, settings = matrix.plan, matrix.plan.settings
    percent = f"{100 * settings.confidence:g} %"
    shortest = min((one.shortest_run for one in matrix.results if one.estimate), default=0.0)
    by_cpu = [row.name for row in plan.rows if row.measure is Measure.CPU]
    lines = [
        "Measured in rounds: one fresh process of each that takes part, in random order, with one seed, environment size"
        " and set of processors for the round. A ratio above one says that hakmem is faster: it is the Hodges-Lehmann"
        " estimate over the rounds, with the interval that inverts the Wilcoxon signed rank test at"
        f" {percent}. The margin is {100 * settings.margin:g} % ({100 * settings.rss_margin:g} % for memory):"
        " *ahead* (+) and *behind* (-) are clear of it, *equal* (=) lies within it, *unclear* (?) is neither."
        " Of memory + is smaller and - is larger."
        " Of fewer rounds than that needs it is the geometric mean with Student's interval; of one there is none."
        " *Visible from* is the smallest ratio that an interval of this width would have called ahead.",
        "Where the best peer is the question, the first rounds of a workload select it. Every peer is in the first of"
        " all; where no more than two select, those that were far behind the fastest both there and alone are in no other,"
        " and their figures are of that one. The best of the peers is in the others, which compare it, with"
        f" Student's interval; the p-values are corrected for {len(matrix.cells)} workloads by Holm's method. *Won* and"
        " *lost* are clear of the margin, a *tie* lies within it, *open* is not decided. Besides it only peers that a goal"
        " names are in all rounds; they are judged by those that do not select, where these give an interval. Geometric means"
        " are of the rounds that select: of the first alone for a peer that was in the others only because it was near the"
        " fastest there.",
        f"Budget: {settings.budget_seconds / 60:.3g} min in all, shared before the first round; the shortest run took"
        f" {shortest:.2f} s (at least {settings.run_seconds_min:g} s are asked where the slowest allocator then takes no"
        " more than 5 s). A round is measured again when hakmem's run or a quarter of all were disturbed (major faults;"
        " where runs follow each other also steal time and foreign processes on the processor; the rule does not look at"
        " times). Everything is kept in the"
        " samples; comparisons use undisturbed pairs where there are enough of them.",
        *turns_lines(matrix),
        f"Controls: *itself* is the same library under another name; *itself, slowed* is that copy slowed by"
        f" {settings.slowdown_percent:g} %; the negative control allocates nothing. A workload with a false win is void,"
        " and without a seen slowdown nothing is called equal.",
        "Latency, memory over time and system calls come from separate runs with instruments, one for each allocator, of"
        " a tenth of the work (all of it where memory is the figure)."
        f" p99.9 is judged by {len(JUDGED)} more runs of hakmem and of the peer that had the shortest there, with nothing but the clock:"
        " *behind* are those where every one of hakmem's is longer than each of the peer's by more than the margin. Between equals"
        f" that happens once in {1 / BEHIND_CHANCE:g} times, so the goal is missed only if more are than chance explains.",
    ]
    notes = {peer: pinned_note(peer) for peer in plan.peers}
    notes["glibc"] = glibc_note(plan.source.libc.removeprefix("glibc "))
    lines += [f"{peer}: {notes[peer]}." for peer in plan.peers if notes[peer]]
    about_memory = [row.name for row in plan.rows if row.memory]
    if about_memory:
        lines.append(
            "About memory, so neither counted in outcomes nor in means, their speed only beside their figure:"
            f" {'; '.join(about_memory)}."
        )
    if by_cpu:
        lines.append(f"Compared by processor time, not by the clock: {'; '.join(by_cpu)}.")
    return lines
