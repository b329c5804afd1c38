"""A redis-server of our own, served by one allocator, with a socket in its folder."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hakmem_lab.errors import LabError
from hakmem_lab.measure.runner import Arm, Conditions, environment_make
from hakmem_lab.processes import pinned_to

SERVER = "redis-server"
OPTIONS = (
    *("--port", "0", "--save", "", "--appendonly", "no"),
    *("--rdbcompression", "no", "--rdbchecksum", "no", "--hz", "10"),
)
START_SECONDS = 20.0
REPLY_SECONDS = 60.0
BATCH = 500
"""Commands sent before their replies are read."""


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


@dataclass(frozen=True)
class Redis:
    process: subprocess.Popen[bytes]
    stream: BinaryIO

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, *words: str) -> str:
        """The reply: one line, or a text of several lines."""
        self.stream.write(command(*(word.encode() for word in words)))
        self.stream.flush()
        line = self._line()
        if line[:1] != b"$":
            return line[1:].decode()
        text = self.stream.read(int(line[1:]))
        self.stream.read(2)
        return text.decode()

    def send(self, commands: Iterable[bytes]) -> None:
        """Commands whose replies are one line each."""
        batch: list[bytes] = []
        for one in commands:
            batch.append(one)
            if len(batch) == BATCH:
                self._flush(batch)
        self._flush(batch)

    def info(self, section: str) -> dict[str, str]:
        pairs = (line.partition(":") for line in self.ask("INFO", section).splitlines())
        return {key: value.strip() for key, colon, value in pairs if colon}

    def _flush(self, batch: list[bytes]) -> None:
        self.stream.write(b"".join(batch))
        self.stream.flush()
        for _ in batch:
            self._line()
        batch.clear()

    def _line(self) -> bytes:
        line = self.stream.readline()
        if not line.endswith(b"\r\n") or line[:1] == b"-":
            raise LabError(f"{SERVER} answered: {line.strip().decode(errors='replace') or 'nothing'}")
        return line[:-2]


@contextmanager
def redis_start(
    folder: Path, arm: Arm, conditions: Conditions, extra: dict[str, str] | None = None
) -> Iterator[Redis]:
    """In FOLDER, which must not exist and is removed afterwards."""
    folder.mkdir()
    try:
        with _started(folder, arm, conditions, extra or {}) as redis:
            yield redis
    finally:
        shutil.rmtree(folder)


@contextmanager
def _started(folder: Path, arm: Arm, conditions: Conditions, extra: dict[str, str]) -> Iterator[Redis]:
    # The folder's own path may be longer than the address of a socket.
    line = [SERVER, *OPTIONS, "--unixsocket", "socket"]
    with pinned_to(conditions.cpus), (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            line,
            cwd=folder,
            env=environment_make(arm, conditions.padding, preload=True) | extra,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        with _connect(process, folder) as connection, connection.makefile("rwb") as stream:
            yield Redis(process, stream)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(REPLY_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _connect(process: subprocess.Popen[bytes], folder: Path) -> socket.socket:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(REPLY_SECONDS)
        try:
            # By the process's own folder: short, whatever ours is.
            connection.connect(f"/proc/{process.pid}/cwd/socket")
        except OSError:
            connection.close()
            time.sleep(0.05)
        else:
            return connection
    said = (folder / "log").read_text(errors="replace").strip().splitlines()
    raise LabError(f"{SERVER} did not start: {said[-1] if said else 'it said nothing'}")
