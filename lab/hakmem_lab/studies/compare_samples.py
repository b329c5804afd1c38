"""A comparison's raw samples: one row for each run, written as soon as it ended."""

from __future__ import annotations

from hakmem_lab.measure.task import Task
from hakmem_lab.studies.compare import Sample

COLUMNS = (
    *("task", "phase", "round", "order", "arm", "version", "identity", "seed", "padding", "cpus"),
    *("ops", "seconds", "wall_seconds", "cpu_seconds"),
    *("peak_rss_kib", "tree_peak_rss_kib", "rss_mean_kib", "idle_rss_kib"),
    *("minor_faults", "major_faults", "involuntary_switches"),
    *("steal_ticks", "touch_us", "in_turns", "disturbed", "checksum"),
)


def sample_row(task: Task, sample: Sample) -> tuple[object, ...]:
    run, peer, conditions = sample.run, sample.arm.peer, sample.conditions
    memory = (run.peak_rss_kib, run.tree_peak_rss_kib, run.rss_mean_kib, run.idle_rss_kib)
    return (
        *(task.name, sample.phase, sample.round, sample.order, sample.arm.name, peer.version, peer.identity),
        *(conditions.seed, conditions.padding, " ".join(map(str, conditions.cpus))),
        *(run.ops, f"{run.seconds:.9f}", f"{run.wall_seconds:.6f}", f"{run.cpu_seconds:.6f}"),
        *("" if kib is None else f"{kib:.0f}" for kib in memory),
        *(run.minor_faults, run.major_faults, run.involuntary_switches, run.steal_ticks),
        *("" if run.touch_us is None else f"{run.touch_us:.3f}", int(run.in_turns)),
        *(sample.disturbed, run.checksum or ""),
    )
