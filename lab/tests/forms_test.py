"""hakmem as a part of the programs that it serves: its names, its proofs, and runs that it serves, where the forms are built."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.allocators.arms import arm_parse, arm_stage
from hakmem_lab.allocators.forms import (
    DYNAMIC,
    FORMS,
    INLINED,
    LTO,
    PRELOADED,
    STATIC,
    FormProof,
    form_proof,
    forms_prove,
)
from hakmem_lab.allocators.peers import Peer, PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.builds import restricted
from hakmem_lab.errors import LabError, ProcessFailedError
from hakmem_lab.measure.launch import Start, started
from hakmem_lab.measure.runner import (
    Arm,
    Conditions,
    command_make,
    environment_make,
    service_check,
    workload_run,
)
from hakmem_lab.measure.service import libc_preloaded
from hakmem_lab.measure.stage import staged
from hakmem_lab.workloads.canned.file import canned_find
from lab_command import lab

RIGHT = {
    PRELOADED: FormProof(PRELOADED, "tiny_hot", False, False, True, False),
    DYNAMIC: FormProof(DYNAMIC, "tiny_hot", True, False, False, False),
    STATIC: FormProof(STATIC, "tiny_hot", False, True, False, False),
    LTO: FormProof(LTO, "tiny_hot", False, True, False, True),
    INLINED: FormProof(INLINED, "tiny_hot", False, True, False, True),
}


@pytest.mark.parametrize("form", RIGHT)
def test_a_form_is_what_it_is_called(form: str) -> None:
    assert RIGHT[form].complaint == ""
    for wrong in (
        replace(RIGHT[form], needs_library=not RIGHT[form].needs_library),
        replace(RIGHT[form], defines_malloc=not RIGHT[form].defines_malloc),
        replace(RIGHT[form], by_plt=not RIGHT[form].by_plt),
    ):
        assert "linked in another way" in wrong.complaint
    other = replace(RIGHT[form], inlined=not RIGHT[form].inlined)
    assert ("in its own code" in other.complaint) is (form != LTO)  # where the compiler may choose


def test_a_part_of_a_program_is_not_preloaded(tmp_path: Path) -> None:
    program = tmp_path / "random_mixed"
    program.touch()
    peer = Peer("hakmem+dynamic", "1", tmp_path / "libhakmem.so.0.1", "id", programs=tmp_path)
    assert "LD_PRELOAD" not in environment_make(Arm(peer), 0, preload=True)
    assert command_make(Path("/elsewhere/random_mixed"), ["1"], peer) == [str(program), "1"]
    with pytest.raises(LabError, match="vm_mixed is not linked as hakmem"):
        command_make(Path("/elsewhere/vm_mixed"), ["1"], peer)


def test_service_by_the_program_itself_is_proved(tmp_path: Path) -> None:
    peer = Peer("hakmem+static", "1", None, "id", programs=tmp_path)
    service_check({"malloc_from": str(tmp_path / "random_mixed")}, peer)
    for owner in ("/lib/x86_64-linux-gnu/libc.so.6", "/elsewhere/random_mixed", None):
        with pytest.raises(LabError, match="malloc came from"):
            service_check({"malloc_from": owner}, peer)


def test_it_serves_no_other_program(tmp_path: Path) -> None:
    peer = Peer("hakmem+static", "1", None, "id", programs=tmp_path)
    assert libc_preloaded(Arm(peer)) == Arm(peer)
    start = Start(Path("command_cost"), ("true",), tmp_path)
    with (
        pytest.raises(ProcessFailedError, match="serves no other program"),
        started(start, Arm(peer), Conditions(0, 0, (0,))),
    ):
        pass


def test_an_unknown_form_is_refused(checkout: Checkout) -> None:
    with pytest.raises(
        LabError, match=r"'hakmem\+wrong': there is no such form; there are: dynamic, static, lto, inlined"
    ):
        arm_parse("hakmem+wrong", PeerStore(checkout))


def test_a_part_of_the_comparison_can_be_asked_for() -> None:
    canned = canned_find("builds")
    chosen = restricted(canned, ["tiny"], ["hakmem+lto"])
    assert (chosen.arms, chosen.benches) == (("hakmem", "hakmem+lto"), ("tiny and hot, 64 B",))
    assert restricted(canned, [], []) == canned
    with pytest.raises(LabError, match="--arms: 'glibc' is none of"):
        restricted(canned, [], ["glibc"])
    with pytest.raises(LabError, match="--only: 'nothing' is none of"):
        restricted(canned, ["nothing"], [])


# ---- where they are built ----------------------------------------------------------------------------------------


@pytest.fixture
def linked(checkout: Checkout) -> Checkout:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    with (checkout.build / "bench_linked.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        command = ["cmake", "--build", checkout.build, "--target", "bench_linked"]
        subprocess.run(command, check=True, capture_output=True)
    return checkout


def test_every_form_serves_and_is_proved(linked: Checkout) -> None:
    assert len(forms_prove(linked, ["tiny_hot", "random_mixed"])) == 2 * (1 + len(FORMS))
    store = PeerStore(linked)
    sums = set()
    with staged(linked) as stage:
        for place, form in enumerate(FORMS):
            peer = arm_stage(stage, arm_parse(f"hakmem+{form}", store), f"form-{place}")
            assert peer.programs is not None and peer.programs.is_relative_to(stage.folder)
            run = workload_run(
                stage.program("random_mixed"), ["20000", "100", "3"], Arm(peer), Conditions(3, 0, (0,))
            )
            sums.add(run.checksum)
    assert len(sums) == 1, "all did the same work"


def test_a_form_is_not_compared_under_its_name_as_glibc(linked: Checkout) -> None:
    options = ["--build", str(linked.build), "--budget", "1s", "--allocators", "hakmem+static"]
    done = lab("compare", *options, "--", "true")
    why = "hakmem+static not served: hakmem+static is a part of other programs"
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith(f"hakmem: there is nothing to compare: {why}")


def test_a_form_in_another_ones_place_is_seen(linked: Checkout) -> None:
    plain = linked.program("tiny_hot")
    folder = linked.build / "bench/linked"
    assert "linked in another way" in form_proof(STATIC, plain, plain).complaint
    assert "linked in another way" in form_proof(DYNAMIC, folder / "static/tiny_hot", plain).complaint
    assert "is not in its own code" in form_proof(INLINED, folder / "static/tiny_hot", plain).complaint
