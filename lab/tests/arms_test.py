from __future__ import annotations

import ctypes.util
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.allocators.arms import (
    NO_OPTIONS,
    arm_parse,
    arm_shown,
    arm_stage,
    arms_parse,
    options_peer,
    peer_stage,
)
from hakmem_lab.allocators.peers import Peer, PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.runner import Arm, environment_make, process_run
from hakmem_lab.measure.stage import staged
from lab_pairs import HAKMEM


@pytest.fixture
def store(build: Path) -> PeerStore:
    return PeerStore(Checkout.find(build))


def test_a_name_is_an_allocator(store: PeerStore) -> None:
    assert arm_parse("glibc", store).library is None
    assert arm_parse("hakmem", store) == store.obtain("hakmem")


def test_a_path_is_a_library(store: PeerStore, build: Path) -> None:
    peer = arm_parse(str(build / "libhakmem.so"), store)
    assert (peer.name, peer.library) == ("libhakmem.so", (build / "libhakmem.so").resolve())
    assert peer.identity == store.obtain("hakmem").identity


def test_options_are_the_same_library_in_another_environment(store: PeerStore) -> None:
    peer = arm_parse("hakmem:decay=never,profile=small", store)
    assert peer.library == store.obtain("hakmem").library
    assert peer.environment == (("HAKMEM_DECAY", "never"), ("HAKMEM_PROFILE", "small"))


def test_an_option_is_in_force_whatever_the_users_environment_says(store: PeerStore) -> None:
    """A variable of the user's own for it is stronger than a list; the user's list is for all arms alike."""
    users = {"HAKMEM_DECAY": "1s", "HAKMEM_CONF": "bin_depth:64", "HAKMEM_SHOW_OPTIONS": "1"}
    for name, decay in (("hakmem", "1s"), ("hakmem:decay=2s", "2s")):
        arm = Arm(arm_parse(name, store))
        told = process_run(["/bin/true"], environment_make(arm, 0, preload=True, users=users), cpus_allowed())
        options = {one["name"]: one["value"] for one in json.loads(told)["options"]}
        assert (options["decay"], options["bin_depth"]) == (decay, "64")


def test_what_is_no_option_but_has_its_prefix_is_refused(store: PeerStore) -> None:
    """The library says of none of these that it does not know it."""
    environment = environment_make(Arm(store.obtain("hakmem")), 0, preload=True) | {
        "HAKMEM_SHOW_OPTIONS": "1"
    }
    others = json.loads(process_run(["/bin/true"], environment, cpus_allowed()))["other_variables"]
    assert set(others) == set(NO_OPTIONS)
    with pytest.raises(LabError, match=r"^'Conf=decay:1s': Conf is not an option of hakmem$"):
        arm_parse("hakmem:Conf=decay:1s", store)


@pytest.mark.parametrize(
    "value", ["profile=./my.profile", "stats=json,stats_file=/dev/null", "stats_file=a.so"]
)
def test_an_options_value_may_be_a_path(store: PeerStore, value: str) -> None:
    peer = arm_parse(f"hakmem:{value}", store)
    assert (peer.name, peer.library) == (f"hakmem:{value}", store.obtain("hakmem").library)
    assert arm_shown(peer.name) == peer.name


@pytest.mark.parametrize("name", ["lib:1.so", "lib:1", "lib hakmem:decay=1s.so"])
def test_a_librarys_path_may_hold_a_colon(store: PeerStore, build: Path, tmp_path: Path, name: str) -> None:
    library = tmp_path / name
    library.write_bytes((build / "libhakmem.so").read_bytes())
    peer = arm_parse(str(library), store)
    assert (peer.name, peer.library) == (name, library)
    assert arm_shown(str(library)) == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hakmen", "there is no allocator 'hakmen', did you mean hakmem?"),
        ("xyzzy", "there is no allocator 'xyzzy'; known: hakmem, "),
        ("glibc:decay=never", "'glibc:decay=never': only hakmem takes options"),
        ("hakmem:decay", "'decay' is not an option with a value"),
        ("hakmem:", "'' is not an option with a value"),
        ("/nowhere/libfoo.so", "/nowhere/libfoo.so: there is no such library"),
        (__file__, "arms_test.py is not an ELF file, or a damaged one: "),
    ],
)
def test_what_cannot_be_an_arm_is_refused(store: PeerStore, text: str, message: str) -> None:
    with pytest.raises(LabError) as caught:
        arm_parse(text, store)
    assert str(caught.value).startswith(message)


def test_two_libraries_of_one_name_are_refused(store: PeerStore, build: Path, tmp_path: Path) -> None:
    (tmp_path / "libhakmem.so").write_bytes((build / "libhakmem.so").read_bytes())
    own, other = str(build / "libhakmem.so"), str(tmp_path / "libhakmem.so")
    assert [peer.name for peer in arms_parse([own, "glibc", own], store)] == ["libhakmem.so", "glibc"]
    with pytest.raises(LabError, match=r"^two allocators are named libhakmem\.so: "):
        arms_parse([own, other], store)


def stage_error(build: Path, peer: Peer) -> str:
    with staged(Checkout.find(build)) as stage, pytest.raises(LabError) as caught:
        arm_stage(stage, peer, "a")
    return str(caught.value)


def test_an_option_that_the_library_does_not_know_is_refused(build: Path, store: PeerStore) -> None:
    peer = options_peer(store.obtain("hakmem"), "decay=nevr")
    assert stage_error(build, peer).startswith("hakmem:decay=nevr: HAKMEM_DECAY=nevr is not understood")


@pytest.mark.parametrize("options", ["stats=text", "stats=json", "stats=openmetrics"])
def test_what_an_option_prints_is_no_refusal(build: Path, store: PeerStore, options: str) -> None:
    with staged(Checkout.find(build)) as stage:
        peer_stage(stage, options_peer(store.obtain("hakmem"), options), "a")


def test_a_refusal_among_what_is_printed_is_one(build: Path, store: PeerStore) -> None:
    message = stage_error(build, options_peer(store.obtain("hakmem"), "stats=json,decay=nevr"))
    assert message.startswith("hakmem:stats=json,decay=nevr: HAKMEM_DECAY=nevr is not understood")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("foo=1", "HAKMEM_FOO is not an option"),
        ("deca=1s", "HAKMEM_DECA is not an option; the nearest is HAKMEM_DECAY (0ms to 60min, or never)"),
        ("Cache=1M", "HAKMEM_CACHE is not an option; the nearest is HAKMEM_THREAD_CACHE (64KiB to 1GiB)"),
        (
            "huge_pages=alwys",
            "HAKMEM_HUGE_PAGES=alwys is not understood; it takes auto, never or always; the nearest is always",
        ),
        ("objective=zz", "HAKMEM_OBJECTIVE=zz is not understood; it takes small, balanced or speed"),
    ],
)
def test_a_refused_option_is_not_ignored_and_only_what_is_near_is_advised(
    build: Path, store: PeerStore, options: str, message: str
) -> None:
    assert stage_error(build, options_peer(store.obtain("hakmem"), options)) == f"hakmem:{options}: {message}"


def test_a_library_that_does_not_serve_is_refused(build: Path) -> None:
    name = ctypes.util.find_library("m")
    assert name is not None
    found = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    path = Path(next(line.split()[-1] for line in found.splitlines() if line.split()[:1] == [name]))
    message = stage_error(build, Peer("libm", "", path, ""))
    assert message.startswith("libm did not serve the process: malloc came from ")


def library_make(folder: Path, name: str, body: str) -> Peer:
    source = folder / f"{name}.c"
    source.write_text("#include <stddef.h>\n" + body)
    library = folder / f"{name}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return Peer(name, "", library, "")


def test_an_allocator_that_crashes_is_one_line(build: Path, tmp_path: Path) -> None:
    peer = library_make(tmp_path, "crashing", "void *malloc(size_t n) { (void)n; __builtin_trap(); }\n")
    assert stage_error(build, peer) == (
        "random_mixed was ended by signal 4 (Illegal instruction) (under crashing)"
    )


def test_a_program_that_fails_in_one_arm_is_one_line(build: Path, tmp_path: Path) -> None:
    body = "void *malloc(size_t n) { (void)n; return NULL; }\nvoid free(void *p) { (void)p; }\n"
    message = stage_error(build, library_make(tmp_path, "refusing", body))
    assert message.startswith("random_mixed exited with 1: random_mixed: malloc(")
    assert message.endswith("returned NULL (under refusing)")


@pytest.mark.parametrize("name", ["my lib:1.so", "lib$ORIGIN.so", "lib\u00e9[b]%20.so"])
def test_a_library_of_any_name_serves(build: Path, store: PeerStore, tmp_path: Path, name: str) -> None:
    """The dynamic linker takes a space, a colon and a dollar of LD_PRELOAD for something else."""
    (tmp_path / name).write_bytes((build / "libhakmem.so").read_bytes())
    with staged(store.checkout) as stage:
        assert arm_stage(stage, arm_parse(str(tmp_path / name), store), "a").name == name
        assert stage.peer(store.obtain("hakmem"), "another: name").name == "another: name"


def test_two_arms_of_one_library_are_two_files(build: Path, store: PeerStore) -> None:
    with staged(Checkout.find(build)) as stage:
        first = arm_stage(stage, store.obtain("hakmem"), "a")
        second = arm_stage(stage, options_peer(store.obtain("hakmem"), "decay=never"), "b")
        assert first.library != second.library
        assert (first.name, second.name) == ("hakmem", "hakmem:decay=never")
        assert ":" not in str(second.library)


def test_an_arm_keeps_what_its_peer_sets() -> None:
    peer = replace(HAKMEM.peer, environment=(("SOME", "1"),))
    assert options_peer(peer, "decay=never").environment == (("SOME", "1"), ("HAKMEM_DECAY", "never"))
