"""The instructions of the fast paths, kept as reviewed text per build kind in tests/golden/.

After a change that is meant: python -m pytest tests/system/test_fast_path.py --update, and review the
difference. The text is compared where the compiler is the one that the text was made with; the limits
hold everywhere.
"""

import platform
from pathlib import Path

import pytest
from fast_path import Instruction, compiler_of, disassemble, entry_points, follow
from toolbox import ROOT, Build, cannot_run, tool

MOST_MALLOC = (17, 2)  # instructions with the return, conditional branches
MOST_FREE = (21, 3)
LIMITS = {
    "malloc": MOST_MALLOC,
    "_Znwm": MOST_MALLOC,
    "free": MOST_FREE,
    "_ZdlPv": MOST_FREE,
}
# clang 14 clears the upper half of a register that is clear: one instruction, no cycle.
SLACK = {"clang": 1}
PRESETS = [
    "release",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("profiling", "clang", "pgo")),
]
# The last has no text: threads interleave differently in every training.

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86-64 code")


def library_of(preset: str, build: Build) -> Path:
    directory = build.directory if preset == "release" else ROOT / f"build-{preset}"
    library = directory / "libhakmem.so"
    if not library.exists():
        cannot_run(f"needs ./hakmem build {preset}")
    return library


@pytest.mark.parametrize("preset", PRESETS)
def test_stays_within_limits(preset: str, build: Build) -> None:
    library = library_of(preset, build)
    code = disassemble(tool("objdump"), library)
    entries = entry_points(library)
    too_much = []
    for symbol, (instructions, branches) in LIMITS.items():
        path = follow(code, symbol, entries[symbol])
        most = instructions + SLACK.get(preset, 0)
        within = len(path.instructions) <= most and path.conditional_branches <= branches
        if not within or any(is_forbidden(step) for step in path.instructions):
            too_much.append(path.text())
    assert not too_much, "\n".join(too_much)


def is_forbidden(instruction: Instruction) -> bool:
    """Calls, and what other processors must agree to."""
    locks = "lock " in instruction.text or instruction.mnemonic in {"xchg", "mfence"}
    return locks or instruction.mnemonic in {"call", "syscall", "rdtsc"}


@pytest.mark.parametrize("preset", PRESETS[:-1])
def test_is_the_reviewed_text(preset: str, build: Build, update: bool) -> None:
    library = library_of(preset, build)
    golden = ROOT / f"tests/golden/fast_path.{preset}.txt"
    code = disassemble(tool("objdump"), library)
    entries = entry_points(library)
    compiler = compiler_of(library)
    text = f"compiler: {compiler}\n\n" + "\n".join(
        follow(code, symbol, entries[symbol]).text() for symbol in LIMITS
    )
    if update:
        golden.write_text(text)
    reviewed = golden.read_text()
    if reviewed.splitlines()[0] != text.splitlines()[0]:
        pytest.skip(f"the reviewed text is of another compiler than {compiler}")
    assert text == reviewed


def test_counts_what_it_should() -> None:
    lines = {
        "mov    rax,QWORD PTR fs:0x0": (True, False),
        "mov    QWORD PTR [rax+0x8],rdx": (False, True),
        "add    QWORD PTR [rax],0x8": (True, True),
        "cmp    rdi,QWORD PTR [rax]": (True, False),
        "cmp    QWORD PTR [rax],rdi": (True, False),
        "lea    rax,[rdx+rdx*1]": (False, False),
        "push   rbx": (False, True),
        "ret": (False, False),
    }
    for text, expected in lines.items():
        instruction = Instruction(0, text, None)
        assert (instruction.reads, instruction.writes) == expected, text


def test_follows_jumps_but_not_branches() -> None:
    code = {
        0: Instruction(0, "test   rdi,rdi", None),
        3: Instruction(3, "je     20 <slow>", None),
        5: Instruction(5, "jmp    10 <tail>", None),
        7: Instruction(7, "call   30 <never>", None),
        16: Instruction(16, "lock add DWORD PTR [rdi],0x1", None),
        20: Instruction(20, "ret", None),
    }
    path = follow(code, "f", 0)
    assert [step.mnemonic for step in path.instructions] == ["test", "je", "jmp", "add", "ret"]
    assert path.conditional_branches == 1
    assert (path.loads, path.stores) == (1, 1)
    assert any(is_forbidden(step) for step in path.instructions)
