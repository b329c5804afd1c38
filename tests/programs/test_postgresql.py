"""PostgreSQL in a cluster of its own, by its benchmark. The processes that matter are its backends: one for each
connection, started by fork."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT

import pytest
from toolbox import run, tool
from trial import Side, Trial

SETTINGS = "-c fsync=off -c listen_addresses= -c jit_above_cost=1000 -c jit_optimize_above_cost=1000 -c log_min_messages=warning"

# What pgbench did is the same for the same seed, in whatever order its clients came; so each table's sum is.
SUMS = """
SELECT sum(abalance), count(*), (SELECT sum(tbalance) FROM pgbench_tellers),
    (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM pgbench_history),
    (SELECT count(*) FROM pgbench_history) FROM pgbench_accounts
"""
ACCOUNTS = "SELECT md5(string_agg(aid || ':' || abalance, ',' ORDER BY aid)) FROM pgbench_accounts"
QUERIES = """
SELECT count(*), md5(string_agg(key || ':' || total, ',' ORDER BY key)) FROM (
    SELECT n % 977 AS key, sum(n) AS total FROM generate_series(1, 300000) n GROUP BY key) grouped;
SELECT md5(string_agg(word, ' ' ORDER BY word)) FROM (
    SELECT DISTINCT regexp_replace(md5(n::text), '[0-9]+', '', 'g') AS word FROM generate_series(1, 20000) n) words;
WITH RECURSIVE up(n, list) AS (SELECT 1, '[]'::jsonb UNION ALL
    SELECT n + 1, list || to_jsonb(n) FROM up WHERE n < 1000) SELECT max(jsonb_array_length(list)) FROM up;
SELECT sum(a.abalance::bigint * b.bid) FROM pgbench_accounts a JOIN pgbench_accounts b ON a.aid = b.aid % 5000 + 1;
"""


def server_command(name: str) -> Path:
    """Debian keeps the server's commands in a folder for each version, out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return found[-1] if found else Path(tool(name))


@contextmanager
def cluster(side: Side) -> Iterator[None]:
    """A server, until the block ends. It refuses to run as root."""
    user = "postgres" if os.getuid() == 0 else None
    if user is not None:
        shutil.chown(side.folder, user)
    make = ["-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync"]
    side.run(server_command("initdb"), *make, user=user)
    command = [server_command("postgres"), "-D", "data", "-k", side.folder, *SETTINGS.split()]
    waiting = [tool("pg_isready"), "-h", side.folder]
    with side.daemon(*command, ready=lambda: run(*waiting).returncode == 0, stop=SIGINT, user=user):
        yield


def check(trial: Trial, scale: int, transactions: int) -> None:
    trial.program("postgres", "--version", path=server_command("postgres"))
    clients = 8

    def work(side: Side) -> list[str]:
        where = ["-h", side.folder, "-U", "postgres"]

        def ask(query: str) -> str:
            return side.run(
                tool("psql"), *where, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", stdin=query
            )

        with cluster(side):
            pgbench = [trial.program("pgbench"), *where]
            side.run(*pgbench, "-i", "-q", "-s", str(scale), "postgres")
            load = ["-c", str(clients), "-j", "2", "-t", str(transactions), "--random-seed", "7"]
            report = side.run(*pgbench, *load, "postgres", timeout=900)
            assert "number of failed transactions: 0 " in report
            pid = int(ask("SELECT pg_backend_pid()"))
            answers = [ask(query) for query in (SUMS, ACCOUNTS, QUERIES)]
        side.prove(pid)
        assert side.build is None or side.served["postgres"] > clients
        return answers

    sums, *_ = trial.compare(work)
    accounts, count, tellers, branches, history, rows = sums.strip().split("|")
    assert accounts == tellers == branches == history
    assert (int(count), int(rows)) == (scale * 100_000, clients * transactions)


def test_postgresql(trial: Trial) -> None:
    """pgbench with 8 clients, whose balances must agree; aggregation, JSON, joins by compiled code"""
    check(trial, scale=1, transactions=150)


@pytest.mark.soak
def test_postgresql_long(trial: Trial) -> None:
    """pgbench with 8 clients for longer, then the same questions"""
    check(trial, scale=5, transactions=4000)
