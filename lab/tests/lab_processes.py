"""Processes that tests start on the built library, and what they do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hakmem_lab.checkout import Checkout
from hakmem_lab.measure.tree import stat_fields
from hakmem_lab.sight.account import Account, account_read
from hakmem_lab.sight.books import Books
from hakmem_lab.sight.books_reader import books_read
from hakmem_lab.sight.launch import environment_on
from hakmem_lab.sight.memory import memory_open
from hakmem_lab.sight.page import pages_find
from hakmem_lab.sight.process import process_open
from toolbox import compile_c

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "lab"
MIB = 1 << 20
NOBODY = 65534

HEAD = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Says that it is ready, and waits to be told to end. */
static void wait_for_end(void) { puts("ready"); fflush(stdout); while (getchar() != EOF) continue; }
static void *filled(size_t bytes) { void *block = malloc(bytes); memset(block, 1, bytes); return block; }
"""
LEAK = (
    HEAD
    + """
int main(void) {
    puts("ready"), fflush(stdout);
    for (int i = 0;; i++) { filled(200); if (i % 50 == 0) usleep(1000); }
}
"""
)
# 64 MiB at the start, and at each SIGUSR1.
LARGE_LEAK = (
    "#include <signal.h>\n"
    + HEAD
    + """
int main(void) {
    sigset_t more;
    sigemptyset(&more), sigaddset(&more, SIGUSR1), sigprocmask(SIG_BLOCK, &more, NULL);
    puts("ready"), fflush(stdout);
    for (int number;; sigwait(&more, &number)) for (int i = 0; i < 8; i++) filled(8 << 20);
}
"""
)
# 40 MiB of blocks of 256 B, of which one of each 4 KiB stays; and 16 MiB in a large block.
FRAGMENTED = (
    HEAD
    + """
enum { BLOCKS = 40 << 12, KEPT = 16 };
static void *blocks[BLOCKS];
int main(void) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = filled(256);
    for (int i = 0; i < BLOCKS; i++) if (i % KEPT != 0) free(blocks[i]);
    void *large = filled(16 << 20);
    wait_for_end();
    free(large);
}
"""
)
# 64 MiB of blocks of 8 KiB, all freed.
FREED = (
    HEAD
    + """
enum { BLOCKS = 8192 };
static void *blocks[BLOCKS];
int main(void) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = filled(8192);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    wait_for_end();
}
"""
)
# Medium blocks: four of 100 KiB that come and go, one of 200 KiB that did once, and eight of 700 KiB that stay.
MEDIUM = (
    HEAD
    + """
enum { BLOCKS = 4, ROUNDS = 20, KEPT = 8 };
int main(void) {
    void *blocks[BLOCKS], *kept[KEPT];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) blocks[i] = filled(100 << 10);
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
    free(filled(200 << 10));
    for (int i = 0; i < KEPT; i++) kept[i] = filled(700 << 10);
    wait_for_end();
    for (int i = 0; i < KEPT; i++) free(kept[i]);
}
"""
)
# A worker that frees 16 MiB of blocks of 8 KiB, keeps 2 MiB of them at hand, and ends.
WORKER_THAT_ENDED = (
    HEAD
    + """
enum { BLOCKS = 2048 };
static void *work(void *unused) {
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = filled(8 << 10);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    wait_for_end();
}
"""
)
THREADS = (
    HEAD
    + """
enum { THREADS = 200 };
static pthread_barrier_t all_there;
static void *work(void *unused) {
    void *blocks[64];
    for (int i = 0; i < 64; i++) blocks[i] = filled(512);
    for (int i = 0; i < 64; i++) free(blocks[i]);
    pthread_barrier_wait(&all_there);
    for (;;) pause();
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_barrier_init(&all_there, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread, NULL, work, NULL);
    pthread_barrier_wait(&all_there);
    wait_for_end();
}
"""
)
# Ready once it has as much as it ever has.
BUSY = (
    HEAD
    + """
int main(void) {
    static void *blocks[4096];
    unsigned seed = 1;
    for (unsigned long turn = 1;; turn++, seed = seed * 1103515245 + 12345) {
        void **slot = &blocks[seed >> 8 & 4095];
        free(*slot);
        *slot = filled(16 + (seed >> 4) % 20000);
        if (turn == 50000) puts("ready"), fflush(stdout);
    }
}
"""
)


def limits_until(begun: Path) -> Iterator[float]:
    """Seconds to try, until BEGUN is there: on a busy machine what is ended too soon has started nothing yet."""
    for seconds in (0.5, 5.0, 25.0):
        yield seconds
        if begun.exists():
            return


def wait_for_rest(pid: int) -> None:
    """Until it waits for something: what it says before is not the last that it does."""
    while process_open(pid).stat()[0] != "S":
        time.sleep(0.01)


def all_end(pids: Iterable[int]) -> bool:
    """None of them lives for long any more."""
    deadline = time.monotonic() + 20
    left = list(pids)
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if _is_alive(pid)]
        time.sleep(0.01)
    return not left


def _is_alive(pid: int) -> bool:
    try:
        return stat_fields(pid)[0] != "Z"
    except OSError:
        return False


@contextmanager
def running(command: list[str | Path], environment: dict[str, str]) -> Iterator[int]:
    """The number of a process that said that it is ready."""
    process = subprocess.Popen(
        [str(word) for word in command], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.terminate()  # a launcher passes it on, and leaves nothing behind
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@contextmanager
def on_hakmem(checkout: Checkout, folder: Path, source: str, **options: str) -> Iterator[int]:
    program = compile_c(folder / "program", source, "-pthread")
    variables = {f"HAKMEM_{name.upper()}": value for name, value in options.items()}
    with running([program], environment_on(checkout, **variables)) as pid:
        yield pid


def account_of(pid: int) -> Account:
    return account_read(process_open(pid))


def books_of(pid: int) -> Books:
    process = process_open(pid)
    with memory_open(process) as memory:
        (page,) = pages_find(memory, process.mappings())
        return books_read(page)
