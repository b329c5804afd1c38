"""What the shared object asks of a process and offers to it."""

import re
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from toolbox import ROOT, Build, cannot_run, soname

EXPORTED = ROOT / "tests/system/exported_symbols.txt"
TLS_BYTES = 64
NOTHROW_NEW = re.compile(r"_Zn.*RKSt9nothrow_t")
LIBC = re.compile(r"libc\.so(\.6)?|ld-linux[a-z0-9_-]*\.so\.[0-9]")


def dynamic_section(elf: ELFFile) -> DynamicSection:
    section = elf.get_section_by_name(".dynamic")
    assert isinstance(section, DynamicSection)
    return section


def exported_symbols(library: Path) -> set[str]:
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(section, SymbolTableSection)
        return {
            symbol.name
            for symbol in section.iter_symbols()
            if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"
        }


def reviewed_symbols() -> set[str]:
    return {line for line in EXPORTED.read_text().splitlines() if line and line[0] != "#"}


def test_depends_on_libc_alone(build: Build) -> None:
    with build.library.open("rb") as file:
        needed = [tag.needed for tag in dynamic_section(ELFFile(file)).iter_tags("DT_NEEDED")]
    assert needed
    assert all(LIBC.fullmatch(name) for name in needed), needed


def test_soname(build: Build) -> None:
    with build.library.open("rb") as file:
        names = [tag.soname for tag in dynamic_section(ELFFile(file)).iter_tags("DT_SONAME")]
    assert names == [soname()]


def test_thread_local_storage_leaves_room_for_dlopen(build: Build) -> None:
    with build.library.open("rb") as file:
        sizes = [segment["p_memsz"] for segment in ELFFile(file).iter_segments("PT_TLS")]
    assert sum(sizes) <= TLS_BYTES


def test_no_text_relocations_and_nothing_lazy(build: Build) -> None:
    with build.library.open("rb") as file:
        elf = ELFFile(file)
        tags = {tag.entry.d_tag: tag.entry.d_val for tag in dynamic_section(elf).iter_tags()}
        writable_code = [segment for segment in elf.iter_segments("PT_LOAD") if segment["p_flags"] & 3 == 3]
        relro = list(elf.iter_segments("PT_GNU_RELRO"))
    assert "DT_TEXTREL" not in tags
    assert not tags["DT_FLAGS"] & 0x4, "DF_TEXTREL"
    assert tags["DT_FLAGS_1"] & 0x8, "DF_1_NODELETE: threads and exit handlers point into it"
    assert tags["DT_FLAGS_1"] & 0x1, "DF_1_NOW"
    assert not writable_code
    assert relro


def test_stack_is_not_executable(build: Build) -> None:
    with build.library.open("rb") as file:
        stacks = [segment["p_flags"] for segment in ELFFile(file).iter_segments("PT_GNU_STACK")]
    assert stacks
    assert not stacks[0] & 1


def test_exports_exactly_the_reviewed_names(build: Build, update: bool) -> None:
    exported = exported_symbols(build.library)
    if update:
        head = [line for line in EXPORTED.read_text().splitlines() if line.startswith("#")]
        EXPORTED.write_text("\n".join([*head, *sorted(exported)]) + "\n")
    assert exported == reviewed_symbols()


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["asan", "tsan"])
def test_sanitizer_builds_export_own_names_only(preset: str) -> None:
    library = ROOT / f"build-{preset}" / "libhakmem.so"
    if not library.exists():
        cannot_run(f"needs ./hakmem build {preset}")
    expected = {name for name in reviewed_symbols() if name.startswith("hak_")}
    assert exported_symbols(library) == expected


def test_private_names_stay_private_in_a_static_link(build: Build) -> None:
    """A program may have a function of its own by the name of one of ours. It has the nothrow forms of new of its C++ library."""
    with (build.directory / "hakmem.o").open("rb") as file:
        section = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(section, SymbolTableSection)
        names = {
            symbol.name
            for symbol in section.iter_symbols()
            if symbol["st_info"]["bind"] != "STB_LOCAL" and symbol["st_shndx"] != "SHN_UNDEF"
        }
    assert names == {name for name in reviewed_symbols() if not NOTHROW_NEW.fullmatch(name)}
