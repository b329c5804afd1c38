"""What cannot be read, or is no ordinary program on hakmem: one clear line, or a finding."""

from __future__ import annotations

import os
import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.sight import objects
from hakmem_lab.sight.account import account_read
from hakmem_lab.sight.advice import advice_find, use_lines
from hakmem_lab.sight.books_reader import books_read
from hakmem_lab.sight.doctor import Patient, patient_findings, patient_read, service_findings
from hakmem_lab.sight.findings import Level
from hakmem_lab.sight.launch import environment_on
from hakmem_lab.sight.mappings import Mapping
from hakmem_lab.sight.memory import memory_open
from hakmem_lab.sight.metrics import numbers_read, report_content
from hakmem_lab.sight.page import HEAD as HEAD_OF_PAGE
from hakmem_lab.sight.page import TABLE, NoPageError, pages_find
from hakmem_lab.sight.process import ProcessGoneError, process_open
from lab_command import lab
from lab_processes import (
    FRAGMENTED,
    FREED,
    HEAD,
    NOBODY,
    ROOT,
    account_of,
    on_hakmem,
    running,
    wait_for_rest,
)
from lab_sight import BytesMemory
from toolbox import compile_c


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
        while process_open(pid).name != "sleep":
            time.sleep(0.01)
        wait_for_rest(pid)
        with pytest.raises(NoPageError, match=rf"process {pid} \(sleep\) is not on hakmem"):
            account_of(pid)
        (malloc,) = [one for one in service_findings(patient_read(process_open(pid))) if one.what == "malloc"]
        assert malloc.level is Level.PROBLEM
        assert malloc.value.startswith("libc.so")


def test_a_name_that_a_terminal_would_obey(tmp_path: Path) -> None:
    name = tmp_path / "a\x1b[31mb"
    name.symlink_to("/bin/sleep")
    with subprocess.Popen([name, "60"]) as process:
        time.sleep(0.2)
        done = lab("explain", str(process.pid))
        process.kill()
    assert "(a?[31mb) is not on hakmem" in done.stderr


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


def test_a_list_of_objects_that_comes_back_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that overwrote it."""
    first, library = 0x1000, Mapping(0x5000, 0x6000, "rw-p", 0, 7, "/lib/libone.so")
    links = {first: 0x2000, 0x2000: first}
    data = {at: objects.LINK.pack(0, 0, library.start, following, 0) for at, following in links.items()}
    monkeypatch.setattr(objects, "_first_link", lambda _memory: first)
    assert list(objects._linked(BytesMemory(data), [library])) == [library] * 2


def test_a_library_that_is_named_by_a_link(checkout: Checkout, tmp_path: Path) -> None:
    """The linker knows it by that name, the kernel by the file's."""
    link = tmp_path / "libother.so"
    link.symlink_to(checkout.library.resolve())
    program = compile_c(tmp_path / "program", FREED, "-pthread")
    with running([program], {**os.environ, "LD_PRELOAD": str(link)}) as pid:
        patient = patient_read(process_open(pid))
    (malloc,) = [one for one in service_findings(patient) if one.what == "malloc"]
    assert (malloc.level, malloc.value) == (Level.FINE, checkout.library.resolve().name)


@pytest.mark.parametrize("as_root", [True, False])
def test_a_library_that_was_replaced(
    checkout: Checkout, tmp_path: Path, as_root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a newer one: the process goes on with a file that has no name any more, which only root can read."""
    if not as_root:
        monkeypatch.setattr(objects, "_files", lambda _process, _mapping: [])
    library = tmp_path / "libcopy.so"
    library.write_bytes(checkout.library.read_bytes())
    program = compile_c(tmp_path / "program", FREED, "-pthread")
    with running([program], {**os.environ, "LD_PRELOAD": str(library)}) as pid:
        library.unlink()
        patient = patient_read(process_open(pid))
    (malloc,) = [one for one in service_findings(patient) if one.what == "malloc"]
    assert (malloc.level, malloc.value) == (Level.FINE, f"{library.name} (deleted)")


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


def test_a_small_address_space(checkout: Checkout, build: Path, tmp_path: Path) -> None:
    """Where the window reaches over what the program maps itself."""
    source = (
        "#include <sys/mman.h>\n"
        + HEAD
        + """
int main(void) {
    void *mapped = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(mapped, 1, 32 << 20);
    filled(1 << 20);
    wait_for_end();
}
"""
    )
    shim = build / "tests/faults/libother_kernel.so"
    environment = environment_on(checkout)
    preloads = f"{shim}:{environment['LD_PRELOAD']}"
    program = compile_c(tmp_path / "maps", source)
    with running([program], environment | {"LD_PRELOAD": preloads, "OTHER_ADDRESS_BITS": "39"}) as pid:
        account = account_of(pid)
    (copy,) = account.copies
    assert copy.books.window_base < 1 << 39
    assert account.is_reconciled
    assert copy.total < 4 << 20


def test_memory_of_others_between_parts_of_the_window(checkout: Checkout, tmp_path: Path) -> None:
    """The window has to go on behind it."""
    source = (
        "#include <stdint.h>\n#include <sys/mman.h>\n"
        + HEAD
        + """
enum { BYTES = 32 << 20, FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE };
int main(void) {
    uintptr_t at = (uintptr_t)filled(1 << 20) >> 21 << 21;
    while (mmap((void *)at, BYTES, PROT_READ | PROT_WRITE, FLAGS, -1, 0) == MAP_FAILED) at += 2 << 20;
    memset((void *)at, 1, BYTES);
    for (int i = 0; i < 16; i++) filled(8 << 20);
    wait_for_end();
}
"""
    )
    with on_hakmem(checkout, tmp_path, source, decay="never", huge_pages="never") as pid:
        account = account_of(pid)
    (copy,) = account.copies
    assert (copy.books.spans["end_page"] - 1) * 65536 > 1 << 30  # there is a gap
    assert account.is_reconciled
    assert copy.window.untouched < 1 << 20
    assert sum(row.size for row in account.others if row.key == "anonymous") >= 32 << 20
    assert not [one for one in advice_find(account) if "huge page" in one.text]


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
