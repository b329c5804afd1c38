"""What most processes never need has a mapping of its own (cmake/rare.ld), and nothing of it is touched by one that only starts,
allocates and ends: the kernel brings sixteen pages in for each that is. What each process writes lies side by side."""

import platform
import re
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from toolbox import Build, cannot_run, environment, run, tool

ACCESS = re.compile(r"^ ?[ILSM] +([0-9a-f]+),", re.MULTILINE)


def rare_ranges(library: Path) -> list[range]:
    with library.open("rb") as file:
        elf = ELFFile(file)
        sections = [elf.get_section_by_name(name) for name in (".text.rare", ".rodata.rare")]
        return [range(s["sh_addr"], s["sh_addr"] + s["sh_size"]) for s in sections if s is not None]


def test_what_is_rare_is_mapped_apart(build: Build) -> None:
    """With an unused page between: else the linker makes one segment of both, the kernel one mapping."""
    ranges = rare_ranges(build.library)
    if not ranges:
        cannot_run("this linker does not lay out what is rare")
    with build.library.open("rb") as file:
        elf = ELFFile(file)
        text = elf.get_section_by_name(".text")["sh_addr"]
        segments = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
        ends = [s["p_vaddr"] + s["p_memsz"] for s in segments]
        (often,) = (end for s, end in zip(segments, ends, strict=True) if s["p_vaddr"] <= text < end)
    (rare,) = (s for s, end in zip(segments, ends, strict=True) if s["p_vaddr"] <= ranges[0].start < end)
    assert rare["p_vaddr"] - often >= rare["p_align"]


def test_what_each_process_writes_lies_on_two_pages(build: Build) -> None:
    """And not between large arrays, of which each would bring a page or two in."""
    with build.library.open("rb") as file:
        elf = ELFFile(file)
        data, small, large = (elf.get_section_by_name(name) for name in (".data", ".bss", ".bss.large"))
        if large is None:
            cannot_run("this linker does not lay out what is large")
        assert small["sh_addr"] + small["sh_size"] - data["sh_addr"] <= 8192
        assert 0 <= large["sh_addr"] - (small["sh_addr"] + small["sh_size"]) < 256


def test_malloc_and_free_lie_before_all_other_code(build: Build) -> None:
    """Side by side, at a place that what changes elsewhere does not move (decision 0049)."""
    with build.library.open("rb") as file:
        elf = ELFFile(file)
        places = {
            s.name: s["st_value"] for s in elf.get_section_by_name(".dynsym").iter_symbols() if s["st_value"]
        }
        start = elf.get_section_by_name(".text")["sh_addr"]
    assert places["malloc"] % 256 == places["free"] % 64 == 0
    assert 0 < places["free"] - places["malloc"] <= 256
    assert [name for name, place in places.items() if start <= place < places["malloc"]] == []


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names of cold functions are a compiler's own")
def test_nothing_that_each_process_needs_lies_among_what_is_rare(build: Build, tmp_path: Path) -> None:
    ranges = rare_ranges(build.library)
    if not ranges:
        cannot_run("this linker does not lay out what is rare")
    assert sum(len(addresses) for addresses in ranges) > 32 << 10
    library, log = build.library.resolve(), tmp_path / "accesses"
    # It prints where the library lies, too.
    ran = run(
        *(tool("valgrind"), "--tool=lackey", "--trace-mem=yes", f"--log-file={log}"),
        *("/bin/cat", "/proc/self/maps"),
        env=environment(LD_PRELOAD=str(library)),
    )
    assert ran.returncode == 0, ran.stderr
    base = next(int(line.split("-")[0], 16) for line in ran.stdout.splitlines() if library.name in line)
    touched = {int(address, 16) - base for address in ACCESS.findall(log.read_text(errors="replace"))}
    assert any(0 <= address < ranges[0].start for address in touched)
    rare = sorted(hex(address) for address in touched if any(address in addresses for addresses in ranges))
    assert not rare, f"addresses in {library.name}: {rare[:16]}"
