"""Processes on the built library, read from outside: what was planted in them must be found."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.reports.explain import hint_lines, note_lines
from hakmem_lab.sight.account import Account
from hakmem_lab.sight.advice import advice_find, use_lines
from hakmem_lab.sight.doctor import patient_findings, patient_read
from hakmem_lab.sight.findings import Level
from hakmem_lab.sight.growth import growths_find, readings_take
from hakmem_lab.sight.launch import environment_on
from hakmem_lab.sight.process import process_open
from hakmem_lab.sight.sizes import size_text
from hakmem_lab.sight.window import Why
from lab_processes import (
    BUSY,
    FRAGMENTED,
    FREED,
    HEAD,
    LARGE_LEAK,
    LEAK,
    MEDIUM,
    MIB,
    THREADS,
    WORKER_THAT_ENDED,
    account_of,
    on_hakmem,
    running,
    wait_for_rest,
)
from toolbox import compile_c


def test_a_fragmented_process(checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, FRAGMENTED, decay="never", huge_pages="never") as pid:
        account = account_of(pid)
    (copy,) = account.copies
    assert account.is_reconciled
    assert abs(account.difference) < 0.02 * account.rss
    assert 35 * MIB < copy.window.beside < 40 * MIB
    assert 2 * MIB < copy.live < 4 * MIB
    assert 15.9 * MIB < copy.window.large < 16.2 * MIB
    texts = [one.text for one in advice_find(account)]
    assert "fragmentation" in texts[0]
    assert re.search(r"10240 blocks of 256 B in use, 2\.5 MiB, keep 37\.[3-6] MiB beside them", texts[0])


def test_medium_blocks(checkout: Checkout, tmp_path: Path) -> None:
    """Of a slab with one block the books name the first page alone. In use they stand with the large ones."""
    with on_hakmem(checkout, tmp_path, MEDIUM, decay="never", huge_pages="never") as pid:
        account = account_of(pid)
    (copy,) = account.copies
    assert account.is_reconciled
    sizes = {one.block_bytes: one for one in copy.window.classes}
    cached, kept = sizes[128 << 10], sizes[768 << 10]
    # One that begins behind its page may touch a kernel page more.
    assert (cached.slabs, cached.live, kept.slabs, kept.cached) == (4, 0, 8, 0)
    assert 4 * (100 << 10) <= cached.cached <= 4 * (104 << 10)
    assert 8 * (700 << 10) <= kept.live <= 8 * (704 << 10)
    assert 256 << 10 not in sizes
    assert copy.window.large == kept.live
    assert copy.books.totals.large_blocks == 8
    assert copy.live < MIB
    assert copy.window.changing == 0


def test_blocks_that_a_thread_cached_and_left(checkout: Checkout, tmp_path: Path) -> None:
    """They wait for the next thread; the program has none of them."""
    options = {"decay": "never", "huge_pages": "never", "bin_depth": "2048"}
    with on_hakmem(checkout, tmp_path, WORKER_THAT_ENDED, **options) as pid:
        account = account_of(pid)
    (copy,) = account.copies
    assert account.is_reconciled
    assert sum(heap.cached_bytes for heap in copy.books.heaps if not heap.live) > 1.9 * MIB
    assert copy.window.cached > 1.9 * MIB
    assert copy.live < MIB // 4
    cached = r"2\.\d MiB are cached by its one thread, or left by threads that ended \((1\.9|2\.0) MiB\): "
    assert any(re.match(cached, one.text) for one in advice_find(account))


@pytest.mark.parametrize(
    ("options", "now"),
    [
        ({}, "(now 16MiB)"),
        ({"objective": "speed"}, "(now 32MiB)"),
        ({"objective": "speed", "thread_cache": "3MiB"}, "(now 3MiB)"),
    ],
)
def test_the_bound_of_a_cache_is_the_one_in_force(
    checkout: Checkout, tmp_path: Path, options: dict[str, str], now: str
) -> None:
    cached = f"""{HEAD}
enum {{ BLOCKS = 200 }};
static void *blocks[BLOCKS];
int main(void) {{
    for (int i = 0; i < BLOCKS; i++) blocks[i] = filled(8192);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    wait_for_end();
}}
"""
    with on_hakmem(checkout, tmp_path, cached, decay="never", bin_depth="2048", **options) as pid:
        texts = [one.text for one in advice_find(account_of(pid))]
    assert any(f"thread_cache:256KiB {now} bounds each thread's; " in text for text in texts)


def test_memory_that_is_kept_because_decay_is_never(checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, FREED, decay="never", huge_pages="never") as pid:
        account = account_of(pid)
    (copy,) = account.copies
    assert account.is_reconciled
    kept = copy.window.free[Why.NEVER] + copy.window.holes[Why.NEVER] + copy.window.cached
    assert kept > 55 * MIB
    assert "because the option decay is never (environment)" in advice_find(account)[0].text


def test_it_goes_back_when_it_may(checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, FREED, decay="100ms", huge_pages="never") as pid:
        deadline = time.monotonic() + 30
        while (account := account_of(pid)).rss > 16 * MIB and time.monotonic() < deadline:
            time.sleep(0.2)
    assert account.rss < 16 * MIB
    assert account.is_reconciled


def test_huge_pages(checkout: Checkout, tmp_path: Path) -> None:
    """Where the kernel gives them; every byte is accounted for in any case."""
    with on_hakmem(checkout, tmp_path, FRAGMENTED, decay="never", huge_pages="always") as pid:
        account = account_of(pid)
    assert account.is_reconciled
    assert sum(copy.window.total for copy in account.copies) > 50 * MIB


def test_two_hundred_threads(checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, THREADS, decay="never", bin_depth="64") as pid:
        account = account_of(pid)
        findings = list(patient_findings(patient_read(process_open(pid))))
    (copy,) = account.copies
    assert account.is_reconciled
    assert sum(heap.live for heap in copy.books.heaps) >= 201
    assert copy.window.cached >= 200 * 64 * 512 * 0.9
    assert any("cached by 201 of 201 threads" in one.text for one in advice_find(account))
    stacks = [row.size for row in account.others if row.key == "stacks"]
    assert stacks[0] > 200 * 4096
    assert {one.what: one.level for one in findings}["malloc"] is Level.FINE


def test_a_process_that_works_meanwhile(checkout: Checkout, tmp_path: Path) -> None:
    """It changes while it is read: nothing fails, and the sum stays near."""
    with on_hakmem(checkout, tmp_path, BUSY) as pid:
        for _ in range(10):
            account = account_of(pid)
            assert abs(account.difference) < 0.1 * account.rss


def test_a_leak_grows(checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, LEAK) as pid:
        readings = readings_take(account_of(pid), lambda: account_of(pid), 3)
    growths = growths_find(readings)
    assert growths[0].block_bytes == 208
    assert growths[0].steady
    advice = advice_find(readings[-1], growths)
    assert re.match(
        r"A leak, perhaps: in \d+ s grew, and never became less, blocks of 208 B by ", advice[0].text
    )


def test_a_leak_outside_the_window(checkout: Checkout, tmp_path: Path) -> None:
    """Of blocks larger than what is left of it."""
    with on_hakmem(checkout, tmp_path, LARGE_LEAK, window="64M") as pid:
        wait_for_rest(pid)
        readings = readings_take(account_of(pid), lambda: account_when_grown(pid), 0.5)
    account, growths = readings[-1], growths_find(readings)
    (copy,) = account.copies
    assert copy.outside > 100 * MIB
    assert copy.own > 0.9 * account.rss
    assert (growths[0].what, growths[0].steady) == ("large blocks", True)
    assert growths[0].last >= copy.outside
    (line,) = use_lines(account)
    assert re.match(rf"The program itself has {size_text(copy.own)} in use, most of it ", line)
    assert f"{size_text(copy.outside)} in {len(copy.books.outside)} blocks outside the window" in line
    assert hint_lines(account, watched=False)


def account_when_grown(pid: int) -> Account:
    """Of a LARGE_LEAK."""
    os.kill(pid, signal.SIGUSR1)
    wait_for_rest(pid)
    return account_of(pid)


def account_when_killed(pid: int) -> Account:
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return account_of(pid)


def test_one_that_ends_while_it_is_watched(checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, LEAK) as pid:
        first = account_of(pid)
        readings = readings_take(first, lambda: account_when_killed(pid), 0.4)
    assert readings == [first]
    assert "It ended while it was watched: 1 of 5 looks." in note_lines(first, "", 0.4, len(readings))


def test_one_that_becomes_another_program_while_it_is_watched(checkout: Checkout, tmp_path: Path) -> None:
    """Two programs are not held side by side."""
    source = (
        "#include <signal.h>\n"
        + HEAD
        + """
static char **words;
static void again(int number) { (void)number; execv("/proc/self/exe", words); }
int main(int count, char **given) {
    (void)count, words = given, signal(SIGUSR1, again), filled(100);
    wait_for_end();
}
"""
    )

    def account_when_another(pid: int) -> Account:
        os.kill(pid, signal.SIGUSR1)
        while process_open(pid).name != "exe":
            time.sleep(0.01)
        wait_for_rest(pid)
        return account_of(pid)

    with on_hakmem(checkout, tmp_path, source) as pid:
        first = account_of(pid)
        assert readings_take(first, lambda: account_when_another(pid), 0.1) == [first]


def test_python(checkout: Checkout) -> None:
    script = (
        "kept = [str(n) * 3 for n in range(300000)]; print('ready', flush=True); import sys; sys.stdin.read()"
    )
    environment = environment_on(checkout, PYTHONMALLOC="malloc")
    with running([sys.executable, "-S", "-c", script], environment) as pid:
        account = account_of(pid)
    assert account.is_reconciled
    assert account.copies[0].live > 10 * MIB


def test_a_process_and_its_child(checkout: Checkout, tmp_path: Path) -> None:
    """What they share is resident in both."""
    source = (
        HEAD
        + """
static void *blocks[8192];
int main(void) {
    for (int i = 0; i < 8192; i++) blocks[i] = filled(2048);
    pid_t child = fork();
    if (child == 0) { for (int i = 0; i < 8192; i += 2) free(blocks[i]); for (;;) pause(); }
    for (int i = 0; i < 8192; i += 4) free(blocks[i]);
    puts("ready"), printf("%d\\n", (int)child), fflush(stdout);
    while (getchar() != EOF) continue;
}
"""
    )
    program = compile_c(tmp_path / "program", source)
    with subprocess.Popen(
        [str(program)], env=environment_on(checkout), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        child = int(process.stdout.readline())
        try:
            wait_for_rest(process.pid)
            wait_for_rest(child)
            accounts = [account_of(process.pid), account_of(child)]
        finally:
            os.kill(child, signal.SIGKILL)
            process.kill()
    for account, live in zip(accounts, (12 * MIB, 8 * MIB), strict=True):
        assert account.is_reconciled
        assert live <= account.copies[0].live < live + MIB
        assert account.copies[0].total > live + 3 * MIB
