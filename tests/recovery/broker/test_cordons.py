"""Which log dirs are cordoned, and of which cordons a broker takes no notice: as seen with 4.3.1 and 4.4.0."""

import pytest

from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.broker.config import LOG_DIRS_OPTION, BrokerConfig
from recovery.broker.cordons import find_cordons, java_path
from recovery.broker.settings import Layer

NAME = "cordoned.log.dirs"
OTHER = {"min.insync.replicas": "1"}


def cordons(properties, metadata=None, *, selected=None, node_id=1):
    overrides = () if selected is None else (Layer(LOG_DIRS_OPTION, {"log.dirs": ",".join(selected)}),)
    broker = BrokerConfig.from_properties(properties, overrides=overrides)
    return find_cordons(broker, selected or broker.log_dirs, metadata, node_id)


def after(cluster_default=None, broker=None, *, at_load=None, broker_at_load=None, level=30):
    return ClusterMetadata(
        cluster_default=at_load or {},
        brokers={"1": broker_at_load} if broker_at_load else {},
        cluster_default_after_load=cluster_default or {},
        brokers_after_load={"1": broker} if broker else {},
        metadata_version=level,
    )


def test_the_file_then_the_dynamic_record():
    file = {"log.dirs": "/a,/b", NAME: "/b"}
    assert cordons(file).log_dirs == ("/b",)
    assert cordons(file, after(OTHER)).log_dirs == ("/b",)
    assert cordons(file, after(OTHER, {NAME: "/a"})).log_dirs == ("/a",)
    assert cordons(file, after(OTHER, {NAME: ""})).log_dirs == ()
    assert cordons(file, after(OTHER, {NAME: "*"})).log_dirs == ("/a", "/b")
    assert cordons(file, after(OTHER, {NAME: "/a"}), node_id=2).log_dirs == ("/b",)
    assert cordons(file, after({**OTHER, NAME: "/a"})).log_dirs == ("/b",)  # not allowed for all brokers
    assert cordons(file, after(OTHER, {NAME: "/a"})).warnings == ()


def test_without_a_node_id_that_of_the_file_counts():
    file = {"log.dirs": "/a,/b", "node.id": "1"}
    assert cordons(file, after(OTHER, {NAME: "/a"}), node_id=None).log_dirs == ("/a",)


def test_where_the_brokers_own_log_dirs_are_not_known():
    assert cordons({}, after(OTHER, {NAME: "*"}), selected=("/a",)).log_dirs == ("/a",)
    assert cordons({}, after(OTHER, {NAME: "/b,/a"}), selected=("/a",)).log_dirs == ("/b", "/a")


@pytest.mark.parametrize("entry", ["d/a", "./d", "/a/", "//a", "/a//b"])
def test_a_spelling_that_no_broker_recognizes(entry):
    for cordoned in (entry, "*"):
        found = cordons({"log.dirs": entry, NAME: cordoned})
        assert found.log_dirs == ()
        (warning,) = found.warnings
        assert f"{NAME}: {entry}: " in warning
        assert "ignore it" in warning
        assert "Remedy: write " in warning


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ("/a", "/a"),
        ("//a///b//", "/a/b"),
        ("/a/./b/..", "/a/./b/.."),
        ("/", "/"),
        ("//", "/"),
        ("a", None),
        ("", None),
    ],
)
def test_paths_as_java_spells_them(entry, path):
    assert java_path(entry) == path


def test_a_cordon_of_the_file_is_ignored_until_a_log_setting_changes():
    file = {"log.dirs": "/a,/b", NAME: "/b"}
    for metadata in (after(), after(OTHER, at_load=OTHER), after({"num.io.threads": "9"})):
        found = cordons(file, metadata)
        assert found.log_dirs == ("/b",)
        (warning,) = found.warnings
        assert "/b: a broker (4.3.1, 4.4.0) that starts now ignores this cordon until" in warning
    same = {"log.dirs": "/a,/b", NAME: "/b", "min.insync.replicas": "1"}
    assert cordons(same, after(OTHER)).warnings  # no change: the file has that value as well
    assert cordons(file, after({**OTHER, "log.preallocate": "true"}, at_load=OTHER)).warnings == ()


def test_a_dynamic_cordon_in_the_snapshot_is_ignored_too():
    file = {"log.dirs": "/a,/b"}
    kept = {"broker_at_load": {NAME: "/a"}, "at_load": OTHER}
    found = cordons(file, after(OTHER, {NAME: "/a"}, **kept))
    assert found.log_dirs == ("/a",)
    assert "ignores this cordon" in found.warnings[0]
    assert cordons(file, after(OTHER, {NAME: "/b"}, **kept)).warnings == ()


def test_a_cordon_that_was_lifted_after_the_snapshot():
    file = {"log.dirs": "/a,/b", NAME: "/b"}
    found = cordons(file, after({"log.preallocate": "true"}, broker_at_load={NAME: "/a"}))
    assert found.log_dirs == ("/b",)
    ignored, kept = found.warnings
    assert "/b: a broker (4.3.1, 4.4.0) that starts now ignores" in ignored
    assert "/a: a broker (4.3.1, 4.4.0) that starts now takes this for cordoned until" in kept


def test_log_settings_that_are_gone_after_the_snapshot_stay_as_they_were_at_load():
    """A start leaves them set, so that nothing changes, and nothing hands the cordons on."""
    found = cordons({"log.dirs": "/a,/b", NAME: "/b"}, after(at_load=OTHER))
    assert "ignores this cordon" in found.warnings[0]


def test_a_log_setting_of_the_broker_hides_that_of_all_brokers():
    file = {"log.dirs": "/a,/b", NAME: "/b"}
    own = {"min.insync.replicas": "2"}
    found = cordons(file, after({"min.insync.replicas": "3"}, own, at_load=OTHER, broker_at_load=own))
    assert "ignores this cordon" in found.warnings[0]
    assert cordons(file, after({"log.roll.jitter.ms": "7"})).warnings == ()


def test_cordons_begin_with_a_metadata_version():
    file = {"log.dirs": "/a", NAME: "/a"}
    found = cordons(file, after(OTHER, level=29))
    assert found.log_dirs == ()
    assert "metadata.version is 29" in found.warnings[0]
    assert cordons(file, after(OTHER, level=None)).log_dirs == ("/a",)
    assert cordons({"log.dirs": "/a"}, after(OTHER, level=29)).warnings == ()
    misspelled, early = cordons({"log.dirs": "/a,/b/", NAME: "*"}, after(OTHER, level=29)).warnings
    assert "/b/: to a broker the log dir is /b" in misspelled
    assert "metadata.version is 29" in early


def test_dynamic_settings_that_a_broker_refuses():
    found = cordons({"log.dirs": "/a,/b", NAME: "/b"}, after(OTHER, {NAME: "/gone"}))
    assert found.log_dirs == ("/b",)
    assert "dynamic settings of broker 1: cordoned.log.dirs: /gone: not in log.dirs" in found.warnings[0]
