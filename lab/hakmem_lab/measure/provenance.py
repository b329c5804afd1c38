"""What a reader needs in order to judge and repeat a measurement; no paths and no names of machines."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hakmem_lab.allocators import elf
from hakmem_lab.allocators.builds import git
from hakmem_lab.allocators.peers import Peer, glibc_version
from hakmem_lab.checkout import Checkout, machine
from hakmem_lab.errors import LabError

BUILT_FROM = ("src", "include", "bench", "cmake", "tools", "CMakeLists.txt", "CMakePresets.json")


@dataclass(frozen=True)
class Provenance:
    date: str
    command: str
    commit: str
    build_id: str
    compiler: str
    workload_compiler: str
    """Empty if no program of bench/ was measured."""
    kernel: str
    cpu: str
    processors: int
    thp: str
    libc: str
    peers: tuple[str, ...]

    def rows(self) -> list[tuple[str, str]]:
        rows = [
            ("date", self.date),
            ("command", f"`{self.command}`"),
            ("commit", self.commit),
            ("hakmem build id", self.build_id),
            ("hakmem compiled by", self.compiler),
            ("workloads compiled by", self.workload_compiler),
            ("kernel", self.kernel),
            ("processor", f"{self.cpu}, {self.processors} usable"),
            ("transparent huge pages", self.thp),
            ("C library", self.libc),
            ("measured", "; ".join(self.peers)),
        ]
        return [(what, value) for what, value in rows if value]


def collect(
    checkout: Checkout, command: str, program: str | None = None, peers: Iterable[Peer] = ()
) -> Provenance:
    return Provenance(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=command,
        commit=commit_read(checkout.root),
        build_id=elf.build_id(checkout.library),
        compiler=elf.compilers(checkout.library),
        workload_compiler=elf.compilers(checkout.program(program)) if program else "",
        kernel=f"Linux {platform.release().split('-')[0]} {machine()}",
        cpu=cpu_read(),
        processors=len(os.sched_getaffinity(0)),
        thp=thp_read(),
        libc=f"glibc {glibc_version()}",
        peers=tuple(f"{peer.name} {peer.version} ({peer.identity})" for peer in peers),
    )


def commit_read(root: Path) -> str:
    """The commit, and whether what is built and measured differs from it."""
    try:
        commit = git(root, "rev-parse", "--short=12", "HEAD").strip()
        changed = git(root, "status", "--porcelain", "--", *BUILT_FROM)
    except LabError:
        return "not known"
    return f"{commit} with changes" if changed else commit


def cpu_read() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or "unknown"


def thp_read() -> str:
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return "not in this kernel"
    chosen = text[text.find("[") + 1 : text.find("]")]
    return chosen or text.strip()
