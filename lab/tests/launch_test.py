from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.measure.tree import children_of
from hakmem_lab.sight import config, launch
from hakmem_lab.sight.account import account_read
from hakmem_lab.sight.config import config_of_command
from hakmem_lab.sight.launch import Trigger, UnseenError, launched, look
from hakmem_lab.sight.page import NoPageError
from hakmem_lab.sight.process import Process
from hakmem_lab.sight.program import UnservableError, needs_preload
from lab_command import lab
from lab_processes import HEAD, LAB, all_end, limits_until
from toolbox import compile_c

UNTIL_TOLD = ["sleep", "600"]


def python(script: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", script]


def test_the_look_that_was_asked_for(checkout: Checkout) -> None:
    with launched(checkout, UNTIL_TOLD) as running:
        seen = look(running, Trigger(seconds=0.3), lambda process: process.pid)
        assert (seen.value, seen.reached) == (running.pid, True)
        assert 0.3 <= seen.seconds <= running.seconds
        os.kill(running.pid, signal.SIGTERM)


def test_a_script_without_an_interpreter_is_the_sleepers(checkout: Checkout, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$1" >"$2"\n')
    script.chmod(0o755)
    with launched(checkout, [str(script), "a word", str(tmp_path / "told")]) as running:
        assert running.wait() == 0
    assert (tmp_path / "told").read_text() == "a word\n"


def sleepers_of(parent: int) -> list[int]:
    """Its children that run UNTIL_TOLD."""
    return [
        pid for pid in children_of(parent) if Path(f"/proc/{pid}/comm").read_text() == f"{UNTIL_TOLD[0]}\n"
    ]


def test_a_program_ends_with_the_one_that_looks_at_it(build: Path) -> None:
    """Also if that is killed, which nothing can be done about."""
    line = [sys.executable, "-m", "hakmem_lab", "explain", "--build", str(build), "--", *UNTIL_TOLD]
    env = {**os.environ, "PYTHONPATH": str(LAB)}
    with subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as looking:
        deadline = time.monotonic() + 30
        while not (sleepers := sleepers_of(looking.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        looking.kill()
    assert sleepers and all_end(sleepers)


@pytest.mark.parametrize(
    "trigger", [Trigger(seconds=60), Trigger(rss=2 << 30)], ids=["sooner", "with less RSS"]
)
def test_the_last_look_when_it_ends(checkout: Checkout, trigger: Trigger) -> None:
    """Also when its RSS stands still."""
    looks: list[int] = []

    def read(process: Process) -> int:
        looks.append(process.pid)
        if len(looks) == 4:
            os.kill(process.pid, signal.SIGTERM)
        return len(looks)

    with launched(checkout, UNTIL_TOLD) as running:
        seen = look(running, trigger, read)
        assert (seen.value, seen.reached) == (len(looks), False)
        assert seen.seconds <= running.seconds


def test_a_look_at_some_rss(checkout: Checkout) -> None:
    script = "import time; kept = bytearray(b'x' * (80 << 20)); time.sleep(60)"
    with launched(checkout, python(script)) as running:
        seen = look(running, Trigger(rss=60 << 20), lambda process: int(process.status()["VmRSS"].split()[0]))
        os.kill(running.pid, signal.SIGTERM)
        assert seen.reached
        assert seen.value * 1024 >= 60 << 20


def test_the_largest_process_is_looked_at(checkout: Checkout) -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = b\"x\" * (50 << 20); import time; time.sleep(60)'])"
    with launched(checkout, python(script)) as running:
        seen = look(running, Trigger(rss=50 << 20), lambda process: process.pid)
        os.kill(seen.value, signal.SIGTERM)
        assert seen.value != running.pid


def test_one_that_cannot_be_read_is_passed_over(checkout: Checkout) -> None:
    """As a helper on another malloc, which may be the larger one."""
    script = "import subprocess; subprocess.run(['sleep', '60'])"

    def read(process: Process) -> tuple[str, int]:
        if process.name.startswith("python"):
            raise NoPageError("not this one")
        return process.name, process.pid

    with launched(checkout, python(script)) as running:
        name, pid = look(running, Trigger(seconds=0.5), read).value
        os.kill(pid, signal.SIGTERM)
        assert name == "sleep"


def test_one_that_is_never_read(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong is said once, and it is looked at less and less often."""
    looks: list[float] = []

    def read(process: Process) -> str:
        looks.append(running.seconds)
        if len(looks) == 14:
            os.kill(process.pid, signal.SIGTERM)
        raise NoPageError(f"nothing in {process.pid}")

    with launched(checkout, UNTIL_TOLD) as running, pytest.raises(UnseenError, match="nothing in"):
        look(running, Trigger(seconds=0.1), read)
    said = capsys.readouterr().err
    assert said == f"hakmem: nothing in {running.pid}; it is looked at again until it ends\n"
    # One of them was taken because of what was asked for, the others later and later.
    assert looks[-1] >= launch.FIRST_SECONDS * launch.STEP**12


def test_one_that_could_not_be_read_once(checkout: Checkout) -> None:
    """Its books changed too fast, perhaps: it is looked at again, before what was asked for and after."""
    looks: list[int] = []

    class AfterOneLook(Trigger):
        def reached(self, *_: float) -> bool:
            return len(looks) > 0

    def read(process: Process) -> int:
        looks.append(process.pid)
        if len(looks) < 3:
            raise LabError("it makes no sense")
        return process.pid

    with launched(checkout, UNTIL_TOLD) as running:
        seen = look(running, AfterOneLook(), read)
        os.kill(running.pid, signal.SIGTERM)
        assert (seen.value, seen.reached, len(looks)) == (running.pid, True, 3)


def test_a_kernel_that_does_not_list_children(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrapper is not taken for its program in silence."""

    def refuse() -> None:
        raise LabError("no list")

    monkeypatch.setattr(launch, "kernel_check", refuse)
    with launched(checkout, UNTIL_TOLD) as running:
        look(running, Trigger(seconds=0.1), lambda process: process.pid)
        os.kill(running.pid, signal.SIGTERM)
    assert capsys.readouterr().err == "hakmem: no list: only the first is looked at\n"


def test_a_kernel_without_descriptors_of_processes(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 5.3."""

    def refuse(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with launched(checkout, UNTIL_TOLD) as running:
        try:
            seen = look(running, Trigger(seconds=0.1), lambda process: process.pid)
            assert (seen.value, running.ended_within(0.01)) == (running.pid, False)
        finally:
            os.kill(running.pid, signal.SIGTERM)
        assert running.ended_within(20)
        assert running.wait() == 128 + signal.SIGTERM


def test_too_short(checkout: Checkout) -> None:
    with launched(checkout, ["true"]) as running:
        running.wait()
        with pytest.raises(LabError, match="the program ended before it could be looked at"):
            look(running, Trigger(seconds=1), lambda process: process.pid)


@pytest.mark.parametrize(
    ("script", "status", "ended_by"),
    [("raise SystemExit(7)", 7, 0), ("import os; os.kill(os.getpid(), 9)", 137, 9)],
)
def test_its_status_is_passed_on(checkout: Checkout, script: str, status: int, ended_by: int) -> None:
    with launched(checkout, python(script)) as running:
        assert (running.wait(), running.ended_by()) == (status, ended_by)


@pytest.mark.parametrize(
    ("script", "stays"), [("pass", True), ("os.remove(os.environ['HAKMEM_PROOF'])", False)]
)
def test_hakmem_says_in_it_that_it_serves(checkout: Checkout, script: str, stays: bool) -> None:
    with launched(checkout, python(f"import os; {script}")) as running:
        running.wait()
        assert running.proofs() == {running.pid: "served"}
        assert running.can_report() == stays


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, signal.SIGRTMIN + 1])
def test_a_signal_is_passed_on(checkout: Checkout, tmp_path: Path, number: int) -> None:
    ready = tmp_path / "ready"
    script = f"import signal, sys, time; signal.signal({number}, lambda *_: sys.exit(9)); open({str(ready)!r}, 'w'); time.sleep(5)"
    own: list[int] = []
    before = signal.signal(number, lambda number, _: own.append(number))
    try:
        with launched(checkout, python(script)) as running:
            while not ready.exists():
                assert not running.ended_within(0.01)
            os.kill(os.getpid(), number)
            assert running.wait() == 9
        os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)
    assert own == [number]  # by its own handler, which is there again


def test_the_terminals_interrupt_is_the_programs(checkout: Checkout) -> None:
    before = signal.getsignal(signal.SIGINT)
    with launched(checkout, python("import time; time.sleep(0.4)")) as running:
        os.kill(os.getpid(), signal.SIGINT)
        assert running.wait() == 0
    assert signal.getsignal(signal.SIGINT) is before


# ---- what cannot be served ----------------------------------------------------------------------------------


def test_no_such_command(checkout: Checkout) -> None:
    with pytest.raises(LabError, match="nosuch: there is no such command"), launched(checkout, ["nosuch"]):
        pass


def test_a_static_program(checkout: Checkout, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "static", "int main(void) { return 0; }\n", "-static")
    with pytest.raises(UnservableError, match="a static binary"), launched(checkout, [str(program)]):
        pass


def test_a_script_of_a_static_interpreter(checkout: Checkout, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "static", "int main(void) { return 0; }\n", "-static")
    script = tmp_path / "script"
    script.write_text(f"#! {program} -x\n")
    script.chmod(0o755)
    line = rf"script: its interpreter {program}: it is a static binary"
    with pytest.raises(UnservableError, match=line), launched(checkout, [str(script)]):
        pass


def test_a_program_of_another_machine(checkout: Checkout, tmp_path: Path) -> None:
    """Of 32 bits, or of another processor: where the kernel runs it, its linker cannot preload hakmem."""
    for place, value in ((0x04, 1), (0x12, 0xF3)):  # EI_CLASS, e_machine
        program = tmp_path / f"program-{place}"
        content = bytearray(Path("/bin/true").read_bytes())
        content[place] = value
        program.write_bytes(content)
        program.chmod(0o755)
        with pytest.raises(UnservableError, match="built for another machine"):
            needs_preload(str(program), checkout.library)


def test_a_program_that_is_linked_with_hakmem(checkout: Checkout, build: Path, tmp_path: Path) -> None:
    """Served as it is: nothing is preloaded, and there is one copy."""
    source = (
        HEAD
        + """
void *kept;
int main(int count, char **words) {
    kept = filled(100);
    if (count == 1) usleep(400000);
    else while (access(words[1], F_OK) != 0) usleep(1000);
    return 0;
}
"""
    )
    for name, flags in (("linked", ["-rdynamic"]), ("static", ["-static"])):
        program = compile_c(tmp_path / name, source, str(build / "libhakmem.a"), "-pthread", *flags)
        seen_file = tmp_path / f"{name}-was-seen"
        with launched(checkout, [str(program), str(seen_file)]) as running:
            try:
                seen = look(running, Trigger(seconds=0.2), account_read)
            finally:
                seen_file.touch()
            assert running.wait() == 0
            assert running.proofs() == {running.pid: "served"}
        assert [copy.name for copy in seen.value.copies] == [name]
        answer = config_of_command(checkout, [str(program)])
        assert answer.of == f"{program} on its own hakmem"
        done = lab("doctor", "--build", str(build), "--", str(program))
        assert done.returncode == 0, done.stdout


def test_a_program_that_does_not_answer_ends_with_all_it_started(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One into which hakmem does not get, although nothing shows that beforehand."""
    monkeypatch.setattr(config, "needs_preload", lambda _name, _library: False)
    child = tmp_path / "child"
    script = f"sleep 600 & echo $! >{child}.new; mv {child}.new {child}; wait"
    for seconds in limits_until(child):
        monkeypatch.setattr(config, "ANSWER_SECONDS", seconds)
        with pytest.raises(LabError, match="went on to its main"):
            config_of_command(checkout, ["sh", "-c", script])
    assert all_end([int(child.read_text())])


def test_a_program_with_its_own_allocator(checkout: Checkout, tmp_path: Path) -> None:
    source = (
        "#include <stddef.h>\nstatic char room[1 << 20]; static size_t used;\n"
        "void *malloc(size_t n) { void *at = room + used; used += (n + 15) & ~(size_t)15; return at; }\n"
        "void free(void *block) { (void)block; }\n"
        "int main(void) { return malloc(1) == NULL; }\n"
    )
    program = compile_c(tmp_path / "own", source, "-rdynamic")
    with pytest.raises(UnservableError, match="it defines malloc"), launched(checkout, [str(program)]):
        pass


def test_a_library_whose_path_cannot_be_named(checkout: Checkout, tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "libhakmem.so").write_bytes(checkout.library.read_bytes())
    with (
        pytest.raises(LabError, match="a space or a colon"),
        launched(Checkout(checkout.root, folder), ["true"]),
    ):
        pass
