"""A real S3 server on loopback: versitygw, built once by Go's own tool into the cache, over a folder of the test's.

Objects must come in through the server: a file that is laid into the folder by hand can be read, but has no ETag, and a
conditional put overwrites it. The server's option `--nometa` would do that to every object, so it is never given; ETags
are in a folder beside the objects, which needs no extended attributes of the file system.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tests.patience import LONGEST_WAIT_SECONDS
from tests.servers.build_cache import cached

if TYPE_CHECKING:
    from obstore.store import S3Store

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BUCKET = "kafka-archive"
REGION = "us-east-1"
_HEALTH = "/health"
_LOOPBACK = "127.0.0.1"


class S3UnavailableError(RuntimeError):
    """There is no Go, or it could not build the server."""


@functools.cache
def server_program() -> Path:
    """The server's program; built where it is not in the cache yet, which takes some minutes of one core."""

    def build(into: Path) -> None:
        if shutil.which("go") is None:
            raise S3UnavailableError("no go on the PATH, which builds the S3 server")
        environment = os.environ | {"GOBIN": str(into), "CGO_ENABLED": "0"}
        command = ["go", "install", "-trimpath", "-ldflags=-s -w", VERSITYGW]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise S3UnavailableError(f"go install {VERSITYGW} failed:\n{done.stderr[-3000:]}")

    return cached("versitygw", [], [VERSITYGW], build) / "versitygw"


class S3Server:
    """One S3 server with one bucket.

    Args:
        folder: gets the objects, what the server keeps of them, and its log.

    Attributes:
        bucket: where the objects lie.
    """

    access_key = "tester"
    secret_key = "a-secret-of-tests"

    def __init__(self, folder: Path) -> None:
        self.bucket = folder / "objects" / BUCKET
        self._kept = folder / "kept"
        self._log_path = folder / "server.log"
        self.bucket.mkdir(parents=True)
        self._kept.mkdir()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return f"http://{_LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """The pid of the running server."""
        if self._process is None:
            raise RuntimeError("this server is not running")
        return self._process.pid

    def url(self, prefix: str = "") -> str:
        """The URL of what is below *prefix*."""
        return f"s3://{BUCKET}/{prefix}".rstrip("/")

    def environment(self, *, endpoint: str | None = None) -> dict[str, str]:
        """What lets any S3 client of another process find this server; *endpoint* for one that stands before it."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [str(server_program()), "--port", f"{_LOOPBACK}:{self.port}", "--region", REGION]
        command += ["--health", _HEALTH, "--keep-alive", "--quiet", "posix", "--sidecar", str(self._kept)]
        own = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(self.bucket.parent)], env=os.environ | own, stdout=log, stderr=log
            )
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the S3 server did not start:\n{self._log_path.read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server, by its pid."""
        if self._process is not None:
            # On SIGTERM it would wait for the clients' idle connections.
            self._process.kill()
            self._process.wait()

    def store(self, prefix: str = "") -> S3Store:
        """An obstore store of what is below *prefix*, independent of the environment."""
        from obstore.store import S3Store

        return S3Store(
            BUCKET,
            prefix=prefix or None,
            endpoint=self.endpoint,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            region=REGION,
            client_options={"allow_http": True},
        )

    def upload(self, folder: Path, prefix: str = "") -> int:
        """Put every file below *folder*; keys are the paths below it. Returns how many there were."""
        import obstore

        store = self.store(prefix)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in files:
            obstore.put(store, path.relative_to(folder).as_posix(), path.read_bytes())
        return len(files)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.endpoint + _HEALTH, timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def in_environment(variables: dict[str, str]) -> Iterator[None]:
    """Have *variables* in this process's environment, and what was there before afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def free_port(host: str = _LOOPBACK) -> int:
    """A port of *host* that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
