"""What the doctor checks of the machine, its control groups and its limits."""

from __future__ import annotations

from collections.abc import Iterator

from hakmem_lab.sight.cgroup import Group
from hakmem_lab.sight.findings import Finding, fine, notice, problem
from hakmem_lab.sight.machine import FEATURES, Machine
from hakmem_lab.sight.pressure import Pressure
from hakmem_lab.sight.process import Limit
from hakmem_lab.sight.sizes import size_text

NEAR, CLOSE = 0.9, 0.5
"""Shares of a limit from which usage is a problem, and a notice."""
SCARCE = 0.05
"""Available memory below this share of the machine's is scarce."""
PRESSURE_MAX = 10.0
"""Per cent of the time."""
STRICT = 2
"""overcommit_memory: the kernel promises no more memory than there is."""
KERNEL_PAGE = 4096
WINDOW_BYTES = 1 << 40
"""Address space that hakmem takes if nothing limits it."""

LIMITS = {
    "Max address space": "RLIMIT_AS",
    "Max data size": "RLIMIT_DATA",
    "Max locked memory": "RLIMIT_MEMLOCK",
}


def machine_findings(machine: Machine) -> Iterator[Finding]:
    yield fine("kernel", machine.kernel, "hakmem needs Linux alone; what newer ones give stands below")
    for feature in FEATURES:
        since = ".".join(map(str, feature.since))
        if machine.has(feature):
            yield fine(feature.name, f"yes, since {since}", feature.gives)
        else:
            yield notice(feature.name, f"no, before {since}", feature.without)
    yield _page(machine)
    yield _huge_pages(machine)
    if machine.reports_free_pages:
        means = (
            "the host takes back what is free for some seconds, and the first touch of it then takes up to ten"
            " times as long: a longer decay gives less back"
        )
        yield notice("free page reporting", "yes", means)
    if machine.pages_out_idle:
        means = "what nobody accessed for a while is paged out, files' pages with it: programs that rest then take major faults"
        yield notice("DAMON", "pages out", means)
    yield from _overcommit(machine)
    yield from _available(machine)
    if machine.pressure is not None:
        yield _pressure("memory pressure of the machine", machine.pressure)


def _page(machine: Machine) -> Finding:
    if machine.page == KERNEL_PAGE:
        return fine("page size", size_text(machine.page), "free pages inside slabs go back one by one")
    return notice("page size", size_text(machine.page), "larger pages: fewer of them are free as a whole")


def _huge_pages(machine: Machine) -> Finding:
    what = "transparent huge pages"
    if machine.huge_pages == "always":
        means = (
            "hakmem asks for none below 4 MiB touched, whatever this says; other memory gets them unasked,"
            " and grows by up to 2 MiB a mapping"
        )
        return notice(what, machine.huge_pages, means)
    if machine.huge_pages == "madvise":
        return fine(
            what, machine.huge_pages, "only where a program asks, as hakmem does from 4 MiB touched on"
        )
    return notice(
        what, machine.huge_pages or "none", "more page faults and TLB misses; huge_pages has no effect"
    )


def _overcommit(machine: Machine) -> Iterator[Finding]:
    if machine.overcommit is None:
        return
    value = str(machine.overcommit)
    if machine.overcommit != STRICT:
        yield fine("vm.overcommit_memory", value, "address space costs nothing until it is used")
        return
    limit, committed = machine.commit_limit, machine.committed
    if not limit or committed is None:
        yield notice(
            "vm.overcommit_memory", value, "memory is refused when it is asked for, not when it is used"
        )
        return
    value = f"{value}, {size_text(committed)} of {size_text(limit)} promised"
    means = "memory is refused when it is asked for: hakmem commits 16 MiB and more at a time"
    yield (problem if committed >= NEAR * limit else notice)("vm.overcommit_memory", value, means)


def _available(machine: Machine) -> Iterator[Finding]:
    if machine.available is None or not machine.total:
        return
    value = f"{size_text(machine.available)} of {size_text(machine.total)}"
    if machine.available < SCARCE * machine.total:
        yield problem("memory available", value, "the kernel will swap or kill soon")
    else:
        yield fine("memory available", value, "enough")


def _pressure(what: str, pressure: Pressure) -> Finding:
    value = f"some {pressure.some:g} %, all {pressure.full:g} % of the last 10 s"
    if pressure.full >= PRESSURE_MAX:
        return problem(what, value, "work stands still for want of memory")
    if pressure.some >= PRESSURE_MAX:
        return notice(what, value, "some work waits for memory: a shorter decay gives more back")
    return fine(what, value, "nobody waits for memory")


# ---- of a process ------------------------------------------------------------------------------------------


def group_findings(group: Group | None, processors: int) -> Iterator[Finding]:
    """PROCESSORS: the number that the process may run on."""
    if group is None:
        yield fine("control group", "none", "no bound but the machine's")
        return
    what = f"control group (version {group.version})"
    if group.limit is None:
        yield fine(f"{what} memory limit", "none", "no bound but the machine's")
    elif group.current is not None:
        value = f"{size_text(group.current)} of {size_text(group.limit)}{_files_text(group.files)}"
        if group.current - group.files >= NEAR * group.limit:
            means = "beyond it the kernel kills; near it hakmem gives back all that is free (option pressure)"
            yield problem(f"{what} memory limit", value, means)
        else:
            yield fine(
                f"{what} memory limit", value, "beyond it the kernel kills; file caches count, and go first"
            )
    if group.high is not None and group.high_current is not None:
        files = _files_text(group.high_files)
        value = f"{size_text(group.high_current)}, slowed from {size_text(group.high)} on{files}"
        if group.high_current - group.high_files >= group.high:
            yield problem(
                f"{what} memory.high", value, "the kernel slows every allocation down to take memory back"
            )
        else:
            yield fine(f"{what} memory.high", value, "beyond it the kernel slows the program down")
    if group.swap_limit == 0:
        yield fine(f"{what} swap", "none", "what is resident stays so until it is given back")
    if group.pressure is not None:
        yield _pressure(f"{what} memory pressure", group.pressure)
    yield from _processors(group, processors)


def _files_text(files: int) -> str:
    """The kernel takes them first, and hakmem does not count them either."""
    return f", of which {size_text(files)} are cached files and their names" if files else ""


def _processors(group: Group, processors: int) -> Iterator[Finding]:
    if group.processors is None:
        yield fine("processors", str(processors), "no quota")
    elif group.processors < processors:
        value = f"a quota of {group.processors:g} of {processors}"
        means = (
            "threads wait for their turn with full caches: about as many threads as the quota need the least"
        )
        yield notice("processors", value, means)
    else:
        yield fine(
            "processors", f"a quota of {group.processors:g} of {processors}", "the quota bounds nothing"
        )


def limit_findings(limits: dict[str, Limit], address_space: int | None) -> Iterator[Finding]:
    """ADDRESS_SPACE: in use, in bytes; None: unknown."""
    for name, short in LIMITS.items():
        limit = limits.get(name, Limit(None, None)).soft
        if short == "RLIMIT_MEMLOCK":
            value = "none" if limit is None else size_text(limit)
            yield fine(short, value, "locked memory does not go back to the kernel")
        elif limit is None:
            yield fine(short, "none", "no bound but the machine's")
        else:
            yield _bounded(short, limit, address_space if short == "RLIMIT_AS" else None)


def _bounded(short: str, limit: int, used: int | None) -> Finding:
    if used is None:
        return notice(
            short, size_text(limit), "allocations fail beyond it; hakmem fits its window to RLIMIT_AS"
        )
    value = f"{size_text(used)} of {size_text(limit)} in use"
    if used >= NEAR * limit:
        return problem(short, value, "allocations fail beyond it")
    return notice(short, value, f"hakmem's window is smaller than {size_text(WINDOW_BYTES)} for it")


def mapping_findings(count: int, most: int | None) -> Iterator[Finding]:
    if most is None:
        return
    value = f"{count} of {most} in use"
    if count >= NEAR * most:
        yield problem("vm.max_map_count", value, "beyond it every mmap fails, and hakmem's with it: raise it")
    elif count >= CLOSE * most:
        yield notice("vm.max_map_count", value, "beyond it every mmap fails: raise it in time")
    else:
        yield fine("vm.max_map_count", value, "enough")
