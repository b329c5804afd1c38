"""Programs that people run, doing real work on hakmem. Each test proves that hakmem served the program and
checks what the program produced."""

import hashlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from toolbox import COMMAND, Build, has_statistics, run, run_well, tool

pytestmark = pytest.mark.slow


def test_bash(build: Build) -> None:
    script = """
    for ((i = 0; i < 20000; i++)); do a[i]="item $i"; done
    declare -A map
    for ((i = 0; i < 2000; i++)); do map[key$i]=$((i * i)); done
    text=$(printf '%s,' "${a[@]}")
    echo ${#a[@]} "${a[19999]}" ${map[key1999]} ${#text} $(echo "$(echo nested)")
    """
    assert build.serve(tool("bash"), "-c", script) == "20000 item 19999 3996001 208890 nested\n"


def test_python(build: Build) -> None:
    script = """
import hashlib, json, threading
def work(seed, results):
    rows = [{"id": i, "name": f"row {i * seed}", "tags": [str(i)] * 5} for i in range(6000)]
    for _ in range(3):
        rows = json.loads(json.dumps(rows))
    results.append(hashlib.sha256(json.dumps(rows).encode()).hexdigest())
results = []
threads = [threading.Thread(target=work, args=(7, results)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*set(results))
"""
    rows = [{"id": i, "name": f"row {i * 7}", "tags": [str(i)] * 5} for i in range(6000)]
    expected = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    assert build.serve(sys.executable, "-c", script, env={"PYTHONMALLOC": "malloc"}) == f"{expected}\n"


def test_git(build: Build, tmp_path: Path) -> None:
    """History, packing, and a check of every object. The processes that git starts are served too."""
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@localhost",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@localhost",
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(tmp_path),
    }

    def git(*arguments: str) -> str:
        return build.serve(tool("git"), *arguments, env=identity, cwd=tmp_path)

    git("init", "--quiet")
    for commit in range(5):
        for number in range(100):
            (tmp_path / f"file{number}").write_text(f"{commit} {number}\n" * 200)
        git("add", ".")
        git("commit", "--quiet", "--message", f"commit {commit}")
    git("gc", "--quiet", "--aggressive")
    git("fsck", "--full", "--strict")
    assert git("rev-list", "--count", "HEAD") == "5\n"
    assert git("show", "HEAD~2:file42").splitlines() == ["2 42"] * 200


C_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) {
    int *numbers = malloc(100000 * sizeof *numbers);
    for (int i = 0; i < 100000; i++) numbers[i] = (int)((i * 7919L) % 100003);
    qsort(numbers, 100000, sizeof *numbers, compare);
    printf("%d %d\\n", numbers[0], numbers[99999]);
    free(numbers);
    return 0;
}
"""
CXX_PROGRAM = """
#include <iostream>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>
int main() {
    std::vector<std::thread> threads;
    std::vector<std::map<std::string, std::vector<int>>> maps(4);
    for (auto &map : maps)
        threads.emplace_back([&map] {
            for (int i = 0; i < 20000; i++) map["key" + std::to_string(i % 500)].push_back(i);
        });
    for (auto &thread : threads) thread.join();
    std::size_t total = 0;
    for (auto &map : maps)
        for (auto &entry : map) total += entry.second.size();
    int caught = 0;
    for (int i = 0; i < 1000; i++)
        try { throw std::runtime_error(std::string(i, 'x')); } catch (const std::exception &) { caught++; }
    bool refused = false;
    try { std::vector<char> huge(static_cast<std::size_t>(-1) / 4); } catch (const std::bad_alloc &) { refused = true; }
    std::cout << total << ' ' << caught << ' ' << refused << ' '
              << std::regex_match("abc123", std::regex("[a-z]+[0-9]+")) << '\\n';
}
"""


def test_gcc(build: Build, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(C_PROGRAM)
    build.serve(tool("gcc"), "-O2", "-g", tmp_path / "program.c", "-o", tmp_path / "program")
    assert build.serve(tmp_path / "program") == "0 100002\n"


def test_cxx(build: Build, tmp_path: Path) -> None:
    (tmp_path / "program.cc").write_text(CXX_PROGRAM)
    build.serve(tool("g++"), "-O1", "-pthread", tmp_path / "program.cc", "-o", tmp_path / "program")
    assert build.serve(tmp_path / "program") == "80000 1000 1 1\n"


def test_compiled_code_is_the_same_as_without_hakmem(build: Build, tmp_path: Path) -> None:
    (tmp_path / "program.cc").write_text(CXX_PROGRAM)
    line = [tool("g++"), "-O1", "-c", tmp_path / "program.cc", "-o", tmp_path / "program.o"]
    run_well(*line)
    expected = (tmp_path / "program.o").read_bytes()
    build.serve(*line)
    assert (tmp_path / "program.o").read_bytes() == expected


def test_perl(build: Build) -> None:
    script = """
    my %count; my @words = map { "word" . ($_ * 7919 % 1000) } 1 .. 100000;
    $count{$_}++ for @words;
    my $text = join ' ', sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
    $text =~ s/word(\\d+)/$1/g;
    print scalar(keys %count), ' ', $count{word7}, ' ', length($text), "\\n";
    """
    assert build.serve(tool("perl"), "-e", script) == "1000 100 3889\n"


def test_node(build: Build) -> None:
    script = """
    const { Worker, isMainThread, parentPort } = require('worker_threads');
    const crypto = require('crypto');
    const source = `
      const { parentPort } = require('worker_threads');
      const rows = Array.from({ length: 20000 }, (_, i) => ({ i, name: 'row ' + i }));
      const buffers = Array.from({ length: 500 }, (_, i) => Buffer.alloc(1000 + i, i));
      parentPort.postMessage(JSON.parse(JSON.stringify(rows)).length + Buffer.concat(buffers).length);
    `;
    const hash = crypto.createHash('sha256').update('x'.repeat(1000000)).digest('hex');
    Promise.all([1, 2].map(() => new Promise((done, fail) => {
      const worker = new Worker(source, { eval: true });
      worker.on('message', done); worker.on('error', fail);
    }))).then((sums) => console.log(hash, ...sums));
    """
    digest = hashlib.sha256(b"x" * 1000000).hexdigest()
    total = 20000 + sum(1000 + i for i in range(500))
    assert build.serve(tool("node"), "-e", script) == f"{digest} {total} {total}\n"


JAVA_PROGRAM = """
import java.util.*;
import java.util.stream.*;
import java.util.zip.*;
public class Work {
    public static void main(String[] arguments) throws Exception {
        Map<Integer, Long> groups = IntStream.range(0, 200000).parallel().boxed()
            .collect(Collectors.groupingBy(i -> i % 97, Collectors.counting()));
        byte[] data = new byte[2000000];
        for (int i = 0; i < data.length; i++) data[i] = (byte) (i * 31 % 251);
        Deflater deflater = new Deflater(); // its buffers are malloc's
        deflater.setInput(data);
        deflater.finish();
        byte[] packed = new byte[data.length];
        int length = deflater.deflate(packed);
        deflater.end();
        Inflater inflater = new Inflater();
        inflater.setInput(packed, 0, length);
        byte[] again = new byte[data.length];
        inflater.inflate(again);
        inflater.end();
        System.out.println(groups.size() + " " + groups.get(5) + " " + Arrays.equals(data, again));
    }
}
"""


def test_java(build: Build, tmp_path: Path) -> None:
    (tmp_path / "Work.java").write_text(JAVA_PROGRAM)
    build.serve(tool("javac"), "-d", tmp_path, tmp_path / "Work.java")
    assert build.serve(tool("java"), "-Xmx256m", "-cp", tmp_path, "Work") == "97 2062 true\n"


def test_sqlite(build: Build, tmp_path: Path) -> None:
    script = """
    CREATE TABLE numbers (n INTEGER PRIMARY KEY, square INTEGER, name TEXT);
    WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 100000)
    INSERT INTO numbers SELECT n, n * n, 'name ' || (n * 7919 % 100003) FROM up;
    CREATE INDEX by_name ON numbers (name);
    DELETE FROM numbers WHERE n % 3 = 0;
    VACUUM;
    SELECT count(*), sum(square), (SELECT n FROM numbers WHERE name = 'name 7919') FROM numbers;
    PRAGMA integrity_check;
    """
    squares = sum(n * n for n in range(1, 100001) if n % 3)
    output = build.serve(tool("sqlite3"), tmp_path / "data.db", stdin=script)
    assert output == f"66667|{squares}|1\nok\n"


@pytest.fixture
def redis(build: Build, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A redis-server on hakmem behind a socket of its own, with its standard error kept."""
    address = tmp_path / "socket"
    options = f"--port 0 --unixsocket {address} --dir {tmp_path} --save '' --appendonly no --enable-debug-command local"
    server = subprocess.Popen(
        ["sh", "-c", f'exec "$0" run --stats -- "$1" {options}', str(COMMAND), tool("redis-server")],
        env=build.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 20
    while not answers(address) and server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    yield server, address
    if server.poll() is None:
        server.terminate()
    server.communicate(timeout=20)


def answers(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(address))
        except OSError:
            return False
    return True


def test_redis(redis: tuple[subprocess.Popen[str], Path]) -> None:
    server, address = redis
    client = tool("redis-cli")

    def ask(*words: str) -> str:
        return run_well(client, "-s", address, *words).strip()

    benchmark = run(
        *[tool("redis-benchmark"), "-s", address, "-n", "30000", "-c", "20", "-r", "5000", "-d", "300"],
        *["-P", "8", "-t", "set,get,lpush,lpop,sadd,hset,zadd,mset", "-q"],
    )
    assert benchmark.returncode == 0, benchmark.stderr
    rates = re.findall(r"([A-Z]+).*?: ([0-9.]+) requests per second", benchmark.stdout)
    assert len(rates) >= 8
    assert all(float(rate) > 0 for _, rate in rates)
    for number in range(50):
        ask("SET", f"check:{number}", "v" * (number * 97 + 1))
    for number in range(50):
        assert ask("GET", f"check:{number}") == "v" * (number * 97 + 1)
    assert ask("SAVE") == "OK"
    assert ask("DEBUG", "RELOAD") == "OK"
    assert ask("STRLEN", "check:49") == str(49 * 97 + 1)
    ask("FLUSHALL")
    assert ask("DBSIZE") == "0"
    run(client, "-s", address, "SHUTDOWN", "NOSAVE")
    _, errors = server.communicate(timeout=20)
    assert server.returncode == 0
    assert has_statistics(errors)


def test_redis_benchmark_itself(build: Build, redis: tuple[subprocess.Popen[str], Path]) -> None:
    _, address = redis
    output = build.serve(tool("redis-benchmark"), "-s", address, "-n", "5000", "-t", "set,get", "-q")
    assert output.count("requests per second") >= 2


def test_every_served_process_says_so(build: Build) -> None:
    """The children of a served program are served as well."""
    result = build.run("bash", "-c", "bash -c :; exit 3", options=("--stats",))
    assert result.returncode == 3
    assert result.stderr.count("hakmem: statistics of") >= 2
