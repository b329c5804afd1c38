from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.allocators.peers import Peer, PeerStore
from hakmem_lab.allocators.probe import FAMILIES
from hakmem_lab.allocators.service import probe_run, service_prove
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError, ProcessFailedError
from hakmem_lab.measure.runner import Conditions
from hakmem_lab.measure.stage import Stage, staged
from toolbox import compile_c

CPUS = tuple(sorted(os.sched_getaffinity(0)))
CONDITIONS = Conditions(1, 0, CPUS)
CRASHES = "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }\n"


@pytest.fixture
def stage(build: Path) -> Iterator[Stage]:
    if not (build / "libhakmem.so").is_file():
        pytest.skip("libhakmem.so is not built: ./hakmem build")
    with staged(Checkout(Checkout.find().root, build.resolve())) as stage:
        yield stage


@pytest.fixture
def store(stage: Stage) -> PeerStore:
    return PeerStore(stage.checkout)


@pytest.mark.parametrize(
    ("name", "said"), [("hakmem", "hak_version() is 0."), ("glibc", "gnu_get_libc_version")]
)
def test_a_peer_proves_itself(stage: Stage, store: PeerStore, name: str, said: str) -> None:
    proof = service_prove(stage, stage.peer(store.obtain(name)), CPUS)
    assert proof.own.startswith(said)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"hakmem"}))
def test_another_allocator_does_not_pass_for_it(store: PeerStore, family: str) -> None:
    """hakmem has malloc and mallinfo2 as well; each family's own words must be missed."""
    with pytest.raises(LabError, match=r"hakmem did not prove itself: python.* exited with 1: "):
        probe_run(replace(store.obtain("hakmem"), proof=family, version="9.9"), CONDITIONS)


def test_another_version_does_not_pass_for_it(store: PeerStore) -> None:
    with pytest.raises(LabError, match="not so: hak_version"):
        probe_run(replace(store.obtain("hakmem"), version="9.9"), CONDITIONS)


def test_a_library_that_does_not_own_malloc_is_refused(stage: Stage, tmp_path: Path) -> None:
    """As a broken one: the dynamic linker loads nothing, and glibc serves."""
    peer = Peer("broken", "1", tmp_path / "nothing.so", "id")
    with pytest.raises(LabError, match="broken did not serve the process: malloc came from"):
        service_prove(stage, peer, CPUS)


def test_a_probe_that_crashes_is_no_refusal(tmp_path: Path) -> None:
    library = compile_c(tmp_path / "crash.so", CRASHES, "-shared", "-fPIC")
    with pytest.raises(ProcessFailedError) as caught:
        probe_run(Peer("crash", "1", library, "id", proof="jemalloc"), CONDITIONS)
    assert caught.value.outcome.startswith("crashed: signal ")


def test_a_peer_that_crashes_is_one_clear_line(stage: Stage, tmp_path: Path) -> None:
    library = tmp_path / "libcrash.so"
    code = b"void *malloc(unsigned long bytes) { __builtin_trap(); }"
    command = ["cc", "-w", "-shared", "-fPIC", "-o", str(library), "-xc", "-"]
    subprocess.run(command, input=code, check=True)
    with pytest.raises(LabError, match=r"random_mixed was ended by signal \d+ \(.*\) \(under crash\)"):
        service_prove(stage, Peer("crash", "1", library, "id"), CPUS)
