"""nginx under load by Apache's ab: files, compression, TLS, and itself as a proxy. The processes that matter are its
workers, started by fork."""

import http.client
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from random import SystemRandom
from signal import SIGHUP, SIGQUIT

import pytest
from toolbox import run_well, tool
from trial import Side, Trial, wait_until

WORKERS = 2
CONFIGURATION = """
daemon off;
worker_processes {workers};
pid nginx.pid;
error_log error.log notice;
events {{ worker_connections 512; }}
http {{
    access_log access.log;
    client_body_temp_path body; proxy_temp_path proxied; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    gzip on; gzip_types text/plain; default_type text/plain;
    keepalive_requests 1000;
    ssl_certificate certificate.pem; ssl_certificate_key key.pem;
    upstream itself {{ server 127.0.0.1:{port}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{port};
        listen 127.0.0.1:{tls_port} ssl;
        root {folder}/files;
        location / {{ ssi on; ssi_types text/plain; }}
        location /again/ {{ proxy_pass http://itself/; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""
FILES = {
    "small": "small\n",
    "large": "".join(f"line {n} {n * n}\n" for n in range(20000)),
    "composed": 'first <!--#include virtual="/small" --> last <!--#echo var="missing" default="none" -->\n',
}
COMPLETE = re.compile(r"^Complete requests: +(\d+)$", re.MULTILINE)
FAULTS = re.compile(r"^(?:Failed requests|Non-2xx responses|Write errors): +([1-9]\d*)$", re.MULTILINE)


def free_ports(count: int) -> list[int]:
    """Of those below what the kernel gives by itself: of these a client of another test could have one before nginx has it."""
    ports: set[int] = set()
    while len(ports) < count:
        port = SystemRandom().randrange(10_000, 32_768)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return list(ports)


def fetch(port: int, path: str) -> str:
    """Status and contents."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = f"{answer.status} {sha256(answer.read()).hexdigest()}"
    connection.close()
    return text


@contextmanager
def server(trial: Trial, side: Side) -> Iterator[tuple[int, int]]:
    """A server, until the block ends; its ports without and with TLS. In the middle it gets new workers."""
    (side.folder / "files").mkdir()
    for name, text in FILES.items():
        (side.folder / "files" / name).write_text(text)
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    run_well(tool("openssl"), *new, "-keyout", "key.pem", "-out", "certificate.pem", cwd=side.folder)
    port, tls_port = free_ports(2)
    text = CONFIGURATION.format(workers=WORKERS, port=port, tls_port=tls_port, folder=side.folder)
    (side.folder / "nginx.conf").write_text(text)

    def ready() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    command = [trial.program("nginx"), "-p", side.folder, "-c", "nginx.conf", "-e", "error.log"]
    with side.daemon(*command, ready=ready, stop=SIGQUIT) as process:
        yield port, tls_port
        process.send_signal(SIGHUP)
        wait_until(lambda: reloaded(side), 20, "new workers")
        assert fetch(port, "/small").startswith("200 ")
    if side.build is not None:
        assert side.served["nginx"] == 1 + 2 * WORKERS


def reloaded(side: Side) -> bool:
    return (side.folder / "error.log").read_text().count("exited with code 0") >= WORKERS


def check(trial: Trial, requests: int) -> None:
    trial.program("nginx", "-v")

    def work(side: Side) -> tuple[list[str], list[int]]:
        with server(trial, side) as (port, tls_port):
            paths = ["/small", "/large", "/composed", "/again/large", "/again/composed", "/none"]
            contents = [fetch(port, path) for path in paths]
            plain, tls = f"http://127.0.0.1:{port}", f"https://127.0.0.1:{tls_port}"
            loads = [
                (f"{plain}/small", 10),
                (f"{plain}/again/composed", 3),
                (f"{plain}/large", 1),
                (f"{tls}/small", 4),
            ]
            complete = []
            for address, share in loads:
                options = [
                    "-q",
                    "-l",
                    "-k",
                    "-c",
                    "20",
                    "-n",
                    str(requests * share),
                    "-H",
                    "Accept-Encoding: gzip",
                ]
                report = side.run(trial.program("ab"), *options, address, timeout=900)
                assert not FAULTS.search(report), report
                complete += [int(number) for number in COMPLETE.findall(report)]
        return contents, complete

    (small, large, composed, again, _, none), complete = trial.compare(work)
    expected = [FILES["small"], FILES["large"], "first small\n last none\n"]
    assert [small, large, composed] == [f"200 {sha256(text.encode()).hexdigest()}" for text in expected]
    assert again == large
    assert none.startswith("404 ")
    assert complete == [requests * share for share in (10, 3, 1, 4)]


def test_nginx(trial: Trial) -> None:
    """Under load by ab: files, compression, includes, TLS, a proxy; then new workers without a pause"""
    check(trial, requests=500)


@pytest.mark.soak
def test_nginx_long(trial: Trial) -> None:
    """The same load for longer"""
    check(trial, requests=8_000)
