"""The S3 server of the tests does what S3 does, to obstore; the proxy before it does what it is told to."""

from __future__ import annotations

import os
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, PreconditionError
from obstore.store import S3Store, from_url

from tests.brokers.tiered_broker import TieredArchive
from tests.servers.s3_faults import BROKEN_OFF, FORBIDDEN, THROTTLED, Fault, FaultyProxy, Request
from tests.servers.s3_server import S3Server, in_environment

pytestmark = pytest.mark.s3
CONTENT = bytes(range(256)) * 100


def keys_of(store: S3Store, prefix: str | None = None) -> list[str]:
    return sorted(meta["path"] for metas in obstore.list(store, prefix) for meta in metas)


def test_objects_come_back_in_whole_and_in_ranges(s3_server: S3Server) -> None:
    store = s3_server.store("below/here")
    obstore.put(store, "one", CONTENT)
    assert bytes(obstore.get(store, "one").bytes()) == CONTENT
    assert bytes(obstore.get_range(store, "one", start=1000, end=2000)) == CONTENT[1000:2000]
    found = obstore.head(store, "one")
    assert found["size"] == len(CONTENT)
    assert found["e_tag"] is not None
    assert keys_of(s3_server.store()) == ["below/here/one"]


def test_listings_have_levels_and_pages(s3_server: S3Server) -> None:
    store = s3_server.store()
    expected = [f"t-{i % 3}/{i:05}" for i in range(1100)]
    for key in expected:
        obstore.put(store, key, b"x")
    assert keys_of(store) == sorted(expected)
    assert keys_of(store, "t-1") == sorted(key for key in expected if key.startswith("t-1/"))
    assert obstore.list_with_delimiter(store)["common_prefixes"] == ["t-0", "t-1", "t-2"]


def test_conditional_puts_are_refused_where_they_must_be(s3_server: S3Server) -> None:
    store = s3_server.store()
    obstore.put(store, "one", b"first", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "one", b"second", mode="create")
    tag = obstore.head(store, "one")["e_tag"]
    assert tag is not None
    obstore.put(store, "one", b"third", mode={"e_tag": tag})
    with pytest.raises(PreconditionError):
        obstore.put(store, "one", b"fourth", mode={"e_tag": tag})
    with pytest.raises(PreconditionError):
        obstore.get(store, "one", options={"if_match": tag})
    assert bytes(obstore.get(store, "one").bytes()) == b"third"


def test_deleted_objects_are_gone(s3_server: S3Server) -> None:
    store = s3_server.store()
    obstore.put(store, "one", b"x")
    obstore.delete(store, "one")
    assert keys_of(store) == []
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "one")


def test_the_environment_is_enough_to_find_it(s3_server: S3Server, stored_archive: TieredArchive) -> None:
    folder = next(path for path in stored_archive.path.iterdir() if path.name.startswith("plain-0-"))
    before = dict(os.environ)
    with in_environment(s3_server.environment()):
        assert s3_server.upload(folder, f"tier/{folder.name}") == len(list(folder.iterdir()))
        store = from_url(s3_server.url("tier"))
    assert dict(os.environ) == before
    for path in folder.iterdir():
        assert bytes(obstore.get(store, f"{folder.name}/{path.name}").bytes()) == path.read_bytes()


def test_a_stopped_server_is_gone(tmp_path: Path) -> None:
    with S3Server(tmp_path) as server:
        pid = server.pid
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("fault", [THROTTLED, BROKEN_OFF], ids=["throttled", "broken off"])
def test_faults_that_pass_are_tried_again(s3_server: S3Server, fault: Fault) -> None:
    obstore.put(s3_server.store(), "one", CONTENT)

    def rule(request: Request) -> Fault | None:
        # obstore does not ask again for a listing that breaks off.
        is_passing = request.method == "GET" and request.attempt <= 2
        return fault if is_passing and (request.key or fault is THROTTLED) else None

    with FaultyProxy(s3_server, rule) as proxy:
        with in_environment(s3_server.environment(endpoint=proxy.endpoint)):
            store = from_url(s3_server.url())
        assert bytes(obstore.get(store, "one").bytes()) == CONTENT
        assert bytes(obstore.get_range(store, "one", start=7, end=9)) == CONTENT[7:9]
        assert obstore.head(store, "one")["size"] == len(CONTENT)
        assert keys_of(store) == ["one"]
        assert proxy.faults > 0


def test_what_is_forbidden_stays_forbidden(s3_server: S3Server) -> None:
    for key in ("one", "two"):
        obstore.put(s3_server.store(), key, CONTENT)
    with FaultyProxy(s3_server, lambda request: FORBIDDEN if request.key == "two" else None) as proxy:
        with in_environment(s3_server.environment(endpoint=proxy.endpoint)):
            store = from_url(s3_server.url())
        assert bytes(obstore.get(store, "one").bytes()) == CONTENT
        with pytest.raises(PermissionDeniedError):
            obstore.get(store, "two")
