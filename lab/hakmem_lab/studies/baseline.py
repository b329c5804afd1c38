"""What hakmem cost when it was last reviewed: instructions, page faults and memory that are the same each time.
They are kept as text in tests/baseline/, with a gate that says what was lost, by which entry point, and which
commits may have caused it.

Everything is counted with a fixed seed, without the purge thread, with a clock that advances by one millisecond
each time hakmem reads it, and with the window at a fixed address (bench/steady/steady.c). Instructions are those of
the library's own code for one operation: the difference of two runs, the second twice as long. What libc executes
for it is not counted, since that depends on the processor. Page faults are those of a whole run between start and
stop; memory is the kernel's VmHWM at its end. That run has no random addresses, because the amount of libc that is
mapped along with a touched page depends on them, by some hundred KiB.

A baseline belongs to one compiler and one kind of machine. Its tolerances are the constants below.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from hakmem_lab.allocators import elf
from hakmem_lab.allocators.builds import git
from hakmem_lab.checkout import Checkout, machine
from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING
from hakmem_lab.measure.provenance import Provenance
from hakmem_lab.measure.runner import Arm, Line, command_make, environment_make, process_run, service_check
from hakmem_lab.measure.stage import Stage, copy_to_disk
from hakmem_lab.studies.callgrind import Call, Profile, is_file, side_by_side, workload_profile
from hakmem_lab.workloads.cells import CELLS, Cell

FOLDER = "tests/baseline"
CELLS_COUNTED = (
    "random mix, 256 slots",
    "random mix, 8192 slots",
    "LIFO burst, 4000 of 64 B",
    "LIFO burst, 1000 of 16-256 B",
    "every class, four patterns",
    "aligned and plain, 1000 slots",
    "change of phase, 8192 slots",
)
"""One thread each, because with several the number of instructions depends on which thread waits. Together they
take well below a minute."""
SEED = 1
NATIVE_TIMES = 10
"""The run that counts faults and memory does this many times the work."""
CONFIGURED = (("HAKMEM_CONF", "purge_thread:off"),)

INSTRUCTIONS_SHARE, INSTRUCTIONS_LEAST = 0.005, 0.05
FAULTS_SHARE, FAULTS_LEAST = 0.02, 4.0
FOOTPRINT_SHARE, FOOTPRINT_LEAST = 0.02, 128.0
"""A figure is lost if it is worse by more than this share and by more than this amount."""
DIGITS = 4
"""Digits of the figures that are kept."""
SHOWN_LEAST = 0.02
"""Instructions for one operation: smaller changes of a function are not reported."""


@dataclass(frozen=True)
class Entry:
    """An entry point as the workload called it."""

    calls: float
    """Calls for one operation."""
    instructions: float
    """Instructions of one call, with all that it calls."""


@dataclass(frozen=True)
class Counts:
    """The counts of one workload."""

    instructions: float
    """Instructions of the library's own code, for one operation."""
    faults: int
    peak_rss_kib: int
    entries: Mapping[str, Entry]
    functions: Mapping[str, float]
    """Own instructions for one operation."""


@dataclass(frozen=True)
class Baseline:
    commit: str
    date: str
    compiler: str
    kernel: str
    cpu: str
    thp: str
    libc: str
    addresses: str
    """"fixed"; or "random", if a machine does not allow fixed ones."""
    rows: Mapping[str, Counts]

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


def baseline_path(checkout: Checkout) -> Path:
    """The file for this machine and the compiler of the library."""
    return checkout.root / FOLDER / f"{machine()}-{compiler_name(elf.compilers(checkout.library))}.json"


def compiler_name(comment: str) -> str:
    """Such as gcc-12 or clang-14."""
    clang, gcc = re.search(r"clang version (\d+)", comment), re.search(r"GCC: \(.*?\) (\d+)", comment)
    found = (f"clang-{clang[1]}" if clang else "") or (f"gcc-{gcc[1]}" if gcc else "")
    if not found:
        raise LabError(f"the library does not say which compiler made it: {comment}")
    return found


def baseline_read(path: Path) -> Baseline:
    try:
        kept: dict[str, Any] = json.loads(path.read_text(ENCODING))
        rows = {
            name: Counts(**row | {"entries": {entry: Entry(**of) for entry, of in row["entries"].items()}})
            for name, row in kept["rows"].items()
        }
        return Baseline(**kept | {"rows": rows})
    except FileNotFoundError:
        raise LabError(
            f"there is no baseline {path.name}: ./hakmem baseline save makes one for this compiler and machine"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"{path.name} is no baseline: {error}") from error


# ---- counting ---------------------------------------------------------------------------------------------


def cells_counted() -> list[Cell]:
    by_name = {cell.name: cell for cell in CELLS}
    return [by_name[name] for name in CELLS_COUNTED]


def rows_count(stage: Stage, arm: Arm, step: Callable[[], None]) -> dict[str, Counts]:
    further = same_each_time(stage, arm)
    cells = cells_counted()
    counted = side_by_side(cells, lambda cell, cpus: cell_count(stage, cell, arm, cpus, further), step)
    return {cell.name: counts for cell, counts in zip(cells, counted, strict=True)}


def baseline_make(source: Provenance, rows: Mapping[str, Counts]) -> Baseline:
    return Baseline(
        commit=source.commit,
        date=source.date,
        compiler=source.compiler,
        kernel=source.kernel,
        cpu=source.cpu,
        thp=source.thp,
        libc=source.libc,
        addresses="fixed" if fixed_addresses() else "random",
        rows=rows,
    )


def same_each_time(stage: Stage, arm: Arm) -> dict[str, str]:
    """An environment in which hakmem's behaviour depends only on the work: no purge thread, its own clock and a
    fixed address."""
    library = stage.checkout.bare_library("steady")
    copy = stage.folder / library.name
    copy_to_disk(library, copy)
    return dict(CONFIGURED) | {"LD_PRELOAD": f"{copy} {arm.peer.library}"}


def cell_count(
    stage: Stage, cell: Cell, arm: Arm, cpus: tuple[int, ...], further: Mapping[str, str]
) -> Counts:
    assert arm.peer.library is not None

    def run(times: int) -> tuple[Profile, Line]:
        arguments = cell.command(times * cell.first_count, SEED)
        return workload_profile(stage, cell.program, arguments, arm, cpus, further=further)

    (short, few), (long, many) = run(1), run(2)
    operations = many["ops"] - few["ops"]
    functions = functions_count(short, long, arm.peer.library, operations)
    line = _native_run(stage, cell, arm, cpus, further)
    return Counts(
        instructions=round(sum(functions.values()), DIGITS),
        faults=line["minor_faults"] + line["major_faults"],
        peak_rss_kib=line["peak_rss_kib"],
        entries=entries_count(short, long, arm.peer.library, operations),
        functions={name: round(cost, DIGITS) for name, cost in functions.items() if abs(cost) >= SHOWN_LEAST},
    )


@cache
def fixed_addresses() -> tuple[str, ...]:
    """The prefix for a command that turns random addresses off; empty if that is not allowed."""
    setarch = shutil.which("setarch")
    if setarch is None:
        return ()
    line = (setarch, "--addr-no-randomize")
    done = subprocess.run([*line, "true"], capture_output=True, check=False)
    return line if done.returncode == 0 else ()


def _native_run(
    stage: Stage, cell: Cell, arm: Arm, cpus: tuple[int, ...], further: Mapping[str, str]
) -> Line:
    command = command_make(
        stage.program(cell.program), cell.command(NATIVE_TIMES * cell.first_count, SEED), arm.peer
    )
    environment = environment_make(arm, 0, preload=True) | dict(further)
    printed = process_run([*fixed_addresses(), *command], environment, cpus)
    line = Line.parse(printed, f"{cell.program} under {arm.name}")
    service_check(line, arm.peer)
    return line


def functions_count(short: Profile, long: Profile, library: Path, operations: int) -> dict[str, float]:
    """Own instructions of the library's functions, for one operation."""
    counts: Counter[str] = Counter()
    for profile, sign in ((long, 1), (short, -1)):
        for place, cost in profile.costs.items():
            if is_file(place.object, library):
                counts[function_name(place.function)] += sign * cost
    return {name: cost / operations for name, cost in sorted(counts.items()) if cost}


def entries_count(short: Profile, long: Profile, library: Path, operations: int) -> dict[str, Entry]:
    """By the names under which programs call them."""
    calls: Counter[str] = Counter()
    costs: Counter[str] = Counter()
    names = entry_names(library)
    for profile, sign in ((long, 1), (short, -1)):
        for call in profile.calls:
            if _enters(call, library) and call.function in names:
                calls[names[call.function]] += sign * profile.calls[call]
                costs[names[call.function]] += sign * profile.inclusive[call]
    return {
        name: Entry(round(calls[name] / operations, DIGITS), round(costs[name] / calls[name], DIGITS))
        for name in sorted(calls)
        if calls[name]
    }


def _enters(call: Call, library: Path) -> bool:
    return is_file(call.object, library) and not is_file(call.caller_object, library)


def entry_names(library: Path) -> dict[str, str]:
    """Every exported name, with the shortest name of the same code: hak_free is free."""
    by_address: dict[int, list[str]] = defaultdict(list)
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        if not isinstance(section, SymbolTableSection):
            raise LabError(f"{library.name} exports nothing")
        for symbol in section.iter_symbols():
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]:
                by_address[symbol["st_value"]].append(symbol.name)
    return {
        name: min(names, key=lambda one: (len(one), one)) for names in by_address.values() for name in names
    }


def function_name(name: str) -> str:
    """Without the suffixes that compilers and callgrind append: refill.part.0, free'2."""
    return re.split(r"[.']", name, maxsplit=1)[0] or name


# ---- comparing --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gate:
    """One figure of one workload, then and now."""

    row: str
    what: str
    before: float
    now: float
    state: str
    """met, missed, better, or open with the reason."""
    tolerance: float


@dataclass(frozen=True)
class Loss:
    """What a lost workload lost, and which functions may have caused it."""

    row: str
    entries: tuple[str, ...]
    functions: tuple[str, ...]
    names: tuple[str, ...] = field(default=())
    """The functions that are more expensive."""


def gates(before: Baseline, now: Baseline) -> list[Gate]:
    if before.rows.keys() != now.rows.keys():
        missing = before.rows.keys() ^ now.rows.keys()
        raise LabError(f"the baseline is of other workloads ({', '.join(sorted(missing))}): save it anew")
    pages = memory = ""
    if now.thp != before.thp:
        pages = memory = f"open: huge pages are {now.thp} here and were {before.thp}"
    elif now.addresses != before.addresses:
        memory = f"open: addresses are {now.addresses} here and were {before.addresses}"
    found = []
    for name, new in now.rows.items():
        old = before.rows[name]
        found += [
            _gate(
                name,
                "instructions",
                old.instructions,
                new.instructions,
                INSTRUCTIONS_SHARE,
                INSTRUCTIONS_LEAST,
            ),
            _opened(_gate(name, "page faults", old.faults, new.faults, FAULTS_SHARE, FAULTS_LEAST), pages),
            _opened(
                _gate(
                    name,
                    "peak RSS, KiB",
                    old.peak_rss_kib,
                    new.peak_rss_kib,
                    FOOTPRINT_SHARE,
                    FOOTPRINT_LEAST,
                ),
                memory,
            ),
        ]
    return found


def _gate(row: str, what: str, before: float, now: float, share: float, least: float) -> Gate:
    tolerance = max(share * before, least)
    state = "met"
    if now > before + tolerance:
        state = "missed"
    elif now < before - tolerance:
        state = "better"
    return Gate(row, what, before, now, state, tolerance)


def _opened(gate: Gate, reason: str) -> Gate:
    return replace(gate, state=reason) if reason else gate


def losses(baseline: Baseline, rows: Mapping[str, Counts], found: Iterable[Gate]) -> list[Loss]:
    lost = dict.fromkeys(gate.row for gate in found if gate.state == "missed")
    return [_loss(name, baseline.rows[name], rows[name]) for name in lost]


def _loss(row: str, before: Counts, now: Counts) -> Loss:
    entries = []
    for name, entry in now.entries.items():
        then = before.entries.get(name)
        if then is None:
            entries.append(f"{name} is called now: {entry.instructions:.1f} instructions a call")
        elif entry.instructions > then.instructions * (1 + INSTRUCTIONS_SHARE):
            entries.append(
                f"{name}: {then.instructions:.1f} instructions a call before, {entry.instructions:.1f} now"
            )
    dearer = {
        name: cost - before.functions.get(name, 0.0)
        for name, cost in now.functions.items()
        if cost - before.functions.get(name, 0.0) >= SHOWN_LEAST
    }
    names = tuple(sorted(dearer, key=lambda name: -dearer[name]))
    functions = tuple(
        f"{name}: {before.functions.get(name, 0.0):.2f} before, {now.functions[name]:.2f} now for one operation"
        for name in names
    )
    return Loss(row, tuple(entries), functions, names)


# ---- who did it -------------------------------------------------------------------------------------------

NAMED = re.compile(r"\b(\w+)\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def names_defined(text: str) -> set[str]:
    """Found by the house style of definitions: they start a line, and no semicolon comes before their brace."""
    heads = (line.partition("{")[0] for line in text.splitlines() if line[:1].isalpha() or line[:1] == "_")
    return {name for head in heads if ";" not in head for name in NAMED.findall(head)}


def files_of(sources: Path, names: Iterable[str]) -> list[Path]:
    """The files in which the functions are defined; if a macro defines one, the file in which its name stands."""
    texts = {path: path.read_text(ENCODING) for path in sorted(sources.rglob("*.[ch]"))}
    defined = {path: names_defined(text) for path, text in texts.items()}
    found: dict[Path, None] = {}
    for name in names:
        at = [path for path in texts if name in defined[path]]
        at = at or [path for path, text in texts.items() if re.search(rf"\b{re.escape(name)}\b", text)]
        found |= dict.fromkeys(at)
    return list(found)


def files_behind(sources: Path, names: Iterable[str]) -> list[Path]:
    """The files of those functions, with all that they include, because code may be inlined from there."""
    pending = files_of(sources, names)
    seen: dict[Path, None] = {}
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen[path] = None
        included = (sources / name for name in INCLUDE.findall(path.read_text(ENCODING)))
        pending += [one for one in included if one.is_file()]
    return sorted(seen)


def suspects(checkout: Checkout, since: str, losses: Sequence[Loss]) -> list[str]:
    """Commits since the baseline, newest first, that touched what lost; and uncommitted changes."""
    names = dict.fromkeys(name for loss in losses for name in loss.names)
    sources = checkout.root / "src"
    # A loss of faults or memory shows in no function: then all of the library is under suspicion.
    paths = [str(path.relative_to(checkout.root)) for path in files_behind(sources, names)] or ["src"]
    base = since.split()[0]
    lines = []
    try:
        told = git(checkout.root, "log", "--format=%h %s", f"{base}..HEAD", "--", *paths)
        lines += [f"commit {line}" for line in told.splitlines()]
    except LabError:
        lines.append(f"commit {base} of the baseline is not in this clone: what came since is not known")
    changed = git(checkout.root, "status", "--porcelain", "--", *paths)
    lines += [f"not committed: {line[3:]}" for line in changed.splitlines()]
    return lines or [
        "no commit since the baseline touched them: the compiler, its options or the machine did"
    ]
