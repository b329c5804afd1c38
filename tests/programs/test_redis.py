"""redis-server behind a socket of its own, and its benchmark."""

import random
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hakmem_lab.footprint_inputs import redis_commands
from trial import Side, Trial, wait_until

TESTS = "set,get,incr,lpush,rpop,sadd,hset,spop,zadd,zpopmin,lrange_300,mset"
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
    """Its benchmark for some minutes, then many keys"""
    check(trial, requests=600_000, keys=400_000)
