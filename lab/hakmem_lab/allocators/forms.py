"""hakmem as a part of the program that it serves, instead of preloaded: how much does the way of building gain?

    hakmem+dynamic      linked with libhakmem.so, called without a jump in between
    hakmem+static       linked with the archive
    hakmem+lto          program and archive optimised as one
    hakmem+inlined      the fast paths in the caller's own code: an experiment of bench/inlined/

Each is a folder of build/bench/linked/ with its own workloads; other programs have no forms. The program reports
that a form serves, as always. That it really has the named form is verified from the program's file: `form_proof`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from hakmem_lab.allocators import elf
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.allocators.tools import tools_check
from hakmem_lab.checkout import LIBRARY, Checkout
from hakmem_lab.errors import LabError

MARK = "hakmem+"
PRELOADED = "preloaded"
DYNAMIC, STATIC, LTO, INLINED = "dynamic", "static", "lto", "inlined"
FORMS = {
    DYNAMIC: "linked with libhakmem.so, -fno-plt",
    STATIC: "linked with libhakmem.a",
    LTO: "program and library optimised as one",
    INLINED: "the fast paths inlined into the caller, an experiment",
}
OWN_STATE = re.compile(r"%fs:(?!0x28\b)")
"""An access to a thread-local variable: 0x28 is the stack protector's."""


def form_peer(checkout: Checkout, form: str, version: str) -> Peer:
    if form not in FORMS:
        raise LabError(f"'{MARK}{form}': there is no such form; there are: {', '.join(FORMS)}")
    folder = checkout.build / "bench" / "linked" / form
    if not (folder / "random_mixed").is_file():
        raise LabError(f"{checkout.shown(folder)} is not there: run ./hakmem builds, which builds it first")
    library = folder / checkout.library.readlink().name if form == DYNAMIC else None
    return Peer(
        name=f"{MARK}{form}",
        version=version,
        library=library,
        identity=elf.build_id(library or folder / "random_mixed"),
        origin="this checkout",
        flags=FORMS[form],
        programs=folder,
    )


# ---- what a program's file says -----------------------------------------------------------------------------


@dataclass(frozen=True)
class FormProof:
    """That a program was built as its form says."""

    form: str
    program: str
    needs_library: bool
    """Linked with libhakmem.so, by the dynamic linker."""
    defines_malloc: bool
    by_plt: bool
    """malloc is called by a jump."""
    inlined: bool
    """Code of the workload accesses the allocator's thread-local state itself."""

    @property
    def complaint(self) -> str:
        """Empty if it has the form that it is named after."""
        expected = {
            PRELOADED: (False, False, True),
            DYNAMIC: (True, False, False),
            STATIC: (False, True, False),
            LTO: (False, True, False),
            INLINED: (False, True, False),
        }[self.form]
        if (self.needs_library, self.defines_malloc, self.by_plt) != expected:
            return f"{self.program}, {self.form}: it is linked in another way"
        if self.form != LTO and self.inlined is not (self.form == INLINED):
            return f"{self.program}, {self.form}: the fast path is {'' if self.inlined else 'not '}in its own code"
        return ""

    @property
    def said(self) -> str:
        parts = ["needs libhakmem.so" if self.needs_library else "needs no libhakmem.so"]
        parts.append("defines malloc" if self.defines_malloc else "asks for malloc")
        if not self.defines_malloc:
            parts.append(
                "calls it through the PLT" if self.by_plt else "calls it through the table of addresses"
            )
        parts.append("fast path in the workload's code" if self.inlined else "fast path called")
        return ", ".join(parts)


def form_proof(form: str, program: Path, plain: Path) -> FormProof:
    """PLAIN is the preloaded workload: it tells which functions belong to the workload."""
    with program.open("rb") as file:
        image = ELFFile(file)
        needs = [tag.needed for tag in _dynamic(image).iter_tags("DT_NEEDED")]
        symbols = image.get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        mallocs = symbols.get_symbol_by_name("malloc") or []
        defined = any(symbol["st_shndx"] != "SHN_UNDEF" for symbol in mallocs)
        by_plt = "malloc" in _plt_names(image, symbols)
    return FormProof(
        form=form,
        program=program.name,
        needs_library=any(name.startswith(f"{LIBRARY}.") for name in needs),
        defines_malloc=defined,
        by_plt=by_plt,
        inlined=_reaches_state(program, _own_functions(plain)),
    )


def _dynamic(image: ELFFile) -> DynamicSection:
    section = image.get_section_by_name(".dynamic")
    if not isinstance(section, DynamicSection):
        raise LabError("a workload that is not linked dynamically")
    return section


def _plt_names(image: ELFFile, symbols: SymbolTableSection) -> set[str]:
    section = image.get_section_by_name(".rela.plt")
    if not isinstance(section, RelocationSection):
        return set()
    return {symbols.get_symbol(one["r_info_sym"]).name for one in section.iter_relocations()}


def _own_functions(plain: Path) -> set[str]:
    """Functions of the workload's source, that is, all except those that programs share."""
    with plain.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        if not isinstance(table, SymbolTableSection):
            raise LabError(f"{plain.name} was stripped: nothing is known of its functions")
        found: set[str] = set()
        source = ""
        for symbol in table.iter_symbols():
            if symbol["st_info"]["type"] == "STT_FILE":
                source = symbol.name
            elif symbol["st_info"]["type"] == "STT_FUNC" and source == f"{plain.name}.c":
                found.add(symbol.name.partition(".")[0])
    return {*found, "main"}


def _reaches_state(program: Path, functions: set[str]) -> bool:
    """From its disassembly, for x86-64, where thread-local variables are accessed through %fs."""
    tools_check("looking into a program", ["objdump"])
    done = subprocess.run(
        [shutil.which("objdump") or "objdump", "-d", "--no-show-raw-insn", str(program)],
        capture_output=True,
        text=True,
        check=True,
    )
    inside = False
    for line in done.stdout.splitlines():
        head = re.fullmatch(r"[0-9a-f]+ <([^>]+)>:", line)
        if head:
            inside = head[1].partition(".")[0] in functions
        elif inside and OWN_STATE.search(line):
            return True
    return False


def forms_prove(checkout: Checkout, programs: Sequence[str]) -> list[FormProof]:
    """Of every form and program; an error if one does not have the form that it is named after."""
    proofs = []
    for program in programs:
        plain = checkout.program(program)
        proofs.append(form_proof(PRELOADED, plain, plain))
        for form in FORMS:
            path = checkout.build / "bench" / "linked" / form / program
            if not path.is_file():
                raise LabError(f"{checkout.shown(path)} is not there: this workload has no linked forms")
            proofs.append(form_proof(form, path, plain))
    complaints = [one.complaint for one in proofs if one.complaint]
    if complaints:
        raise LabError(f"a form is not what it is called: {'; '.join(complaints)}")
    return proofs
