"""libhakmem beside libc's malloc, called from Python: its own names, errno, threads that take turns, calls that fail.

The process is started with libfail_calls.so preloaded and FAIL_ONLY=hakmem; see state_machine.py."""

import ctypes
import errno
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL, POINTER, Structure, byref, c_bool, c_int, c_size_t, c_ulong, c_void_p
from pathlib import Path
from typing import TypeVar

UNTOUCHED = 4711  # what errno is before each call
PTRDIFF_MAX = 2**63 - 1
SIZE_MAX = 2**64 - 1

T = TypeVar("T")

SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "malloc": (c_void_p, [c_size_t]),
    "calloc": (c_void_p, [c_size_t, c_size_t]),
    "realloc": (c_void_p, [c_void_p, c_size_t]),
    "reallocarray": (c_void_p, [c_void_p, c_size_t, c_size_t]),
    "aligned_alloc": (c_void_p, [c_size_t, c_size_t]),
    "memalign": (c_void_p, [c_size_t, c_size_t]),
    "posix_memalign": (c_int, [POINTER(c_void_p), c_size_t, c_size_t]),
    "valloc": (c_void_p, [c_size_t]),
    "pvalloc": (c_void_p, [c_size_t]),
    "free": (None, [c_void_p]),
    "free_sized": (None, [c_void_p, c_size_t]),
    "free_aligned_sized": (None, [c_void_p, c_size_t, c_size_t]),
    "usable_size": (c_size_t, [c_void_p]),
    "good_size": (c_size_t, [c_size_t]),
    "try_expand": (c_size_t, [c_void_p, c_size_t]),
    "memalignment": (c_size_t, [c_void_p]),
    "collect": (c_size_t, []),
    "malloc_trim": (c_int, [c_size_t]),
}


class Mallinfo2(Structure):
    """glibc's, of which hakmem fills in what it has."""

    NAMES = (
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
    _fields_ = tuple((name, c_size_t) for name in NAMES)


def failing_kinds() -> int:
    """How many kinds of calls can be made to fail: the last is any of those before it."""
    names = (ctypes.c_char_p * 8).in_dll(CDLL(None), "fail_names")
    return names[:].index(b"any") + 1


class Library:
    """The functions of hakmem.h; each call says what errno was after it."""

    def __init__(self, path: Path) -> None:
        self.hakmem = CDLL(str(path), use_errno=True)
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(self.hakmem, f"hak_{name}")
            function.restype, function.argtypes = result, arguments
        self.hakmem.mallinfo2.restype = Mallinfo2
        self.faults = CDLL(None)
        self.faults.fail_arm.argtypes = [c_int, c_ulong, c_bool, c_int]

    def call(self, name: str, *arguments: object) -> tuple[int, int]:
        """What the function returned, a NULL as 0, and errno."""
        ctypes.set_errno(UNTOUCHED)
        result = getattr(self.hakmem, f"hak_{name}")(*arguments)
        return result or 0, ctypes.get_errno()

    def posix_memalign(self, alignment: int, size: int) -> tuple[int, int, int]:
        """The result that it stored (1 if none), what it returned, and errno."""
        stored = c_void_p(1)
        returned, error = self.call("posix_memalign", byref(stored), alignment, size)
        return stored.value or 0, returned, error

    def in_use_bytes(self) -> int:
        told = self.hakmem.mallinfo2()
        return int(told.uordblks + told.hblkhd)

    def fail(self, kind: int, at: int, ever: bool) -> None:
        self.faults.fail_arm(kind, at, ever, 0)

    def lift_failures(self) -> None:
        self.faults.fail_disarm()


class Lanes:
    """Threads that run one function at a time, while the caller waits. Lane 0 is the caller."""

    def __init__(self, count: int) -> None:
        self.pools: list[ThreadPoolExecutor | None] = [None] * count

    def run(self, lane: int, function: Callable[[], T]) -> T:
        if lane == 0:
            return function()
        pool = self.pools[lane] or ThreadPoolExecutor(1)
        self.pools[lane] = pool
        return pool.submit(function).result()

    def end(self, lane: int) -> None:
        """Ends the thread of a lane, with all that the end of a thread brings."""
        pool = self.pools[lane]
        if pool is None:
            return
        self.pools[lane] = None
        task = Path("/proc/self/task") / str(pool.submit(threading.get_native_id).result())
        pool.shutdown()
        while task.exists():  # shutdown does not wait for the destructors of the thread's keys
            time.sleep(0.0001)


def error_name(number: int) -> str:
    return errno.errorcode.get(number, str(number))
