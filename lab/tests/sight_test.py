"""Processes on the built library, read from outside: what was planted in them must be found."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.cli import main
from hakmem_lab.errors import LabError
from hakmem_lab.reports.explain import note_lines
from hakmem_lab.sight.account import Account, account_read
from hakmem_lab.sight.advice import advice_find, use_lines
from hakmem_lab.sight.books import Books, books_read
from hakmem_lab.sight.doctor import Patient, patient_findings, patient_read, service_findings
from hakmem_lab.sight.findings import Level
from hakmem_lab.sight.growth import growths_find, readings_take
from hakmem_lab.sight.launch import environment_on
from hakmem_lab.sight.memory import memory_open
from hakmem_lab.sight.metrics import numbers_read, report_content, report_openmetrics
from hakmem_lab.sight.page import HEAD as HEAD_OF_PAGE
from hakmem_lab.sight.page import TABLE, NoPageError, pages_find
from hakmem_lab.sight.process import ProcessGoneError, process_open
from hakmem_lab.sight.window import Why
from jsonschema import Draft202012Validator
from prometheus_client.openmetrics.parser import text_string_to_metric_families
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
BUSY = (
    HEAD
    + """
int main(void) {
    puts("ready"), fflush(stdout);
    static void *blocks[4096];
    for (unsigned seed = 1;; seed = seed * 1103515245 + 12345) {
        void **slot = &blocks[seed >> 8 & 4095];
        free(*slot);
        *slot = filled(16 + (seed >> 4) % 20000);
    }
}
"""
)


@pytest.fixture
def checkout(build: Path) -> Checkout:
    if not (build / "libhakmem.so").is_file():
        pytest.skip("libhakmem.so is not built: ./hakmem build")
    return Checkout.find(build)


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


# ---- why RSS is what it is ------------------------------------------------------------------------------------


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
    assert "10240 blocks of 256 B in use, 2.5 MiB, keep 37.4 MiB beside them" in texts[0]


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
        time.sleep(0.5)
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
        r"A leak, perhaps: in 3 s grew, and never became less, blocks of 208 B by ", advice[0].text
    )


def test_one_that_ends_while_it_is_watched(checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, LEAK) as pid:
        first = account_of(pid)

        def read() -> Account:
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
            return account_of(pid)

        readings = readings_take(first, read, 0.4)
    assert readings == [first]
    assert "It ended while it was watched: 1 of 5 looks." in note_lines(first, "", 0.4, len(readings))


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
            time.sleep(0.3)
            accounts = [account_of(process.pid), account_of(child)]
        finally:
            os.kill(child, signal.SIGKILL)
            process.kill()
    for account, live in zip(accounts, (12 * MIB, 8 * MIB), strict=True):
        assert account.is_reconciled
        assert live <= account.copies[0].live < live + MIB
        assert account.copies[0].total > live + 3 * MIB


# ---- what cannot be read --------------------------------------------------------------------------------------


def test_a_process_that_ends_while_it_is_read(checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, FRAGMENTED) as pid:
        process = process_open(pid)
        memory_of = memory_open(process)
        with memory_of as memory:
            (page,) = pages_find(memory, process.mappings())
            os.kill(pid, 9)
            while "State:\tZ" not in (process.folder / "status").read_text():
                time.sleep(0.01)
            with pytest.raises(ProcessGoneError, match="ended while it was read"):
                books_read(page)
            with pytest.raises(ProcessGoneError):
                account_read(process)


def test_books_that_were_overwritten(checkout: Checkout, tmp_path: Path) -> None:
    """Whatever stands there: numbers, or one line."""
    draw = random.Random(7)
    refused = 0
    with on_hakmem(checkout, tmp_path, FREED, decay="never") as pid:
        process = process_open(pid)
        with memory_open(process) as memory:
            (page,) = pages_find(memory, process.mappings())
            heaps = [(address, 2048) for address, _heap in page.linked("heaps")]
        with (process.folder / "mem").open("r+b", buffering=0) as written:
            _, _, tables, count, *_ = HEAD_OF_PAGE.unpack(
                os.pread(written.fileno(), HEAD_OF_PAGE.size, page.address)
            )
            places = [(page.address + 24, 32), (tables, count * TABLE.size), *heaps]
            for _ in range(80):
                start, length = draw.choice(places)
                address = start + draw.randrange(length // 4) * 4
                before = os.pread(written.fileno(), 4, address)
                os.pwrite(written.fileno(), draw.choice([bytes(4), b"\xff" * 4, draw.randbytes(4)]), address)
                try:
                    advice_find(account_of(pid))
                    report_content(numbers_read(process)[0])
                except LabError as error:
                    refused += 1
                    assert "\n" not in str(error)
                os.pwrite(written.fileno(), before, address)
        assert account_of(pid).is_reconciled
    assert refused > 10


def test_a_process_of_another_user() -> None:
    """By the kernel's own refusal."""
    if os.geteuid() != 0:
        with pytest.raises(LabError, match="belongs to another user"):
            process_open(1)
        return
    with running(["sh", "-c", "echo ready; exec sleep 60"], dict(os.environ)) as pid:
        os.seteuid(NOBODY)
        try:
            with pytest.raises(
                LabError, match=rf"process {pid} belongs to another user: run this as root or as"
            ):
                process_open(pid)
        finally:
            os.seteuid(0)


def test_a_process_on_another_malloc() -> None:
    with running(["sh", "-c", "echo ready; exec sleep 60"], dict(os.environ)) as pid:
        time.sleep(0.1)
        with pytest.raises(NoPageError, match=rf"process {pid} \(sleep\) is not on hakmem"):
            account_of(pid)
        (malloc,) = [one for one in service_findings(patient_read(process_open(pid))) if one.what == "malloc"]
        assert malloc.level is Level.PROBLEM
        assert malloc.value.startswith("libc.so")


def test_a_program_with_its_own_allocator(checkout: Checkout, tmp_path: Path) -> None:
    """hakmem is preloaded, and comes behind the program's own malloc."""
    source = (
        HEAD
        + """
static char room[1 << 20];
static size_t used;
void *malloc(size_t n) { void *at = room + used; used += (n + 15) & ~(size_t)15; return at; }
void *calloc(size_t n, size_t m) { return malloc(n * m); }
void *realloc(void *block, size_t n) { (void)block; return malloc(n); }
void free(void *block) { (void)block; }
int main(void) { filled(100); wait_for_end(); }
"""
    )
    program = compile_c(tmp_path / "own", source, "-rdynamic")
    with running([program], environment_on(checkout)) as pid:
        patient = patient_read(process_open(pid))
    (malloc,) = [one for one in service_findings(patient) if one.what == "malloc"]
    assert (malloc.level, malloc.value) == (Level.PROBLEM, "own")


def test_a_library_that_brings_an_allocator(checkout: Checkout, tmp_path: Path) -> None:
    library = compile_c(
        tmp_path / "libbring.so", "void *je_malloc(unsigned long n) { return (void *)n; }", "-shared", "-fPIC"
    )
    with on_hakmem(checkout, tmp_path, FREED) as pid:
        patient = patient_read(process_open(pid))
        assert not [one for one in patient_findings(patient) if one.what.startswith("malloc of")]
    environment = environment_on(checkout)
    environment["LD_PRELOAD"] += f":{library}"
    with running([tmp_path / "program"], environment) as pid:
        findings = {one.what: one for one in patient_findings(patient_read(process_open(pid)))}
    assert findings["malloc of libbring.so"].value == "je_malloc"
    assert findings["malloc"].level is Level.FINE


def test_a_library_that_is_named_by_a_link(checkout: Checkout, tmp_path: Path) -> None:
    """The linker knows it by that name, the kernel by the file's."""
    link = tmp_path / "libother.so"
    link.symlink_to(checkout.library.resolve())
    program = compile_c(tmp_path / "program", FREED, "-pthread")
    with running([program], {**os.environ, "LD_PRELOAD": str(link)}) as pid:
        patient = patient_read(process_open(pid))
    (malloc,) = [one for one in service_findings(patient) if one.what == "malloc"]
    assert (malloc.level, malloc.value) == (Level.FINE, checkout.library.resolve().name)


def test_foreign_frees(checkout: Checkout, tmp_path: Path) -> None:
    source = (
        HEAD
        + "int main(void) { static char own[64]; char *volatile at = own; free(at + 16); wait_for_end(); }"
    )
    with on_hakmem(checkout, tmp_path, source, foreign_free="count", quiet="1") as pid:
        findings = {one.what: one for one in patient_findings(patient_read(process_open(pid)))}
    assert findings["foreign frees"].level is Level.PROBLEM
    assert findings["foreign frees"].value == "1, foreign_free is count"
    assert findings["option foreign_free"].value == "count (environment)"


def test_two_copies(checkout: Checkout, build: Path, tmp_path: Path) -> None:
    """The program is linked with the archive, and the library is preloaded."""
    archive = build / "libhakmem.a"
    program = compile_c(tmp_path / "linked", FREED, str(archive), "-pthread")
    with running([program], environment_on(checkout)) as pid:
        account = account_of(pid)
        patient: Patient = patient_read(process_open(pid))
    owners = [copy.books.page.owner for copy in account.copies]
    assert owners == [str(checkout.library.resolve()), str(program)]
    assert account.is_reconciled
    assert any(one.what == "copies of hakmem" for one in service_findings(patient))


@pytest.mark.usefixtures("checkout")
def test_a_static_program(build: Path, tmp_path: Path) -> None:
    """Its page stands in its file: no dynamic linker wrote it."""
    program = compile_c(tmp_path / "static", FREED, str(build / "libhakmem.a"), "-pthread", "-static")
    with running([program], dict(os.environ)) as pid:
        account = account_of(pid)
        patient = patient_read(process_open(pid))
    assert account.is_reconciled
    assert [copy.books.page.owner for copy in account.copies] == [str(program)]
    assert {one.what: one.level for one in service_findings(patient)}["malloc"] is Level.FINE


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fragmented", "10000 blocks of 256 B in use, 2.4 MiB, keep 36."),
        ("own_malloc", "is in this process, and nothing was ever allocated from it: hakmem doctor says why"),
    ],
)
def test_the_examples(checkout: Checkout, tmp_path: Path, name: str, said: str) -> None:
    source = (ROOT / "docs/examples" / f"{name}.c").read_text()
    program = compile_c(tmp_path / name, source, "-Wall", "-Wextra", "-Werror")
    with subprocess.Popen([str(program)], env=environment_on(checkout)) as process:
        try:
            told = ""
            deadline = time.monotonic() + 20
            while said not in told and time.monotonic() < deadline:
                time.sleep(0.1)
                with suppress(NoPageError):  # not that far yet
                    account = account_of(process.pid)
                    told = "\n".join([*use_lines(account), *(one.text for one in advice_find(account))])
        finally:
            process.kill()
    assert said in told
    assert account.is_reconciled


# ---- the same numbers from inside and outside -----------------------------------------------------------------


SAYS = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
malloc = libc.malloc
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
kept = [malloc(size) for size in range(16, 60000, 61)]
large = malloc(5 << 20)
failed = malloc((1 << 63) + 1)
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print('ready', flush=True)
assert sys.stdin.readline()
libc.hak_stats_write(out, 1)
os.close(out)
os.kill(os.getpid(), 19)
"""


def test_inside_and_outside_say_the_same(checkout: Checkout, tmp_path: Path) -> None:
    """The process writes its own report and stops; then it is read."""
    file = tmp_path / "report.json"
    environment = environment_on(checkout, PYTHONMALLOC="malloc", HAKMEM_DECAY="3s")
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", SAYS, str(file)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(b"\n")
        process.stdin.flush()
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        (now,) = numbers_read(process_open(process.pid))
    finally:
        process.kill()
        process.communicate()
    inside, outside = json.loads(file.read_text()), report_content(now)
    Draft202012Validator(json.loads((ROOT / "docs/statistics.schema.json").read_text())).validate(outside)
    assert list(outside) == list(inside)
    for name in ("process", "classes", "memory", "heaps", "threads", "system_calls", "kernel"):
        inside_part, outside_part = inside.pop(name), outside.pop(name)
        if name != "process":  # a few small blocks come and go between the report and the stop
            assert _shape(inside_part) == _shape(outside_part)
    assert outside == inside
    families = list(text_string_to_metric_families(report_openmetrics(now)))
    samples = {
        sample.name: sample.value for family in families for sample in family.samples if not sample.labels
    }
    assert samples["hakmem_memory_large_bytes"] >= 5 * MIB
    assert samples["hakmem_spans_taken_total"] == now.books.spans["taken"]


def _shape(part: object) -> object:
    """Names, without numbers."""
    if isinstance(part, dict):
        return {name: _shape(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_shape(value) for value in part]
    return part if isinstance(part, str) else type(part).__name__


def test_options_are_formatted_as_the_library_does(checkout: Checkout, tmp_path: Path) -> None:
    options = {
        "decay": "90s",
        "thread_cache": "96k",
        "huge_pages": "never",
        "bin_depth": "32",
        "stats_file": "/tmp/%p",
    }
    with on_hakmem(checkout, tmp_path, FREED, **options) as pid:
        books = books_of(pid)
    values = {option.name: (option.value, option.source) for option in books.options}
    assert values["decay"] == ("90s", "environment")
    assert values["thread_cache"] == ("96KiB", "environment")
    assert values["huge_pages"] == ("never", "environment")
    assert values["bin_depth"] == ("32", "environment")
    assert values["stats_file"] == ("/tmp/%p", "environment")
    assert values["profile"] == ("balanced", "default")
    assert books.option("window").decided == "1TiB"


def test_the_reader_of_the_document_reads(checkout: Checkout, tmp_path: Path) -> None:
    text = (ROOT / "docs/statistics.md").read_text()
    script = text.partition("```python\n")[2].partition("```")[0]
    with on_hakmem(checkout, tmp_path, FRAGMENTED) as pid:
        done = subprocess.run(
            [sys.executable, "-c", script, str(pid)], capture_output=True, text=True, check=True
        )
        expected = books_of(pid).spans["used_pages"]
    assert f"used_pages {expected}\n" in done.stdout


# ---- the commands ---------------------------------------------------------------------------------------------


def lab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hakmem_lab", *arguments],
        env={**os.environ, "PYTHONPATH": str(LAB), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_explain_a_process(checkout: Checkout, tmp_path: Path) -> None:
    out = tmp_path / "why.json"
    with on_hakmem(checkout, tmp_path, FRAGMENTED) as pid:
        done = lab("explain", str(pid), "--json", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert "free blocks beside used ones" in done.stdout
    assert "What would help:" in done.stdout
    content = json.loads(out.read_text())
    assert content["reconciled"]
    assert sum(row["bytes"] for row in content["rows"]) == content["rss_bytes"]


@pytest.mark.usefixtures("checkout")
def test_explain_a_command(build: Path) -> None:
    script = "print('its own'); kept = [bytes(5000) for _ in range(4000)]; import time; time.sleep(1.5); raise SystemExit(5)"
    done = lab("explain", "--build", str(build), "--after", "1s", "--", sys.executable, "-c", script)
    assert (done.returncode, done.stdout) == (5, "its own\n")
    assert "small blocks in use" in done.stderr
    assert "s after its start." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["explain"], "hakmem: give the number of a process, or a command after --"),
        (["explain", "4194305"], "hakmem: there is no process 4194305"),
        (["explain", "1", "--after", "3s"], "hakmem: --after and --when-rss are for a command"),
        (
            ["explain", "--after", "1s", "--when-rss", "1G", "--", "true"],
            "hakmem: give either --after or --when-rss",
        ),
        (["explain", "--when-rss", "much", "--", "true"], "hakmem: --when-rss is a size such as"),
        (["stats", "4194305"], "hakmem: there is no process 4194305"),
        (["stats", "1", "--json", "--openmetrics"], "hakmem: give either --json or --openmetrics"),
        (["show-config", "4194305"], "hakmem: there is no process 4194305"),
        (["doctor", "4194305"], "hakmem: there is no process 4194305"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hakmem", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(line)
    assert said.count("\n") == 1


def test_stats(checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, FRAGMENTED) as pid:
        as_json = lab("stats", str(pid), "--json")
        as_openmetrics = lab("stats", str(pid), "--openmetrics")
        as_text = lab("stats", str(pid))
    report = json.loads(as_json.stdout)
    assert (report["pid"], report["program"]) == (pid, "program")
    names = {family.name for family in text_string_to_metric_families(as_openmetrics.stdout)}
    assert {"hakmem_memory_held_bytes", "hakmem_class_live_blocks"} <= names
    assert "memory held_bytes" in as_text.stdout


def test_show_config(checkout: Checkout, build: Path, tmp_path: Path) -> None:
    done = lab("show-config", "--build", str(build), "--json", HAKMEM_DECAY="2s", HAKMEM_CONF="bin_depth:64")
    assert done.returncode == 0, done.stderr
    (config,) = json.loads(done.stdout)
    options = {one["name"]: one for one in config["options"]}
    assert (options["decay"]["value"], options["decay"]["source"]) == ("2s", "environment")
    assert (options["bin_depth"]["value"], options["bin_depth"]["source"]) == ("64", "conf")
    with on_hakmem(checkout, tmp_path, FREED, decay="2s", conf="bin_depth:64") as pid:
        (inside,) = json.loads(lab("show-config", str(pid), "--json").stdout)
    fields = ("name", "value", "source", "default", "accepts", "anytime", "text", "cost")
    assert [[one[field] for field in fields] for one in inside["options"]] == [
        [one[field] for field in fields] for one in config["options"]
    ]


def test_a_switch_that_is_not_one(checkout: Checkout, build: Path, tmp_path: Path) -> None:
    done = lab("show-config", "--build", str(build), "--", "true", HAKMEM_STAT="1")
    assert done.returncode == 1
    assert "HAKMEM_STAT is not an option and is ignored; the nearest is HAKMEM_STATS" in done.stdout
    with on_hakmem(checkout, tmp_path, FREED, decai="1s", quiet="1") as pid:
        done = lab("doctor", str(pid))
    assert done.returncode == 1
    assert "HAKMEM_DECAI" in done.stdout


@pytest.mark.usefixtures("checkout")
def test_doctor_of_a_command(build: Path) -> None:
    out = lab("doctor", "--build", str(build), "--", sys.executable, "-c", "import time; time.sleep(0.5)")
    assert out.returncode == 0, out.stdout
    assert "proof of service" in out.stdout


@pytest.mark.usefixtures("checkout")
def test_doctor_of_a_static_program(build: Path, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "static", "int main(void) { return 0; }\n", "-static")
    out = lab("doctor", "--build", str(build), "--", str(program))
    assert out.returncode == 1
    assert "a static binary" in out.stdout


def test_doctor_of_a_made_up_machine(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Cpus_allowed_list:\t0\n")
    (tmp_path / "proc/self/limits").write_text("Limit  Soft Limit  Hard Limit  Units\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 1 kB\n")
    out = lab("doctor", "--root", str(tmp_path))
    assert out.returncode == 1
    assert "1 problem," in out.stdout
