"""The programs whose memory is compared, and their inputs, which are made anew for each study from its seed.

Each is a command, run under bench/peak_memory. The largest of its processes counts, and must be the expected one.
Everything a program does is determined by its input, so that every allocator serves the same requests.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING
from hakmem_lab.workloads.cells import SEED_PLACE
from hakmem_lab.workloads.find import is_meant
from hakmem_lab.workloads.redis_server import command

INPUTS_PLACE = "{inputs}"
BENCH_PLACE = "{bench}"
"""Placeholders in an argument: the folder of the inputs, and that of the programs of bench/."""

SHARED = Path(__file__).parent / "programs/inputs"
"""Inputs that the program files use, too."""

PEAK = "peak_rss_kib"
AT_EXIT = "rss_kib"
ANONYMOUS = "anonymous_kib"
"""The part of what it held at exit that no file backs."""


@dataclass(frozen=True)
class Program:
    name: str
    command: tuple[str, ...]
    process: str
    """The process that must turn out to be the largest."""
    tools: tuple[str, ...] = ()
    """Commands that must be installed."""
    at_exit: str = ""
    """If this says at what moment, its memory at exit is a row of its own."""

    def filled(self, inputs: Path, bench: Path, seed: int) -> list[str]:
        places = {INPUTS_PLACE: str(inputs), BENCH_PLACE: str(bench), SEED_PLACE: str(seed)}
        return [_fill(argument, places) for argument in self.command]


def _fill(argument: str, places: dict[str, str]) -> str:
    for place, text in places.items():
        argument = argument.replace(place, text)
    return argument


def _python(name: str, items: int) -> Program:
    environment = ("env", "PYTHONMALLOC=malloc", "PYTHONHASHSEED=0")
    script = (f"{INPUTS_PLACE}/objects.py", str(items), SEED_PLACE)
    return Program(name, (*environment, "python3", "-I", *script), "python3", ("python3",))


def _git(name: str, *arguments: str) -> Program:
    return Program(name, ("git", "-C", f"{INPUTS_PLACE}/repository", *arguments), "git", ("git",))


def _random_mix(slots: int) -> Program:
    arguments = ("2000000", str(slots), SEED_PLACE, "16", "1024")
    return Program(f"random mix, {slots} slots", (f"{BENCH_PLACE}/random_mixed", *arguments), "random_mixed")


PROGRAMS = (
    _python("python3, large", 300_000),
    _python("python3, small", 20_000),
    Program(
        "g++",
        ("g++", "-std=c++17", "-O1", "-S", "-o", f"{INPUTS_PLACE}/out.s", f"{INPUTS_PLACE}/heavy.cpp"),
        "cc1plus",
        ("g++",),
    ),
    _git("git repack", "repack", "-a", "-d", "-f", "-q", "--window=50", "--depth=50"),
    _git("git log -p", "log", "-p", "--stat"),
    Program(
        "sqlite3",
        (
            *("sqlite3", "-batch", "-init", "/dev/null", ":memory:"),
            *(f".parameter set :seed {SEED_PLACE}", ".parameter set :rows 150000"),
            f".read '{INPUTS_PLACE}/database.sql'",
        ),
        "sqlite3",
        ("sqlite3",),
    ),
    Program(
        "redis-server",
        ("sh", f"{INPUTS_PLACE}/redis.sh", f"{INPUTS_PLACE}/redis.commands"),
        "redis-server",
        ("redis-server", "redis-cli"),
        at_exit="10 s after its load",
    ),
    _random_mix(256),
    _random_mix(8192),
)


def programs_chosen(words: list[str]) -> list[Program]:
    names = [one.name for one in PROGRAMS]
    chosen = [one for one in PROGRAMS if not words or any(is_meant(one.name, word, names) for word in words)]
    if not chosen:
        raise LabError(f"no program is named like '{', '.join(words)}'; there are: {'; '.join(names)}")
    return chosen


# ---- inputs -----------------------------------------------------------------------------------------------

REDIS = """\
# The server and its client both run on the allocator; the server is by far the larger.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
redis-server --port 0 --unixsocket "$folder/s" --dir "$folder" --save "" --appendonly no >"$folder/log" 2>&1 &
server=$!
tries=0
until redis-cli -s "$folder/s" ping >"$folder/pong" 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || { tail -n 1 "$folder/log" >&2; exit 1; }
    sleep 0.05
done
redis-cli -s "$folder/s" --pipe <"$1" >"$folder/reply" || { tail -n 1 "$folder/reply" >&2; exit 1; }
sleep 10
redis-cli -s "$folder/s" shutdown nosave
wait "$server"
"""


def inputs_make(folder: Path, seed: int) -> None:
    """Writes all inputs to an empty FOLDER, except the repository, which git has to make."""
    folder.mkdir()
    rng = random.Random(seed)
    for name in ("objects.py", "heavy.cpp", "database.sql"):
        shutil.copy(SHARED / name, folder)
    (folder / "redis.sh").write_text(REDIS, ENCODING)
    (folder / "redis.commands").write_bytes(redis_commands(rng, keys=120_000))


def redis_commands(rng: random.Random, keys: int) -> bytes:
    """Values of 16 B to 2 KiB under many keys; then every other key is deleted and values of other sizes are added;
    at last two thirds of the remaining ones are deleted, so that what the server then holds differs from its peak."""
    filler = b"v" * 2048

    def size() -> int:
        return int(16 * 128 ** rng.random())

    parts = [command(b"SET", b"key:%d" % number, filler[: size()]) for number in range(keys)]
    gone = rng.sample(range(keys), keys // 2)
    parts += [command(b"DEL", b"key:%d" % number) for number in gone]
    parts += [command(b"SET", b"new:%d" % number, filler[: size() // 2 + 16]) for number in range(keys // 2)]
    parts += [
        command(b"HSET", b"hash:%d" % (number % 2000), b"field:%d" % number, filler[: number % 100 + 1])
        for number in range(keys // 2)
    ]
    left = [b"key:%d" % number for number in sorted(set(range(keys)) - set(gone))]
    left += [b"new:%d" % number for number in range(keys // 2)]
    parts += [command(b"DEL", name) for name in rng.sample(left, len(left) * 2 // 3)]
    return b"".join(parts)


def repository_stream(rng: random.Random, commits: int = 400, files: int = 60) -> bytes:
    """Input for `git fast-import`: files of some hundred lines, of which each commit changes a few."""
    words = [f"{rng.getrandbits(48):x}" for _ in range(5000)]

    def line() -> str:
        return " ".join(rng.choice(words) for _ in range(rng.randrange(2, 12)))

    contents = [[line() for _ in range(rng.randrange(50, 1500))] for _ in range(files)]
    parts: list[bytes] = []
    for number in range(commits):
        head = f"commit refs/heads/main\nmark :{number + 1}\n"
        who = f"committer Some One <some@one> {1_600_000_000 + 3600 * number} +0000\n"
        message = f"Change {number}\n"
        parts.append(f"{head}{who}data {len(message)}\n{message}".encode())
        if number:
            parts.append(f"from :{number}\n".encode())
        for index in range(files) if number == 0 else rng.sample(range(files), 4):
            lines = contents[index]
            for _ in range(rng.randrange(1, 20)):
                lines[rng.randrange(len(lines))] = line()
            data = "\n".join(lines).encode()
            parts.append(f"M 100644 inline file-{index}.txt\ndata {len(data)}\n".encode() + data + b"\n")
    return b"".join(parts)
