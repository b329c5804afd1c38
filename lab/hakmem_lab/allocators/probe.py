"""Run under a peer: shows that malloc, free and operator new are the peer's, and that its own functions answer.

A separate script, started with the peer preloaded: `probe.py FAMILY VERSION` prints one JSON line. It allocates
from several threads, frees what another thread allocated, and forks. In each of these the peer's own functions are
asked about its blocks.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

BYTES = 100_000
"""Larger than what caches keep per thread, so counters move immediately. Smaller than blocks with a mapping of
their own."""
THREADS = 4

process = ctypes.CDLL(None)


class UnprovedError(Exception):
    """One line: which function did not answer as the peer's would."""


class Symbol(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def function(name: str, result: type | None, *arguments: type) -> Callable[..., int]:
    try:
        found = getattr(process, name)
    except AttributeError:
        raise UnprovedError(f"there is no {name} in the process") from None
    found.restype, found.argtypes = result, arguments
    return found


def owner(name: str) -> str | None:
    """The file that NAME comes from, in the form that bench/ reports. In an interpreter that is not
    position-independent, such as Debian's, a function's address may be the interpreter's own jump to it. Then the
    address in the first library that has the function counts, in the loader's order."""
    first = file_of(process, name)
    if first is None or not Path(first).samefile(sys.executable):
        return first
    for library in (*os.environ.get("LD_PRELOAD", "").split(), "libc.so.6"):
        found = file_of(ctypes.CDLL(library), name)
        if found is not None:
            return found
    return first


def file_of(library: ctypes.CDLL, name: str) -> str | None:
    try:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p)
    except AttributeError:
        return None
    symbol = Symbol()
    found = process.dladdr(address, ctypes.byref(symbol))
    return os.fsdecode(symbol.file) if found and symbol.file else None


def demand(condition: bool, what: str) -> str:
    if not condition:
        raise UnprovedError(f"not so: {what}")
    return what


pointer = ctypes.c_void_p
malloc = function("malloc", pointer, ctypes.c_size_t)
free = function("free", None, pointer)


# ---- what each peer says of a block; the checks of a family are run on blocks of every origin ----------


def mimalloc(block: int, version: str) -> str:
    digits = function("mi_version", ctypes.c_int)()
    numbers = f"{digits // 10000}.{digits // 100 % 100}.{digits % 100}"
    demand(numbers == version, f"mi_version() is {numbers}")
    holds = function("mi_is_in_heap_region", ctypes.c_bool, pointer)
    return demand(bool(holds(block)), f"mi_version() is {numbers}, mi_is_in_heap_region(block)")


def jemalloc(_block: int, version: str) -> str:
    mallctl = function("mallctl", ctypes.c_int, ctypes.c_char_p, pointer, pointer, pointer, ctypes.c_size_t)

    def read(name: str, value: ctypes._SimpleCData) -> ctypes._SimpleCData:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        demand(
            mallctl(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0) == 0, f"mallctl {name}"
        )
        return value

    told = (read("version", ctypes.c_char_p()).value or b"").decode()
    demand(told.startswith(f"{version}-"), f"mallctl version is {told}")
    before = read("thread.allocated", ctypes.c_uint64()).value
    free(malloc(BYTES))
    grown = read("thread.allocated", ctypes.c_uint64()).value - before
    return demand(grown >= BYTES, f"mallctl version is {version}, thread.allocated grows")


def snmalloc(block: int, _version: str) -> str:
    end = function("__malloc_end_pointer", pointer, pointer)(block) or 0
    good = function("malloc_good_size", ctypes.c_size_t, ctypes.c_size_t)(BYTES)
    return demand(BYTES <= end - block == good, "__malloc_end_pointer(block) is where its class ends")


def snmalloc_checks(block: int, version: str) -> str:
    demand(owner("memcpy") == owner("malloc"), "memcpy is the checked one")
    return f"{snmalloc(block, version)}, memcpy is its own"


def tcmalloc(block: int, _version: str) -> str:
    owned = function("MallocExtension_Internal_GetOwnership", ctypes.c_int, pointer)(block)
    return demand(owned == 1, "MallocExtension::GetOwnership(block) is kOwned")


def tcmalloc_percpu(block: int, version: str) -> str:
    active = function("MallocExtension_Internal_GetPerCpuCachesActive", ctypes.c_bool)()
    return f"{tcmalloc(block, version)}, {demand(bool(active), 'PerCpuCachesActive()')}"


def gperftools(block: int, version: str) -> str:
    told = ctypes.cast(
        function("tc_version", pointer, *3 * (pointer,))(None, None, None), ctypes.c_char_p
    ).value
    name = (told or b"").decode()
    demand(name == f"gperftools {version}", f"tc_version() is {name}")
    owned = function("MallocExtension_GetOwnership", ctypes.c_int, pointer)(block)
    return demand(owned == 1, f"tc_version() is {name}, MallocExtension_GetOwnership(block) is kOwned")


def rpmalloc(block: int, _version: str) -> str:
    demand(
        function("rpmalloc_is_thread_initialized", ctypes.c_int)() == 1, "rpmalloc_is_thread_initialized()"
    )
    usable = function("rpmalloc_usable_size", ctypes.c_size_t, pointer)(block)
    return demand(
        BYTES <= usable <= 2 * BYTES, "rpmalloc_is_thread_initialized(), rpmalloc_usable_size(block)"
    )


def scudo(_block: int, _version: str) -> str:
    function("__scudo_print_stats", None)
    demand(owner("__scudo_print_stats") == owner("mallinfo2"), "mallinfo2 is Scudo's")
    return f"__scudo_print_stats is there, {in_use_grows()}"


class Mallinfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def in_use_grows() -> str:
    mallinfo2 = process.mallinfo2
    mallinfo2.restype = Mallinfo2

    def in_use() -> int:
        told = mallinfo2()
        return int(told.uordblks + told.hblkhd)

    before = in_use()
    block = malloc(BYTES)
    grown = in_use() - before
    free(block)
    # The interpreter frees its own small blocks meanwhile.
    return demand(grown > BYTES // 2, "mallinfo2().uordblks + hblkhd grows")


def glibc(_block: int, version: str) -> str:
    told = ctypes.cast(function("gnu_get_libc_version", pointer)(), ctypes.c_char_p).value
    return f"{demand((told or b'').decode() == version, f'gnu_get_libc_version() is {version}')}, {in_use_grows()}"


def hakmem(block: int, version: str) -> str:
    told = ctypes.cast(function("hak_version", pointer)(), ctypes.c_char_p).value
    demand((told or b"").decode() == version, f"hak_version() is {version}")
    usable = function("hak_usable_size", ctypes.c_size_t, pointer)(block)
    good = function("hak_good_size", ctypes.c_size_t, ctypes.c_size_t)(BYTES)
    return demand(
        usable >= good, f"hak_version() is {version}, hak_usable_size(block) is hak_good_size or more"
    )


FAMILIES: dict[str, Callable[[int, str], str]] = {
    "glibc": glibc,
    "gperftools": gperftools,
    "hakmem": hakmem,
    "jemalloc": jemalloc,
    "mimalloc": mimalloc,
    "rpmalloc": rpmalloc,
    "scudo": scudo,
    "snmalloc": snmalloc,
    "snmalloc-checks": snmalloc_checks,
    "tcmalloc": tcmalloc,
    "tcmalloc-percpu": tcmalloc_percpu,
}


# ---- blocks from everywhere ---------------------------------------------------------------------------


def blocks_try(own: Callable[[int], str]) -> str:
    """A block of malloc and one of operator new; what the peer reports about them."""
    ctypes.CDLL("libstdc++.so.6", ctypes.RTLD_GLOBAL)
    block, object_ = malloc(BYTES), function("_Znwm", pointer, ctypes.c_size_t)(BYTES)
    said = own(block)
    demand(own(object_) == said, "operator new serves from the same heap")
    free(block)
    function("_ZdlPv", None, pointer)(object_)
    return said


def threads_try(own: Callable[[int], str]) -> None:
    """Frees what each thread allocated. One after the other, because counters are the whole process's."""
    made: list[int] = []
    failures: list[Exception] = []

    def work() -> None:
        try:
            blocks_try(own)
            made.append(malloc(BYTES))
        except Exception as error:  # told by the thread that waits
            failures.append(error)

    for _ in range(THREADS):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    for block in made:
        free(block)
    if failures:
        raise UnprovedError(f"in a thread: {failures[0]}")


def fork_try(own: Callable[[int], str]) -> None:
    """A child frees its parent's block and allocates its own."""
    block = malloc(BYTES)
    child = os.fork()
    if child == 0:
        try:
            free(block)
            blocks_try(own)
        except UnprovedError:
            os._exit(1)
        os._exit(0)
    free(block)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        raise UnprovedError(f"a forked child ended with {status}")


def main(family: str, version: str) -> int:
    def own(block: int) -> str:
        return FAMILIES[family](block, version)

    try:
        said = blocks_try(own)
        threads_try(own)
        fork_try(own)
    except UnprovedError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({"own": said, "malloc_from": owner("malloc"), "free_from": owner("free")}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
