"""Beside another malloc in the same process: what is derived from another function is called by its name, as in libc and the C++
library, so that no block reaches a malloc that did not allocate it."""

from pathlib import Path

import pytest
from toolbox import Build, compile_c, environment, run

OTHER = """
#include <stdlib.h>
#include <string.h>
static char pool[1 << 16];
static size_t used;
static void *take(size_t size) { void *block = pool + used; used += (size + 63) & ~63ul; return block; }
void *malloc(size_t size) { return take(size); }
void *calloc(size_t count, size_t size) { return take(count * size); }
void *realloc(void *block, size_t size) { return block == NULL ? take(size) : memcpy(take(size), block, size); }
void free(void *block) { if (block != NULL && ((char *)block < pool || (char *)block >= pool + sizeof pool)) abort(); }
void *_Znwm(size_t size) { return take(size); }
void *_Znam(size_t size) { return take(size); }
void *_ZnwmRKSt9nothrow_t(size_t size, const void *nothrow) { return (void)nothrow, take(size); }
void *_ZnamRKSt9nothrow_t(size_t size, const void *nothrow) { return (void)nothrow, take(size); }
void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t align, const void *nothrow) { return (void)align, (void)nothrow, take(size); }
void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t align, const void *nothrow) { return (void)align, (void)nothrow, take(size); }
void _ZdlPv(void *block) { free(block); }
void _ZdaPv(void *block) { free(block); }
"""

NEW_AND_DELETE = """
#include <new>
struct alignas(64) wide { char bytes[100]; };
template <typename T> static T *seen(T *block) { __asm__ volatile("" : "+r"(block) : : "memory"); return block; }
int main() {
    delete seen(new (std::nothrow) int(1));
    delete[] seen(new (std::nothrow) int[100]);
    delete seen(new (std::nothrow) wide());
    delete[] seen(new (std::nothrow) wide[3]);
    delete seen(new int(2));
}
"""

HANDLER_THAT_THROWS = """
#include <cstdint>
#include <new>
static volatile std::size_t impossible = PTRDIFF_MAX;
static void give_up() { throw std::bad_alloc(); }
int main() {
    if (new (std::nothrow) char[impossible] != nullptr) return 1;
    std::set_new_handler(give_up);
    return new (std::nothrow) char[impossible] != nullptr;
}
"""

OF_ITS_OWN = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
static char heap[1 << 16];
static size_t used;
void *malloc(size_t size) { void *block = heap + used; used += (size + 15) & ~15ul; return block; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *block, size_t size) { return block == NULL ? malloc(size) : memcpy(malloc(size), block, size); }
void free(void *block) { (void)block; }
int main(void) {
    char *block = reallocarray(malloc(10), 20, 2);
    return block < heap || block >= heap + sizeof heap;
}
"""


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_a_program_that_is_linked_with_another_malloc(build: Build, tmp_path: Path, compiler: str) -> None:
    """The preload comes first for every form of new, not only for those that throw."""
    other = compile_c(tmp_path / "libother.so", OTHER, "-shared", "-fPIC", "-fno-builtin")
    link = ["-Wl,--no-as-needed", str(other), f"-Wl,-rpath,{tmp_path}"]
    program = compile_c(tmp_path / "program", NEW_AND_DELETE, "-std=c++17", *link, compiler=compiler)
    result = run(program, env=environment(LD_PRELOAD=str(build.library)))
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("flags", [(), ("-static-libstdc++",)], ids=["shared", "static"])
def test_new_that_does_not_throw_throws_nothing(build: Build, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Also where the C++ library that catches for it is a part of the program, and hakmem's form was linked first."""
    program = compile_c(
        tmp_path / "program",
        HANDLER_THAT_THROWS,
        str(build.library),
        *flags,
        "-Wno-alloc-size-larger-than",
        compiler="g++",
    )
    result = run(program, env=environment(LD_LIBRARY_PATH=str(build.directory)))
    assert (result.returncode, result.stderr) == (0, "")


def test_a_program_with_some_functions_of_its_own(build: Build, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "own", OF_ITS_OWN, "-rdynamic", "-fno-builtin")
    result = run(program, env=environment(LD_PRELOAD=str(build.library)))
    assert (result.returncode, result.stderr) == (0, "")
