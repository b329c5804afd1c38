"""Shared lines for a reader: the answer, what grows with the machine, the hottest lines, and what the simulation
cannot know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from hakmem_lab.grid import Grid
from hakmem_lab.studies.sharing import (
    NODES,
    OWN_ENTRIES,
    WORKLOADS,
    Figure,
    Growth,
    Machine,
    Simulation,
    Truth,
    figure_of,
    growth_of,
    rows_of,
    things,
)

TITLE = "Shared lines: what hakmem moves between processors"
QUIET = 0.01
"""Fewer moves than this for an operation count as next to none."""
GROWS = 1.25
WAITS = 0.01
"""For an operation: more than this counts as more than occasional."""
HOTTEST = 6

Runs = Mapping[str, Mapping[int, Sequence[Simulation]]]
"""By workload and cores, under several schedules."""


@dataclass(frozen=True)
class Sharing:
    truths: Sequence[Truth]
    runs: Runs
    machine: Machine

    @property
    def growths(self) -> list[Growth]:
        """Most moves first."""
        found = [growth_of(workload, by_cores) for workload, by_cores in self.runs.items()]
        return sorted(found, key=lambda one: -one.moves[max(one.moves)].mean)


def number_text(value: float) -> str:
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def figure_text(figure: Figure) -> str:
    if figure.low == figure.high:
        return number_text(figure.mean)
    return f"{number_text(figure.mean)} ({number_text(figure.low)}-{number_text(figure.high)})"


def answer_lines(sharing: Sharing) -> list[str]:
    """The first is the answer, about what was simulated and no more."""
    wrong = [one for one in sharing.truths if not one.holds]
    if wrong:
        return [
            f"The simulator is wrong, and nothing that it counted counts: {'; '.join(one.what for one in wrong)}."
        ]
    cores = sorted({cores for by_cores in sharing.runs.values() for cores in by_cores})
    quiet = [one.workload for one in sharing.growths if max(at.mean for at in one.moves.values()) < QUIET]
    growing = [one for one in sharing.growths if one.workload not in quiet and (one.ratio or 0) > GROWS]
    flat = [one for one in sharing.growths if one.workload not in quiet and one not in growing]
    reach = f"from {cores[0]} to {cores[-1]} cores" if len(cores) > 1 else f"on {cores[0]} cores"
    lines = []
    if quiet:
        lines.append(f"No more than {QUIET:g} lines move for an operation {reach}: {', '.join(quiet)}.")
    if flat:
        told = ", ".join(f"{one.workload} ({number_text(one.moves[cores[-1]].mean)})" for one in flat)
        lines.append(f"Lines that move for an operation do not grow by more than a quarter {reach}: {told}.")
    if growing:
        told = ", ".join(f"{one.workload} ({_growth_text(one)})" for one in growing)
        lines.append(f"They grow with the cores {reach}: {told}.")
    waiting = [
        f"{one} ({number_text(figure.mean)})"
        for one, by_cores in sharing.runs.items()
        if (figure := figure_of([run.sleeps / run.operations for run in by_cores[max(by_cores)]])).mean
        > WAITS
    ]
    if waiting:
        lines.append(
            f"On {cores[-1]} cores threads wait in the kernel for a lock, so many times for an operation: {', '.join(waiting)}. Whatever moves"
            " there, only one of them gets on at a time."
        )
    return lines


def _growth_text(growth: Growth) -> str:
    fewest, most = min(growth.moves), max(growth.moves)
    return f"{number_text(growth.moves[fewest].mean)} to {number_text(growth.moves[most].mean)}"


def truths_grid(sharing: Sharing) -> Grid:
    return Grid(
        "What must be true of such a machine, and what the simulator counted",
        ("what", "state", "counted"),
        tuple((one.what, "met" if one.holds else "missed", one.found) for one in sharing.truths),
        text_columns=3,
    )


def growth_grid(sharing: Sharing) -> Grid:
    cores = sorted({cores for by_cores in sharing.runs.values() for cores in by_cores})

    def row(growth: Growth) -> tuple[str, ...]:
        ratio = growth.ratio
        figures = (figure_text(growth.moves[one]) if one in growth.moves else "" for one in cores)
        return (
            growth.workload,
            WORKLOADS[growth.workload],
            *figures,
            "" if ratio is None or len(cores) < 2 else f"{ratio:.2f}",
        )

    return Grid(
        "Lines that the allocator moves for each operation, most first",
        ("workload", "what it does", *(f"{one} cores" for one in cores), "growth"),
        tuple(row(one) for one in sharing.growths),
        text_columns=2,
    )


def counts_grid(sharing: Sharing) -> Grid:
    columns = (
        ("accesses", "accesses"),
        ("atomics", "atomics"),
        ("contended", "contended"),
        ("transfers", "lines moved"),
        ("dirty", "of them dirty"),
        *((f"between {nodes} nodes", f"between {nodes} nodes") for nodes in NODES),
        ("upgrades", "taken from sharers"),
        ("invalidations", "copies invalidated"),
        ("sleeps", "waits in the kernel"),
    )
    rows = []
    for by_cores in sharing.runs.values():
        for runs in by_cores.values():
            for row in rows_of(runs):
                figures = (number_text(row.figures[name].mean) for name, _ in columns)
                rows.append((row.workload, row.entry, str(row.cores), str(row.calls), *figures))
    return Grid(
        "Every entry point, for each call (user: the workload's own use of its blocks, for each operation)",
        ("workload", "entry", "cores", "calls", *(title for _, title in columns)),
        tuple(rows),
        text_columns=2,
    )


def hottest_grid(sharing: Sharing) -> Grid:
    """On the most cores, under the first schedule."""
    rows = []
    for growth in sharing.growths:
        by_cores = sharing.runs[growth.workload]
        run = by_cores[max(by_cores)][0]
        for thing in things(run, OWN_ENTRIES)[:HOTTEST]:
            each = thing.moves / run.operations
            if each < QUIET / 10:
                continue
            rows.append(
                (
                    run.workload,
                    thing.name,
                    "; ".join(thing.codes[:3]),
                    ", ".join(thing.entries),
                    number_text(each),
                    f"{100 * thing.moves / max(1, run.moves(OWN_ENTRIES)):.0f} %",
                    number_text(thing.contended / run.operations),
                )
            )
    return Grid(
        "The lines that moved most, and where they are touched (on the most cores)",
        (
            "workload",
            "object",
            "touched in",
            "entries",
            "moves for each operation",
            "share",
            "contended atomics",
        ),
        tuple(rows),
        text_columns=4,
    )


def reading_lines(sharing: Sharing) -> list[str]:
    machine = sharing.machine
    return [
        "*How.* The allocator's sources as they are, compiled so that every load, store and atomic is a call"
        " (`-fsanitize=thread`), are linked to a simulator in place of the sanitizer's run time. Each simulated core runs one"
        " thread; they take turns, a few accesses each (in an order that is drawn anew each round, a number drawn around"
        f" {machine.turn}), so that anything may happen between two accesses. Lines have {machine.line_bytes} bytes and the states of"
        " MESI with a directory. A line *moves* when a core needs it and only others have it, or when it must be taken from those that"
        " share it before a write. An atomic is *contended* when its line was elsewhere. Every core makes"
        f" {machine.ops} operations after as many that only warm up (an eighth of them in `large`; a hundredth, of a hundred blocks, in"
        " `churn`). In brackets: the least and the most of the schedules.",
        "*Nodes* are equal shares of the cores in their order; which moves would cross them is counted for each number of nodes in the"
        " same run. Where memory lies is not simulated: a line that nobody has is counted as such and not as near or far.",
        "*Limits.* No time: moves are counted, not what they cost, and not whether they overlap with other work. No prefetch, no"
        " store buffers, no speculation: memory is sequentially consistent. Caches are endless: a line leaves a core"
        " only because another wants it. The schedule is ours: all cores go at the same pace, a workload does nothing between its"
        " operations but touch a block's first word, and a thread never leaves its core; so contention is near the most that a program"
        " could cause, and a real program, which computes between its calls, meets less. What libc and the kernel"
        " touch is not seen, nor what they lock (page tables, mmap's lock, futex queues), except memcpy, memset and memmove of the allocator's"
        " own. Stacks and thread-local variables count as their thread's own. The clock goes by accesses, a nanosecond for each that all cores"
        " make, so the purge thread hardly ever wakes. The calls that are inserted keep the compiler from some inlining; the"
        " number of accesses is near that of the release build, not equal to it.",
    ]


def grids_of(sharing: Sharing) -> list[Grid]:
    return [growth_grid(sharing), hottest_grid(sharing), counts_grid(sharing), truths_grid(sharing)]


def content_of(sharing: Sharing) -> dict[str, object]:
    """For --json."""
    return {
        "machine": asdict(sharing.machine),
        "truths": [asdict(one) for one in sharing.truths],
        "growth": [
            {"workload": one.workload, "growth": one.ratio}
            | {"moves": {str(cores): asdict(figure) for cores, figure in one.moves.items()}}
            for one in sharing.growths
        ],
        "rows": [
            asdict(row)
            for by_cores in sharing.runs.values()
            for runs in by_cores.values()
            for row in rows_of(runs)
        ],
        "hottest": [
            {"workload": workload, "cores": cores, "operations": runs[0].operations}
            | {"things": [asdict(one) for one in things(runs[0], OWN_ENTRIES)]}
            for workload, by_cores in sharing.runs.items()
            for cores, runs in by_cores.items()
        ],
    }
