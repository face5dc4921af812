"""Archives in a real S3 server: the same verdicts as from a folder, and what happens when requests fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from obstore import exceptions

from recovery.archive.check.verdict import PartitionVerdict
from recovery.archive.stores import object_store
from recovery.archive.stores.store import Level
from recovery.archive.stores.stores import open_store
from tests.brokers.tiered_broker import unpack_tiered
from tests.logs.archives import LOG, made_copies, write_archive
from tests.runs.goings import bad_objects, gone_through, objects_of, recovered_in
from tests.servers.s3_faults import BROKEN_OFF, FORBIDDEN, THROTTLED, Fault, FaultyProxy, Request
from tests.servers.s3_server import S3Server, in_environment

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of the sample: enough to fail at."""
    tiered = unpack_tiered(tmp_path_factory.mktemp("tiered"))
    chosen = tmp_path_factory.mktemp("archive")
    for folder in (*tiered.path.rglob("plain-0-*"), *tiered.path.rglob("transactions-1-*")):
        if folder.is_dir():
            shutil.copytree(folder, chosen / folder.name)
    return chosen


@pytest.fixture
def served(s3_server: S3Server, archive: Path) -> Iterator[S3Server]:
    s3_server.upload(archive, "backups/kafka")
    with in_environment(s3_server.environment()):
        yield s3_server


def words_of(verdicts: list[PartitionVerdict]) -> dict[str, list[str]]:
    return {
        one.verdict.path: [f"{found.rule} {found.detail}" for found in one.verdict.findings]
        for verdict in verdicts
        for one in verdict.objects
    }


def test_a_bucket_is_judged_as_a_folder(served: S3Server, archive: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(archive, tmp_path / "damaged"))
    chosen = {*sorted(damaged.rglob("*.*"))[5::40], *sorted(damaged.rglob("*.log"))[2::12]}
    for place, path in enumerate(sorted(chosen)):
        data = bytearray(path.read_bytes())
        data[len(data) // 2 :: 7] = b"\x5a" * len(data[len(data) // 2 :: 7])
        path.write_bytes(data) if place % 2 else path.unlink()
    served.upload(damaged, "damaged")
    found = gone_through(served.url("damaged"), served.url("output"))
    assert words_of(found) == words_of(gone_through(damaged, tmp_path / "output"))
    assert len(bad_objects(found)) > 5
    alone = gone_through(served.url("damaged"), is_logs_only=True)
    assert words_of(alone) == words_of(gone_through(damaged, is_logs_only=True))
    assert len(bad_objects(alone)) > 1
    assert sum(len(sound) for verdict in alone for sound in verdict.sound) > 5
    output = open_store(served.url("output"))
    for key, one in objects_of(found).items():
        if one.rebuilt is not None:
            kept = recovered_in(tmp_path / "output") / key
            assert output.read(one.rebuilt.key, most_bytes=1 << 20) == kept.read_bytes(), key


def test_objects_of_many_ranges(served: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(object_store, "RANGE_BYTES", 1000)
    store = open_store(served.url("other"))
    data = np.random.default_rng(1).integers(0, 256, 12_345, np.uint8)
    assert store.create("large", data.tobytes())
    opened = store.open("large")
    target = np.zeros(20_000, np.uint8)
    opened.approach(0)
    assert opened.read_at(target[:3_333], 0) == 3_333
    opened.leave(3_000)
    opened.approach(3_333)
    assert opened.read_at(target[3_333:], 3_333) == len(data) - 3_333
    assert np.array_equal(target[: len(data)], data)
    opened.close()


def test_a_name_is_taken_once(served: S3Server) -> None:
    store = open_store(served.url("other"))
    assert store.create("a/b", b"first")
    assert not store.create("a/b", b"second")
    assert store.read("a/b", most_bytes=100) == b"first"
    store.replace("a/b", b"third")
    assert store.read("a/b", most_bytes=3) == b"thi"
    with pytest.raises(FileNotFoundError, match="a/c"):
        store.stat("a/c")


def noting(asked: list[Request], fault: Fault) -> Callable[[Request], Fault]:
    """A rule that all requests are answered by, and that notes them."""

    def rule(one: Request) -> Fault:
        asked.append(one)
        return fault

    return rule


class TestListing:
    """The library asks again when a server refuses a listing for now, and not when its answer breaks off."""

    @staticmethod
    def listed(server: S3Server, rule: Callable[[Request], Fault | None]) -> tuple[Level, FaultyProxy]:
        with FaultyProxy(server, rule) as proxy, in_environment(server.environment(endpoint=proxy.endpoint)):
            return open_store(server.url("backups/kafka")).list_level(""), proxy

    def test_one_that_breaks_off_is_begun_anew(self, served: S3Server, archive: Path) -> None:
        level, proxy = self.listed(served, lambda one: BROKEN_OFF if one.attempt <= 2 else None)
        assert level.prefixes == sorted(f"{path.name}/" for path in archive.iterdir())
        assert (proxy.faults, proxy.requests["GET"]) == (2, 3)

    def test_one_that_always_breaks_off_is_an_error(
        self, served: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(object_store, "LISTING_WAITS_S", (0.0, 0.0))
        asked: list[Request] = []
        with pytest.raises(OSError, match="backups/kafka"):
            self.listed(served, noting(asked, BROKEN_OFF))
        assert len(asked) == 3

    def test_nothing_is_begun_anew_after_the_last_second(
        self, served: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(object_store, "LISTING_SECONDS", 0.1)
        asked: list[Request] = []
        with pytest.raises(OSError, match="backups/kafka"):
            self.listed(served, noting(asked, BROKEN_OFF))
        assert len(asked) == 1

    def test_one_that_is_forbidden_is_not_asked_for_again(self, served: S3Server) -> None:
        asked: list[Request] = []
        with pytest.raises(PermissionError, match="backups/kafka"):
            self.listed(served, noting(asked, FORBIDDEN))
        assert len(asked) == 1


class TestFaults:
    def verdicts(
        self, server: S3Server, rule: Fault | None, at: str, times: int = 10**9
    ) -> list[PartitionVerdict]:
        """Go through the archive while requests for keys with *at* in them fail so many times."""

        def fault(request: Request) -> Fault | None:
            return rule if at in request.key and request.attempt <= times else None

        with FaultyProxy(server, fault) as proxy, in_environment(server.environment(endpoint=proxy.endpoint)):
            return gone_through(server.url("backups/kafka"))

    @pytest.mark.parametrize("fault", [THROTTLED, BROKEN_OFF], ids=["throttled", "broken-off"])
    def test_what_passes_is_not_noticed(self, fault: Fault, served: S3Server) -> None:
        assert bad_objects(self.verdicts(served, fault, "/000000000000000002", times=1)) == {}

    def test_what_is_forbidden_is_not_checked_and_the_rest_is(self, served: S3Server) -> None:
        bad = bad_objects(self.verdicts(served, FORBIDDEN, "00000000000000000000"))
        assert bad
        assert {tuple(rules) for rules in bad.values()} == {("unreadable",)}
        assert all("/00000000000000000000-" in key for key in bad)

    def test_an_object_that_goes_meanwhile(self, served: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        import obstore

        store = open_store(served.url("backups/kafka"))
        folder = next(prefix for prefix in store.list_level("").prefixes if prefix.startswith("plain-0"))
        gone = next(one.key for one in store.list_level(folder).objects if one.key.endswith(".log"))
        listed = object_store.ObjectStore.list_level

        def list_and_lose(self: object_store.ObjectStore, prefix: str) -> object:
            level = listed(self, prefix)
            if prefix == folder:
                obstore.delete(served.store("backups/kafka"), gone)
            return level

        monkeypatch.setattr(object_store.ObjectStore, "list_level", list_and_lose)
        bad = bad_objects(gone_through(served.url("backups/kafka")))
        stem = gone.removesuffix(".log")
        indexes = {f"{stem}.index": ["unreadable"], f"{stem}.timeindex": ["unreadable"]}
        assert bad == {gone: ["unreadable"]} | indexes  # these are not read without the log

    def test_an_object_that_is_replaced_meanwhile_is_not_accused(
        self, served: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = open_store(served.url("backups/kafka"))
        folder = next(prefix for prefix in store.list_level("").prefixes if prefix.startswith("plain-0"))
        other = next(one.key for one in store.list_level(folder).objects if one.key.endswith(".log"))
        listed = object_store.ObjectStore.list_level

        def list_and_replace(self: object_store.ObjectStore, prefix: str) -> object:
            level = listed(self, prefix)
            if prefix == folder:
                store.replace(other, b"something else altogether, and no log")
            return level

        monkeypatch.setattr(object_store.ObjectStore, "list_level", list_and_replace)
        assert bad_objects(gone_through(served.url("backups/kafka")))[other] == ["changing"]


def test_a_machine_without_credentials_is_told_what_to_set() -> None:
    asked = exceptions.GenericError(
        "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1.4ms\n dump"
    )
    with (
        pytest.raises(PermissionError, match=r"no credentials were found.*Remedy: set .*AWS_ACCESS_KEY_ID"),
        object_store._errors("s3://bucket", "key"),
    ):
        raise asked


@pytest.mark.parametrize("prefix", ["p#2", "p?2", "q%201"])
def test_prefixes_are_taken_literally(prefix: str, s3_server: S3Server, tmp_path: Path) -> None:
    """Beside them lie those that are left where a URL ends at one of these characters, or where it is unescaped."""
    copies = made_copies(segments=3)
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    for other in ("p", "q 1"):
        s3_server.upload(archive.root, other)
    damaged = archive.place(copies[1], LOG)
    damaged.write_bytes(damaged.read_bytes()[:-5] + b"\1" * 5)
    s3_server.upload(archive.root, prefix)
    with in_environment(s3_server.environment()):
        found = gone_through(s3_server.url(prefix), s3_server.url(f"of {prefix}"))
        assert list(bad_objects(found)) == [damaged.relative_to(archive.root).as_posix()]
        outputs = open_store(s3_server.url("")).list_level("").prefixes
    assert f"of {prefix}/" in outputs
