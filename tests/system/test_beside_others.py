"""Beside other libraries in the same process. Beside another malloc, what is derived from another function is called by its name, as in
libc and the C++ library, so that no block reaches a malloc that did not allocate it. Libraries that wrap what hakmem calls are not called
where they cannot answer."""

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

LEAVES_ERRNO = """
#include <errno.h>
#include <stddef.h>
size_t malloc_usable_size(void *block) { errno = EDOM; return block != NULL; }
void free(void *block) { (void)block, errno = EDOM; }
"""

GIVES_AWAY = """
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
static long foreign[2];
int main(void) {
    void *volatile block = foreign;
    errno = 0;
    const size_t size = malloc_usable_size(block);
    const int after_size = errno;
    free(block);
    const int after_free = errno;
    printf("%zu %d %d\\n", size, after_size, after_free);
    return 0;
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


WRAPS_THE_CLOCK = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int is_ready;
__attribute__((constructor)) static void start(void) { is_ready = 1; }
int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!is_ready) abort();
    return (int)syscall(SYS_clock_gettime, clock, now);
}
"""

WRAPS_SYSTEM_CALLS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static int is_locked;
static void lock(void) { is_locked = 1; }
static void unlock(void) { is_locked = 0; }
long syscall(long number, ...) {
    if (is_locked) abort();
    long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    __builtin_return(__builtin_apply((void (*)(void))next, __builtin_apply_args(), 64));
}
int main(void) {
    int status;
    free(malloc(100));
    pthread_atfork(lock, unlock, unlock);
    const pid_t child = fork();
    if (child == 0) _exit(malloc(100) == NULL);
    return waitpid(child, &status, 0) != child || status != 0;
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


def test_a_library_that_wraps_the_clock(build: Build, tmp_path: Path) -> None:
    """It is initialised after hakmem, and before that has no clock, as libfaketime."""
    clock = compile_c(tmp_path / "libclock.so", WRAPS_THE_CLOCK, "-shared", "-fPIC")
    for order in (f"{build.library} {clock}", f"{clock} {build.library}"):
        result = run("bash", "-c", "/bin/true; echo done", env=environment(LD_PRELOAD=order))
        assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")


def test_a_library_that_wraps_system_calls(build: Build, tmp_path: Path) -> None:
    """Its lock is taken from its fork handler before a fork to the one after it, as of libuid_wrapper."""
    program = compile_c(tmp_path / "wraps", WRAPS_SYSTEM_CALLS, "-rdynamic", "-fno-builtin")
    result = run(program, env=environment(LD_PRELOAD=str(build.library)))
    assert (result.returncode, result.stderr) == (0, "")


def test_a_free_that_is_handed_on_leaves_errno(build: Build, tmp_path: Path) -> None:
    """Whatever the next malloc does: in glibc before 2.33, and in others, free may change it."""
    other = compile_c(tmp_path / "other.so", LEAVES_ERRNO, "-shared", "-fPIC")
    program = compile_c(tmp_path / "program", GIVES_AWAY, "-fno-builtin")
    env = environment(LD_PRELOAD=f"{build.library}:{other}", HAKMEM_FOREIGN_FREE="libc")
    result = run(program, env=env)
    assert (result.returncode, result.stdout, result.stderr) == (0, "1 0 0\n", "")
