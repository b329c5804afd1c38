"""Instruction counts from Valgrind's callgrind: the second opinion that no noise can reach."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from hakmem_lab.errors import LabError
from hakmem_lab.measure.runner import Arm, environment_make, process_run, service_check
from hakmem_lab.measure.stage import Stage

OUTPUT = "callgrind.out"


def instructions_by_object(lines: Iterable[str]) -> Counter[str]:
    """Each object's own instructions (not its callees') from a callgrind file without compressed names.

    In the file an `ob=` line names the object of what follows; `cob=` names a callee's; a line of
    numbers is a position and its cost, except after `calls=`, where the cost is the callee's.
    """
    counts: Counter[str] = Counter()
    current = ""
    after_calls = False
    for line in lines:
        if line.startswith("ob="):
            current = line[3:].strip()
        elif line.startswith("calls="):
            after_calls = True
        elif line[:1].isdigit() or line[:1] in "+-*":
            if not after_calls:
                counts[current] += int(line.split()[1])
            after_calls = False
    return counts


def valgrind_find() -> str:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise LabError("valgrind is not there: apt-get install valgrind")
    return valgrind


def allocator_instructions(
    stage: Stage, program: str, arguments: Sequence[str], arm: Arm, cpus: tuple[int, ...]
) -> int:
    """Instructions of one run outside the program's own binary and the dynamic loader: what malloc and
    free cost, with all they call, and without the caller's loop and its PLT."""
    staged = stage.program(program)
    output = stage.folder / OUTPUT
    command = [valgrind_find(), "--quiet", "--tool=callgrind", f"--callgrind-out-file={output}"]
    command += ["--compress-strings=no", "--compress-pos=no", str(staged), *arguments]
    line = json.loads(process_run(command, environment_make(arm, 0, preload=True), cpus))
    service_check(line, arm.peer)
    with output.open() as file:
        counts = instructions_by_object(file)
    output.unlink()
    own = (str(staged), "ld-linux", "ld-musl")
    return sum(
        count for name, count in counts.items() if name != own[0] and not Path(name).name.startswith(own[1:])
    )
