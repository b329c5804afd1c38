"""The stress test, and four programs with a known output, and how each says that memory is lacking.

The scripts are short, and have the allocator make every kind of call that it makes: memory is committed,
grown by moving, given back, also out of what sleeping threads keep, and asked for again. Of two texts that grow in turn
one always moves: they are in each other's way.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

SQLITE = """
CREATE TABLE numbers (n INTEGER PRIMARY KEY, name TEXT);
WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 20000)
INSERT INTO numbers SELECT n, 'name ' || (n * 7919) FROM up;
CREATE INDEX by_name ON numbers (name);
SELECT count(*), sum(n), length(group_concat(name)) FROM numbers;
DROP TABLE numbers;
SELECT length(hex(zeroblob(8000000)));
SELECT length(replace(hex(zeroblob(2000000)), '0', 'abc'));
"""
SQLITE_NAMES = ",".join(f"name {n * 7919}" for n in range(1, 20001))
SQLITE_OUTPUT = f"20000|{sum(range(20001))}|{len(SQLITE_NAMES)}\n16000000\n12000000\n"

# Of threading's own threads the interpreter waits for ever when they could not begin for lack of memory;
# and it ends others by pthread_exit, which aborts where glibc cannot load libgcc.
PYTHON = """
import ctypes, os, _thread
trim = ctypes.CDLL(None).malloc_trim
def held():
    lock = _thread.allocate_lock()
    lock.acquire()
    return lock
def work(seed, sums, enough, done):
    try:
        rows = {f"{seed} {n}": [n] * (n % 50) for n in range(3000)}
        sums[seed] = sum(sum(row) for row in rows.values())
        del rows
        with enough:
            pass
    finally:
        done.release()
try:
    for turn in range(2):
        sums, enough, done = [0, 0], held(), [held(), held()]
        for seed in range(2):
            _thread.start_new_thread(work, (seed, sums, enough, done[seed]))
        texts = bytearray(), bytearray()
        for _ in range(100):
            for text in texts:
                text += b"x" * 200000
        length = sum(text.count(b"x") for text in texts)
        del text, texts
        trim(0)
        enough.release()
        for lock in done:
            lock.acquire(timeout=10)
        trim(0)
        if 0 in sums:
            raise MemoryError
        print(turn, *sums, length)
except (MemoryError, RuntimeError):
    os.write(2, b"no memory\\n")
    os._exit(1)
"""
PYTHON_SUM = sum(n * (n % 50) for n in range(3000))
PYTHON_OUTPUT = "".join(f"{turn} {PYTHON_SUM} {PYTHON_SUM} 40000000\n" for turn in range(2))

PERL = """
use strict; use warnings;
for my $turn (1 .. 2) {
    my %rows = map { ("$turn $_" => [$_, "x" x ($_ % 300)]) } 1 .. 5000;
    print length(join ',', sort keys %rows), "\\n";
    my $text = '';
    $text .= 'abcdefghij' x 10000 for 1 .. 200;
    print $text =~ tr/a-j//, "\\n";
    %rows = ();
    select undef, undef, undef, 0.03;
}
"""
PERL_KEYS = len(",".join(f"1 {n}" for n in range(1, 5001)))
PERL_OUTPUT = f"{PERL_KEYS}\n20000000\n" * 2

FILES, LINES = 20, 20000
WHO = {"NAME": "a", "EMAIL": "a@localhost", "DATE": "1700000000 +0000"}
GIT_IDENTITY = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in WHO.items()}
GIT_ENVIRONMENT = {**GIT_IDENTITY, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
GIT_OUTPUT = "".join(f"HEAD:file{n:02}:{sum('7' in str(i) for i in range(LINES))}\n" for n in range(FILES))


@dataclass(frozen=True)
class Program:
    """A command, what it prints when all is well, and what it may say when it ends for lack of memory."""

    name: str
    command: tuple[str, ...]
    output: str | re.Pattern[str]
    no_memory: re.Pattern[str] | None
    """What its standard error must hold then; None: it goes on with what it has, and never ends so."""
    stdin: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    begins_silently: bool = False
    """Where it cannot even begin it ends without a word."""

    def has_all_of(self, text: str) -> bool:
        """Whether TEXT is the whole output."""
        return text == self.output if isinstance(self.output, str) else bool(self.output.fullmatch(text))

    def begins_with(self, text: str) -> bool:
        """Whether the output may be cut off after TEXT."""
        return self.output.startswith(text) if isinstance(self.output, str) else not text

    def lacked_memory(self, output: str, errors: str) -> bool:
        """Whether it said so, or ended before it could say anything, if it does."""
        if self.begins_silently and not output and not errors:
            return True
        return self.no_memory is not None and bool(self.no_memory.search(errors))


def programs(folder: Path, build: Path) -> list[Program]:
    """Those that this machine has; FOLDER, which is empty, gets the files that they work on. The stress test is of the
    directory BUILD."""
    found = [
        Program(
            "stress",
            (str(build / "tests/failures/stress"), "4", "1", "1", "may-fail"),
            re.compile(r"stress: 4 threads, .*, no error\n"),
            None,
        ),
        Program(
            "sqlite3",
            ("sqlite3", "-bail", ":memory:"),
            SQLITE_OUTPUT,
            re.compile(r"out of memory"),
            stdin=SQLITE,
        ),
        Program(
            "python3",
            ("/usr/bin/python3", "-I", "-S", "-c", PYTHON),
            PYTHON_OUTPUT,
            re.compile(r"^no memory$|MemoryError|memory allocation failed", re.MULTILINE),
            variables={"PYTHONMALLOC": "malloc"},
        ),
        Program(
            "git",
            ("git", "grep", "--threads=2", "--count", "-e", "7", "HEAD"),
            GIT_OUTPUT,
            re.compile(r"[Oo]ut of memory"),
            variables={**GIT_ENVIRONMENT, "GIT_DIR": str(folder / "repository/.git")},
        ),
        Program(
            "perl", ("perl", "-e", PERL), PERL_OUTPUT, re.compile(r"Out of memory"), begins_silently=True
        ),
    ]
    present = [program for program in found if shutil.which(program.command[0])]
    if any(program.name == "git" for program in present):
        make_repository(folder / "repository")
    return present


def make_repository(where: Path) -> None:
    """A commit of files with numbered lines."""
    where.mkdir()
    for number in range(FILES):
        (where / f"file{number:02}").write_text("".join(f"{line}\n" for line in range(LINES)))
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *arguments], cwd=where, env=os.environ | GIT_ENVIRONMENT, check=True)
