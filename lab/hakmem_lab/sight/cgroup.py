"""What the control groups of a process allow it, version 1 and 2: the tightest limit of all groups above it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.sight.kernel_files import kernel_number, kernel_text
from hakmem_lab.sight.pressure import Pressure, pressure_read
from hakmem_lab.sight.process import Process


@dataclass(frozen=True)
class Group:
    """Sizes in bytes; None: no limit, or the kernel does not report it."""

    version: int
    path: str
    limit: int | None
    """Beyond this the kernel kills."""
    current: int | None
    """Memory in use by the group that has the limit."""
    files: int
    """Of these, the cache of files and their names, which the kernel takes before it kills."""
    high: int | None
    """Beyond this the kernel slows the program down."""
    high_current: int | None
    """Memory in use by the group that has this mark."""
    high_files: int
    """Of these, the cache of files and their names, which the kernel takes before it slows anybody down."""
    swap_limit: int | None
    processors: float | None
    """Number of processors that the quota amounts to."""
    pressure: Pressure | None


def group_read(process: Process, system: Path) -> Group | None:
    """SYSTEM is /sys. None: there are no control groups."""
    try:
        lines = process.place("cgroup").read_text().splitlines()
    except OSError:
        return None
    by_controller = {
        name: path for line in lines for _, names, path in [line.split(":", 2)] for name in names.split(",")
    }
    if "memory" in by_controller:
        return _version_1(by_controller, system / "fs/cgroup")
    return _version_2(by_controller[""], system / "fs/cgroup") if "" in by_controller else None


def _levels(base: Path, path: str) -> list[Path]:
    """The group's folder and those above it. Inside a container the path may be that of the outside; then only the
    container's own folder is there."""
    group = base / path.strip("/")
    if not group.is_dir() or ".." in path:
        return [base]
    return [group, *(above for above in group.parents if above.is_relative_to(base))]


def _tightest(levels: list[Path], name: str) -> tuple[int | None, Path]:
    """The smallest number that a file NAME holds at any level, and where."""
    found = [(value, level) for level in levels if (value := kernel_number(level / name)) is not None]
    return min(found, key=lambda one: one[0], default=(None, levels[0]))


def _least(values: Iterator[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _quota_2(level: Path) -> float | None:
    words = (kernel_text(level / "cpu.max") or "max").split()
    return int(words[0]) / int(words[1]) if words[0] != "max" else None


def _quota_1(level: Path) -> float | None:
    quota, period = kernel_number(level / "cpu.cfs_quota_us"), kernel_number(level / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _processors(levels: list[Path], quota: Callable[[Path], float | None]) -> float | None:
    return _least(quota(level) for level in levels)


def _swap_1(levels: list[Path]) -> int | None:
    """Version 1 limits memory and swap together."""
    both, where = _tightest(levels, "memory.memsw.limit_in_bytes")
    memory = kernel_number(where / "memory.limit_in_bytes")
    return None if both is None or memory is None else max(0, both - memory)


def _files(level: Path, prefix: str = "") -> int:
    """Bytes in the cache of files and, which version 1 does not tell, of their names and inodes; what lies in tmpfs is
    not in it. PREFIX: of the sums over the groups below."""
    rows = (line.split() for line in (kernel_text(level / "memory.stat") or "").splitlines())
    names = (f"{prefix}active_file", f"{prefix}inactive_file", "slab_reclaimable")
    return sum(int(row[1]) for row in rows if len(row) == 2 and row[0] in names)


def _version_2(path: str, base: Path) -> Group:
    levels = _levels(base, path)
    limit, limited = _tightest(levels, "memory.max")
    high, marked = _tightest(levels, "memory.high")
    return Group(
        version=2,
        path=path,
        limit=limit,
        current=kernel_number(limited / "memory.current"),
        files=_files(limited),
        high=high,
        high_current=kernel_number(marked / "memory.current"),
        high_files=_files(marked),
        swap_limit=_tightest(levels, "memory.swap.max")[0],
        processors=_processors(levels, _quota_2),
        pressure=pressure_read(levels[0] / "memory.pressure"),
    )


def _version_1(by_controller: dict[str, str], base: Path) -> Group:
    levels = _levels(base / "memory", by_controller["memory"])
    limit, where = _tightest(levels, "memory.limit_in_bytes")
    quota = (
        _processors(_levels(base / "cpu", by_controller["cpu"]), _quota_1) if "cpu" in by_controller else None
    )
    return Group(
        version=1,
        path=by_controller["memory"],
        limit=limit,
        current=kernel_number(where / "memory.usage_in_bytes"),
        files=_files(where, "total_"),
        high=None,  # its soft limit slows nobody down
        high_current=None,
        high_files=0,
        swap_limit=_swap_1(levels),
        processors=quota,
        pressure=None,
    )
