"""One binary for kernels with pages of 4, 16 and 64 KiB (docs/compat.md, item 6). Where the kernel has none of its own,
tests/faults/other_kernel.c plays it: it says the size, and refuses what such a kernel refuses."""

import json
import re
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from toolbox import ROOT, Build, cannot_run, compile_c, environment, run

LARGEST_PAGE_BYTES = 65536
# Without those that measure resident memory: the kernel counts it in pages of another size.
PROGRAMS = [
    "preload/api/malloc_test",
    "preload/api/calloc_test",
    "preload/api/realloc_test",
    "preload/api/aligned_test",
    "preload/api/usable_size_test",
    "preload/api/errno_test",
    "preload/libc_users",
    "preload/early_start",
    "preload/late_end",
    "compat/give_and_take_back",
]
UNALIGNED = """
#include <errno.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    size_t page = getauxval(AT_PAGESZ);
    char *start = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if ((size_t)start % page != 0 || sysconf(_SC_PAGESIZE) != (long)page || getpagesize() != (int)page) return 1;
    for (char *at = start; at < start + 3 * page; at += 512) *at = 1;
    if (madvise(start + 4096, 4096, MADV_DONTNEED) != -1 || errno != EINVAL) return 2;
    if (mprotect(start + 4096, 4096, PROT_NONE) != -1 || munmap(start + 4096, 4096) != -1) return 3;
    if (madvise(start + page, 1, MADV_DONTNEED) != 0) return 4;
    if (start[page - 512] != 1 || start[page] != 0 || start[2 * page - 512] != 0 || start[2 * page] != 1) return 5;
    printf("%zu\\n", page);
    return 0;
}
"""

# 128 MiB, all of it touched: where huge pages are worth most.
DENSE = """
#include <stdlib.h>
#include <string.h>
int main(void) {
    for (int i = 0; i < 2048; i++) {
        char *block = malloc(64000);
        if (block == NULL) return 1;
        memset(block, 1, 64000);
    }
    return 0;
}
"""


def on_pages(build: Build, page_bytes: int, *, alone: bool = False) -> dict[str, str]:
    shim = build.directory / "tests/faults/libother_kernel.so"
    return environment(
        LD_PRELOAD=str(shim) if alone else f"{shim} {build.library}",
        OTHER_PAGE_BYTES=str(page_bytes),
        OTHER_STRICT="1",
        OTHER_REPORT="1",
        EXPECT_HAKMEM=None if alone else "1",
    )


@pytest.mark.parametrize("page_bytes", [16384, 65536])
def test_the_other_kernel_is_one(build: Build, page_bytes: int, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "unaligned", UNALIGNED)
    result = run(program, env=on_pages(build, page_bytes, alone=True))
    assert (result.returncode, result.stdout) == (0, f"{page_bytes}\n")


@pytest.mark.parametrize(
    ("page_bytes", "program"),
    [*((65536, program) for program in PROGRAMS), *((16384, program) for program in PROGRAMS[-2:])],
)
def test_larger_pages(build: Build, page_bytes: int, program: str) -> None:
    result = run(build.directory / "tests" / program, env=on_pages(build, page_bytes))
    assert result.returncode == 0, result.stdout + result.stderr
    calls = re.findall(r"other_kernel: (\d+) calls from libhakmem", result.stderr)
    assert calls, result.stderr
    assert int(calls[-1]) > 0


@pytest.mark.parametrize(("page_bytes", "asked"), [(4096, True), (16384, False), (65536, False)])
def test_huge_pages_are_asked_for_where_they_are_of_2_mib(
    build: Build, page_bytes: int, asked: bool, tmp_path: Path
) -> None:
    """Elsewhere they are of 32 and 512 MiB."""
    report = tmp_path / "report.json"
    options = {"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": str(report)}
    result = run(compile_c(tmp_path / "dense", DENSE), env=on_pages(build, page_bytes) | options)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (json.loads(report.read_text())["spans"]["huge_pages"] > 0) == asked


@pytest.mark.slow
def test_arm_segments_fit_the_largest_page() -> None:
    """x86-64 has pages of 4 KiB alone; a library for aarch64 must be loadable on all three."""
    library = ROOT / "build-aarch64/libhakmem.so"
    if not library.exists():
        cannot_run("needs ./hakmem build aarch64")
    with library.open("rb") as file:
        alignments = [segment["p_align"] for segment in ELFFile(file).iter_segments("PT_LOAD")]
    assert alignments
    assert all(alignment % LARGEST_PAGE_BYTES == 0 for alignment in alignments)
