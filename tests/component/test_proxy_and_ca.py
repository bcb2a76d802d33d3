"""Proxies and certificates as the environment names them: a real proxy, a real TLS server."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support.cli import BAKEOFF
from support.loopback import Loopback, chat
from support.parts import require
from support.plans import write_suite

PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


class Proxy:
    """A proxy that makes tunnels (CONNECT) and remembers where to."""

    def __init__(self) -> None:
        self.tunnels: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @contextmanager
    def serving(self) -> Iterator["Proxy"]:
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join(5)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._tunnel, args=(client,), daemon=True).start()

    def _tunnel(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        method, target, _ = head.decode().split(" ", 2)
        assert method == "CONNECT"
        self.tunnels.append(target)
        host, port = target.rsplit(":", 1)
        server = socket.create_connection((host, int(port)))
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back = threading.Thread(target=_pump, args=(server, client), daemon=True)
        back.start()
        _pump(client, server)
        back.join(5)
        client.close()
        server.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    """A CA of our own, and in `server.pem` a key and a certificate for 127.0.0.1 signed by it."""
    require("openssl", shutil.which("openssl"), "apt install openssl")
    ca, ca_key = tmp_path / "ca.pem", tmp_path / "ca.key"
    key, request, server = (tmp_path / name for name in ("key.pem", "request", "server.pem"))
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl(*new, "-x509", "-subj", "/CN=our CA", "-days", "2", "-keyout", ca_key, "-out", ca,
             "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    _openssl(*new, "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    names = tmp_path / "names"
    names.write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    _openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial",
             "-days", "2", "-extfile", names, "-out", server)  # fmt: skip
    server.write_text(key.read_text() + server.read_text())
    return ca


def _run(tmp_path: Path, url: str, **env: str) -> subprocess.CompletedProcess[str]:
    write_suite(tmp_path / "suite.json", 2)
    run_file = tmp_path / "run.toml"
    run_file.write_text(
        f'suites = ["suite.json"]\n[[models]]\nmodel = "m"\nbase_url = "{url}"\n'
        "settings = { max_retries = 0 }\n"
    )
    clean = {
        k: v for k, v in os.environ.items() if k.lower() not in {*PROXY_NAMES, "ssl_cert_file"}
    }
    return subprocess.run(
        [*BAKEOFF, "run", run_file],
        cwd=tmp_path,
        env={**clean, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_ca_of_ones_own_is_trusted_when_the_environment_names_it(
    tmp_path: Path, ca: Path
) -> None:
    with Loopback(certificate=tmp_path / "server.pem") as server:
        done = _run(tmp_path, server.url)
        assert done.returncode == 3
        assert "the certificate of" in done.stderr
        assert "is not to be trusted" in done.stderr
        assert server.requests == []
        done = _run(tmp_path, server.url, SSL_CERT_FILE=str(ca))
        assert done.returncode == 0, done.stderr
        assert len(server.requests) == 2


def test_https_goes_through_the_proxy_unless_no_proxy_says_so(tmp_path: Path, ca: Path) -> None:
    with (
        Loopback(certificate=tmp_path / "server.pem") as server,
        Proxy().serving() as proxy,
    ):
        trusted = {"SSL_CERT_FILE": str(ca), "HTTPS_PROXY": proxy.url}
        done = _run(tmp_path, server.url, **trusted)
        assert done.returncode == 0, done.stderr
        assert len(server.requests) == 2
        place = server.url.removeprefix("https://").removesuffix("/v1")
        assert set(proxy.tunnels) == {place}
        proxy.tunnels.clear()
        done = _run(tmp_path, server.url, **trusted, NO_PROXY="127.0.0.1,localhost")
        assert done.returncode == 0, done.stderr
        assert (len(server.requests), proxy.tunnels) == (4, [])


def test_http_goes_through_the_proxy_and_its_password_is_told_to_nobody(tmp_path: Path) -> None:
    with Loopback(lambda asked: chat(asked.prompt)) as proxy:
        named = proxy.url.removesuffix("/v1").replace("http://", "http://me:hunter2-word@")
        done = _run(tmp_path, "http://model.invalid/v1", HTTP_PROXY=named)
        assert done.returncode == 0, done.stderr
        paths = {asked.path for asked in proxy.requests}
        assert paths == {"http://model.invalid/v1/chat/completions"}
        assert all("Proxy-Authorization" in asked.headers for asked in proxy.requests)
    done = _run(
        tmp_path, "http://model.invalid/v1", HTTP_PROXY="http://me:hunter2-word@127.0.0.1:9"
    )
    kept = b"".join(p.read_bytes() for p in (tmp_path / "runs").rglob("*") if p.is_file())
    assert "hunter2-word" not in done.stdout + done.stderr
    assert b"hunter2-word" not in kept
