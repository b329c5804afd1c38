"""Proof that an allocator served a command: all of its relevant processes have the library mapped, and the dynamic
linker bound their malloc and free to it.

A preload that does not take effect is silent: a static or privileged program keeps its own allocator. And the
command may be a wrapper whose child does the work. So one run before the measured ones is watched from outside, and
the linker records what it binds.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp

from hakmem_lab.allocators import elf
from hakmem_lab.allocators.bindings import BINDING, bindings_complaint, linker_environment
from hakmem_lab.errors import LabError
from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.tree import Image, Watched

LIBC = "glibc"
"""The peer that means no preload; the C library must then serve."""
SETGID = stat.S_ISGID | stat.S_IXGRP
"""Without the second the first means something else."""
SOURCE = re.compile(r"binding file (.+?) \[\d+\] to ")
UNSERVED_SHARE_MAX = 0.1
"""Share of the processor time that helpers with their own allocator may take."""


@dataclass(frozen=True)
class Service:
    """Which allocator served a command."""

    complaint: str
    """Why the arm's library did not serve; empty if it did."""
    process: str
    """The program that took most of the processor time."""
    owner: str
    """The object that its malloc is bound to, according to the linker; empty if the linker did not see it."""

    @property
    def is_libc(self) -> bool:
        return self.owner.startswith(("libc.so", "libc-", "ld-musl"))


@dataclass(frozen=True)
class Records:
    folder: Path

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        return linker_environment(self.folder / "process")

    def texts(self) -> dict[int, str]:
        """By process."""
        return {
            int(path.name.rpartition(".")[2]): path.read_text(errors="replace")
            for path in self.folder.iterdir()
        }


@contextmanager
def linker_records(parent: Path) -> Iterator[Records]:
    """A folder in which every process of a command leaves the dynamic linker's record."""
    folder = Path(mkdtemp(dir=parent, prefix="bindings-"))
    folder.chmod(0o1777)  # a server may run as another user
    try:
        yield Records(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def service_judge(arm: Arm, watched: Watched, texts: Mapping[int, str], tool: Path) -> Service:
    """The library must have served the process that took most of the time, and nearly all of the rest."""
    images = sorted(watched.images, key=lambda image: (image.work, image.looks), reverse=True)
    library = arm.peer.library
    if not images:  # ended between two looks: the linker saw it, or nobody
        owner = _owner("\n".join(texts.values()), tool)
        complaint = bindings_complaint(texts.values(), library, tool) if library else ""
        return Service(complaint, "", owner)
    main = images[0]
    by_pid = {image.pid: image for image in images}
    records = {id(image): _record(image, by_pid, texts) for image in images}
    owner = _owner(records[id(main)], tool)
    if library is None:  # whatever it is on: what can be said is whether that could be changed
        obstacle = preload_obstacle(main.program)
        service = Service(f"{main.name} is {obstacle}" if obstacle else "", main.name, owner)
        if arm.peer.name == LIBC and owner and not service.is_libc:
            service = replace(service, complaint=f"malloc of {main.name} is bound to {owner}")
        return service
    complaints = {id(image): _complaint(image, records[id(image)], library, tool) for image in images}
    total = sum(image.work for image in images) or 1
    missed = [image for image in images if complaints[id(image)]]
    share = sum(image.work for image in missed) / total
    complaint = ""
    if main in missed or share > UNSERVED_SHARE_MAX:
        of_time = f"{100 * missed[0].work / total:.0f} % of the work"
        complaint = f"{missed[0].name} ({of_time}): {complaints[id(missed[0])]}"
    return Service(complaint, main.name, owner)


def _record(image: Image, by_pid: Mapping[int, Image], texts: Mapping[int, str]) -> str:
    """The linker's binding; a forked process that does not exec is bound as its parent is."""
    seen = {image.pid}
    while image.pid not in texts and image.parent in by_pid and image.parent not in seen:
        image = by_pid[image.parent]
        seen.add(image.pid)
    return texts.get(image.pid, "")


def _owner(text: str, tool: Path) -> str:
    """The object that most of its objects call. A program that takes malloc's address makes the others call through
    its own jump."""
    bound = [(source, target) for source, target, name in BINDING.findall(text) if name == "malloc"]
    lenders = {source for source, target in bound if source != target and (source, source) in bound}
    owners = [target for source, target in bound if source != str(tool) and target not in lenders]
    return Path(max(dict.fromkeys(owners), key=owners.count, default="")).name


def _complaint(image: Image, text: str, library: Path, tool: Path) -> str:
    obstacle = "" if image.mapped else preload_obstacle(image.program)
    # Seen once, it may just have been started: what the linker wrote down of it decides.
    if not image.mapped and (obstacle or image.looks > 1 or not _is_recorded(image, text)):
        return obstacle or "the library is not mapped in it"
    return bindings_complaint([text], library, tool)


def _is_recorded(image: Image, text: str) -> bool:
    """Whether the linker's record of its process is also of this program, and not only of one that it replaced. The
    linker knows a program by the name that it was started under."""
    names = {image.program.name, image.name}
    sources = {Path(source.lstrip("-")) for source in SOURCE.findall(text)}
    return any(one.name in names or (one.is_absolute() and one.resolve() == image.program) for one in sources)


def preload_obstacle(program: Path) -> str:
    """Why the dynamic linker cannot preload anything into it; empty when it can."""
    if is_privileged(program):
        return "privileged (setuid or capabilities): the dynamic linker preloads nothing into it"
    with suppress(OSError, elf.NotElfError):
        if not elf.has_interpreter(program) and not elf.is_loader(program):
            return "a static binary: nothing can be preloaded into it"
    return ""


def is_privileged(program: Path) -> bool:
    """It gets rights that we have not, in the kernel's opinion: as root that is no program of root's own."""
    with suppress(OSError):  # it cannot be looked at, or its file system has no attributes
        file = program.stat()
        if file.st_mode & stat.S_ISUID and file.st_uid != os.getuid():
            return True
        if file.st_mode & SETGID == SETGID and file.st_gid != os.getgid():
            return True
        return os.getuid() != 0 and "security.capability" in os.listxattr(program)
    return False


def libc_path() -> Path:
    """The C library that programs on this system get: the one that serves this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name == "libc.so.6":
            return path
    raise LabError("this system's C library is not glibc")


def libc_preloaded(arm: Arm) -> Arm:
    """glibc as an arm like any other, because a program may bring another allocator (Debian's redis-server does). What
    is a part of the workload stays as it is, and is refused where it does not serve."""
    if arm.peer.library is not None or arm.peer.programs is not None:
        return arm
    return replace(arm, peer=replace(arm.peer, library=libc_path()))
