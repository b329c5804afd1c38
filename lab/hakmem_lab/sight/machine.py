"""How the machine manages memory: the kernel settings that affect an allocator."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.sight.kernel_files import kernel_number, kernel_text
from hakmem_lab.sight.pressure import Pressure, pressure_read


@dataclass(frozen=True)
class Feature:
    """What a kernel supports from some version on."""

    name: str
    since: tuple[int, int]
    gives: str
    without: str


FEATURES = (
    Feature(
        "membarrier",
        (4, 14),
        "memory in the caches of sleeping threads comes back",
        "it stays until they wake",
    ),
    Feature(
        "MADV_COLD",
        (5, 4),
        "a huge page is broken at once when a part of it is given back",
        "such parts come back later",
    ),
    Feature(
        "MREMAP_DONTUNMAP",
        (5, 7),
        "large blocks that grow are moved by their page tables",
        "they are copied",
    ),
    Feature(
        "MADV_POPULATE_WRITE",
        (5, 14),
        "pages are brought in by one call, where that is wanted",
        "by a page fault each",
    ),
    Feature(
        "PR_SET_VMA_ANON_NAME",
        (5, 17),
        "hakmem's memory has its name in /proc/PID/maps, if the kernel was built so",
        "it has none there",
    ),
    Feature(
        "MADV_COLLAPSE",
        (6, 1),
        "programs can have huge pages made at once",
        "only khugepaged makes them of pages that are there",
    ),
)


BALLOON_REPORTING = 5
"""VIRTIO_BALLOON_F_REPORTING, of the features that host and kernel agreed on."""


@dataclass(frozen=True)
class Machine:
    """Sizes in bytes; None: the kernel does not report it."""

    kernel: str
    version: tuple[int, int]
    page: int
    huge_pages: str
    """Transparent huge pages: always, madvise or never; empty if the kernel has none."""
    overcommit: int | None
    commit_limit: int | None
    committed: int | None
    available: int | None
    total: int | None
    mappings_max: int | None
    reports_free_pages: bool
    """Whether the host of this virtual machine is told which memory is free, and takes it back."""
    pages_out_idle: bool
    """Whether DAMON, in the kernel, pages out what nobody accessed for a while."""
    pressure: Pressure | None

    def has(self, feature: Feature) -> bool:
        return self.version >= feature.since


def machine_read(root: Path) -> Machine:
    """ROOT contains proc/ and sys/."""
    kernel = kernel_text(root / "proc/sys/kernel/osrelease") or "unknown"
    match = re.match(r"(\d+)\.(\d+)", kernel)
    huge = kernel_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""
    chosen = re.search(r"\[(\w+)\]", huge)
    memory = _memory_read(root / "proc/meminfo")
    return Machine(
        kernel=kernel,
        version=(int(match[1]), int(match[2])) if match else (0, 0),
        page=os.sysconf("SC_PAGE_SIZE"),
        huge_pages=chosen[1] if chosen else "",
        overcommit=kernel_number(root / "proc/sys/vm/overcommit_memory"),
        commit_limit=memory.get("CommitLimit"),
        committed=memory.get("Committed_AS"),
        available=memory.get("MemAvailable"),
        total=memory.get("MemTotal"),
        mappings_max=kernel_number(root / "proc/sys/vm/max_map_count"),
        reports_free_pages=_reports_free_pages(root / "sys/bus/virtio/drivers/virtio_balloon"),
        pages_out_idle=_pages_out_idle(root / "sys/kernel/mm/damon/admin/kdamonds"),
        pressure=pressure_read(root / "proc/pressure/memory"),
    )


def _reports_free_pages(balloon: Path) -> bool:
    features = (kernel_text(device / "features") or "" for device in balloon.glob("virtio*"))
    return any(bits[BALLOON_REPORTING : BALLOON_REPORTING + 1] == "1" for bits in features)


def _pages_out_idle(daemons: Path) -> bool:
    return any(
        kernel_text(daemon / "state") == "on"
        and any(kernel_text(action) == "pageout" for action in daemon.glob("contexts/*/schemes/*/action"))
        for daemon in daemons.glob("[0-9]*")
    )


def _memory_read(file: Path) -> dict[str, int]:
    lines = (line.partition(":") for line in (kernel_text(file) or "").splitlines())
    return {name: 1024 * int(value.split()[0]) for name, _, value in lines if value.endswith("kB")}
