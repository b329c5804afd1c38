"""What the doctor checks of a process and of the library: is hakmem serving, and does anything stand in its way?"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.processes import signal_text
from hakmem_lab.sight.books import Books
from hakmem_lab.sight.books_reader import books_read
from hakmem_lab.sight.cgroup import group_read
from hakmem_lab.sight.config import Config, config_of_command, mistakes_of_process
from hakmem_lab.sight.doctor_machine import (
    group_findings,
    limit_findings,
    machine_findings,
    mapping_findings,
)
from hakmem_lab.sight.findings import Finding, fine, notice, problem
from hakmem_lab.sight.machine import machine_read
from hakmem_lab.sight.memory import memory_open
from hakmem_lab.sight.objects import LoadedObject, malloc_owner, objects_read
from hakmem_lab.sight.options import Mistake, Option
from hakmem_lab.sight.page import NoPageError, pages_find
from hakmem_lab.sight.process import SELF, Process

TRIAL = ("true",)
ROOT = Path("/")


# ---- without a process -------------------------------------------------------------------------------------


def place_findings(root: Path = ROOT) -> Iterator[Finding]:
    """About the machine, and the limits of a program that is started here."""
    machine = machine_read(root)
    own = Process(SELF, root / "proc")
    yield from machine_findings(machine)
    yield from group_findings(group_read(own, root / "sys"), processors_of(own))
    yield from limit_findings(own.limits(), None)


def library_findings(checkout: Checkout) -> Iterator[Finding]:
    """About the library that this checkout would run programs on, as a program that does nothing shows it."""
    try:
        config = config_of_command(checkout, TRIAL)
    except LabError as error:
        yield problem("libhakmem", "it serves nothing", str(error))
        return
    yield fine("libhakmem", config.library, "it serves programs that are started on it")
    yield from config_findings(config)


def config_findings(config: Config) -> Iterator[Finding]:
    yield from option_findings(config.options, config.mistakes)


def option_findings(options: Iterable[Option], mistakes: Iterable[Mistake]) -> Iterator[Finding]:
    for mistake in mistakes:
        yield problem("option", mistake.setting, mistake.line)
    for option in options:
        if not option.is_default:
            yield fine(
                f"option {option.name}", f"{option.value} ({option.source})", f"{option.text} {option.cost}."
            )


def processors_of(process: Process) -> int:
    """Number of processors that it may run on."""
    ranges = process.status().get("Cpus_allowed_list", "0").split(",")
    ends = [tuple(map(int, one.split("-"))) for one in ranges]
    return sum(one[-1] - one[0] + 1 for one in ends)


# ---- a process ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Patient:
    """What the doctor reads from a process."""

    process: Process
    copies: tuple[Books, ...]
    """Empty: it is not on hakmem."""
    objects: tuple[LoadedObject, ...]
    mapping_count: int
    address_space: int
    locked: int

    @property
    def owner(self) -> LoadedObject | None:
        """The object whose malloc the others call; None: the program's own, which it does not export."""
        return malloc_owner(self.objects)

    @property
    def owner_name(self) -> str:
        return (self.owner or self.objects[0]).name


def patient_read(process: Process) -> Patient:
    with memory_open(process) as memory:
        mappings = process.mappings()
        try:
            copies = tuple(books_read(page) for page in pages_find(memory, mappings))
        except NoPageError:
            copies = ()
        holders = {books.page.owner for books in copies}
        objects = tuple(objects_read(memory, mappings, holders))
    return Patient(
        process=process,
        copies=copies,
        objects=objects,
        mapping_count=len(mappings),
        address_space=sum(mapping.end - mapping.start for mapping in mappings),
        locked=sum(mapping.locked for mapping in mappings),
    )


def patient_findings(patient: Patient) -> Iterator[Finding]:
    process = patient.process
    yield from service_findings(patient)
    yield from malloc_findings(patient)
    for books in patient.copies:
        yield from option_findings(books.options, mistakes_of_process(process, books))
        yield from books_findings(books)
    machine = machine_read(ROOT)
    yield from mapping_findings(patient.mapping_count, machine.mappings_max)
    yield from limit_findings(process.limits(), patient.address_space)
    yield from group_findings(group_read(process, ROOT / "sys"), processors_of(process))
    if patient.locked:
        yield notice("locked memory", f"{patient.locked} bytes", "the kernel takes nothing of it back")
    yield from machine_findings(machine)


def service_findings(patient: Patient) -> Iterator[Finding]:
    """Which object provides malloc; and whether hakmem did anything."""
    owner, program = patient.owner, patient.objects[0]
    owners = {books.page.owner for books in patient.copies}
    if not patient.copies:
        if owner is not None:
            yield problem("malloc", owner.name, "hakmem is not in this process: start it by hakmem run CMD")
        else:
            means = "hakmem is not in this process: link it with libhakmem.a"
            yield problem("malloc", f"linked into {program.name}", means)
    elif owner is None or owner.path in owners or program.path in owners:
        name = owner.name if owner is not None and owner.path in owners else program.name
        yield fine("malloc", name, "hakmem serves the process")
    else:
        means = "hakmem is loaded, but comes behind it and serves nothing: build it without a malloc, or with"
        yield problem("malloc", owner.name, f"{means} libhakmem.a")
    if len(patient.copies) > 1:
        names = ", ".join(Path(books.page.owner).name for books in patient.copies)
        yield notice(
            "copies of hakmem", names, "each keeps memory of its own, and takes others' blocks for foreign"
        )


def malloc_findings(patient: Patient) -> Iterator[Finding]:
    """Libraries with their own allocator."""
    owners = {books.page.owner for books in patient.copies}
    for one in patient.objects:
        if not one.mallocs or one.path in owners or one.is_libc or one is patient.owner:
            continue
        names = ", ".join(one.mallocs)
        if one.has_malloc:
            yield notice(
                f"malloc of {one.name}",
                names,
                f"{patient.owner_name}'s comes before it; only calls inside this library still reach it",
            )
        else:
            yield notice(f"malloc of {one.name}", names, "memory that it takes for itself is not hakmem's")


def books_findings(books: Books) -> Iterator[Finding]:
    policy = books.option("foreign_free").value
    if books.foreign_frees:
        value = f"{books.foreign_frees}, foreign_free is {policy}"
        if policy == "libc":
            yield notice("foreign frees", value, "handed to libc: blocks of another malloc reach the program")
        else:
            yield problem(
                "foreign frees", value, "ignored: blocks of another malloc that are never freed, or a bug"
            )
    else:
        yield fine("foreign frees", "none", "no block of another malloc came by")
    failed = sum(books.failures.values())
    if failed:
        causes = ", ".join(f"{cause}: {count}" for cause, count in books.failures.items() if count)
        last = books.last_failures[-1] if books.last_failures else None
        means = (
            f"the last: {last.size} bytes, {last.call or last.cause} {last.error}"
            if last
            else "hakmem stats has them"
        )
        yield problem("allocations that failed", causes, means.strip())
    for call in books.calls:
        if call.refused:
            value = f"{call.refused} of {call.made} refused"
            yield notice(f"kernel, {call.name}", value, "hakmem goes on without; memory may stay resident")


# ---- a command ---------------------------------------------------------------------------------------------


def end_findings(status: int, ended_by: int) -> Iterator[Finding]:
    """How a command ended: with an exit STATUS as a shell reports it, or by the signal ENDED_BY."""
    if ended_by == signal.SIGABRT:
        yield problem(
            "end", signal_text(ended_by), "it was aborted; if hakmem did that, its message is above"
        )
    elif ended_by:
        yield problem("end", signal_text(ended_by), "this signal ended it")
    elif status:
        yield notice("end", f"exit status {status}", "the program's own; 0 is success")


def proof_findings(proofs: Mapping[int, str], pid: int, can_report: bool = True) -> Iterator[Finding]:
    """What hakmem itself reported in each process of a command when a program last started there. A program without
    hakmem, which such a process may become or start, reports nothing: looks at the processes find it, or nobody."""
    for number, word in proofs.items():
        if word != "served":
            yield problem(
                f"process {number}", word.removeprefix("other "), "its malloc is this object's, not hakmem's"
            )
    if pid not in proofs and not can_report:
        yield notice("proof of service", "not known", "the file for hakmem's reports cannot be written")
    elif pid not in proofs:
        yield problem(
            "proof of service", "none", "hakmem was not loaded into the program, or is another version"
        )
    elif proofs[pid] == "served":
        served = sum(word == "served" for word in proofs.values())
        yield fine(
            "proof of service",
            f"{served} of {len(proofs)} that reported",
            "hakmem said so as a program began; one without it is silent",
        )
