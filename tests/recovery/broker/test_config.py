from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.broker.config import LOG_DIRS_OPTION, BrokerConfig, LogConfig
from recovery.broker.settings import BooleanKind, IntKind, Layer, ListKind
from recovery.broker.topic_configs import (
    TOPIC_CONFIG_NAMES,
    TopicConfigs,
    read_topic_configs,
    without_effect,
)
from recovery.errors import UsageError
from recovery.load.model import LogSettings
from segfmt.properties import read_properties


def broker(**properties):
    return BrokerConfig.from_properties({key.replace("__", "."): value for key, value in properties.items()})


def test_defaults_are_kafkas():
    config = BrokerConfig.from_properties({})
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert config.metadata_log_dir == "/tmp/kafka-logs"
    assert config.node_id is None
    assert config.recovery_threads_per_data_dir == 2
    assert config.producer_id_expiration_ms == 86_400_000
    assert not config.is_remote_log_storage_system_enabled
    assert config.cordoned_log_dirs == ()
    assert config.log_defaults == LogConfig(
        index_interval_bytes=4096,
        segment_index_bytes=10_485_760,
        segment_bytes=1_073_741_824,
        preallocate=False,
        cleanup_policy=("delete",),
        remote_storage_enable=False,
    )


def test_defaults_agree_with_those_of_the_model():
    assert TopicConfigs(broker=BrokerConfig.from_properties({})).settings_of("t") == LogSettings()


def test_a_properties_file_as_a_whole():
    config = BrokerConfig.from_properties(
        read_properties(
            b"node.id=7\nlog.dirs = /a , /b,/a \nmetadata.log.dir=/m\nnum.recovery.threads.per.data.dir=8\n"
            b"log.index.interval.bytes=0\nlog.index.size.max.bytes=4\nlog.segment.bytes=1048576\n"
            b"log.preallocate=TRUE\nlog.cleanup.policy=compact,delete\nproducer.id.expiration.ms=1\n"
            b"remote.log.storage.system.enable=true\ncordoned.log.dirs=/b\nlisteners=PLAINTEXT://:9092\n"
        )
    )
    assert config.log_dirs == ("/a", "/b")
    assert (config.metadata_log_dir, config.node_id, config.cordoned_log_dirs) == ("/m", 7, ("/b",))
    assert (config.recovery_threads_per_data_dir, config.producer_id_expiration_ms) == (8, 1)
    assert config.is_remote_log_storage_system_enabled
    assert config.log_defaults == LogConfig(
        index_interval_bytes=0,
        segment_index_bytes=4,
        segment_bytes=1_048_576,
        preallocate=True,
        cleanup_policy=("compact", "delete"),
    )


def test_log_dirs_come_before_log_dir():
    assert broker(log__dir="/x").log_dirs == ("/x",)
    assert broker(log__dir="/x", log__dirs="/y").log_dirs == ("/y",)
    assert broker(log__dir="/x,/z").metadata_log_dir == "/x"


@pytest.mark.parametrize("dirs", ["", "  ", "/a,", ",/a", "/a,,/b"])
def test_empty_log_dirs_are_refused(dirs):
    with pytest.raises(UsageError, match=r"server\.properties: log\.dirs="):
        broker(log__dirs=dirs)


BAD = [
    ("log.index.interval.bytes", "-1"),
    ("log.index.interval.bytes", "4k"),
    ("log.index.size.max.bytes", "3"),
    ("log.index.size.max.bytes", "2147483648"),
    ("log.segment.bytes", "1048575"),
    ("log.preallocate", "yes"),
    ("log.cleanup.policy", "Compact"),
    ("log.cleanup.policy", "compact,,delete"),
    ("num.recovery.threads.per.data.dir", "0"),
    ("producer.id.expiration.ms", "0"),
    ("remote.log.storage.system.enable", ""),
    ("node.id", "-1"),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_bad_value_is_refused_with_key_value_file_and_remedy(key, value):
    with pytest.raises(UsageError) as caught:
        BrokerConfig.from_properties({key: value}, origin="/etc/kafka/server.properties")
    message = str(caught.value)
    assert message.startswith(f"/etc/kafka/server.properties: {key}={value}: expected ")
    assert f"--property {key}=" in message


def test_overrides_come_before_the_file_and_hide_its_errors():
    layers = (Layer("--property", {"log.index.interval.bytes": "1", "log.preallocate": " true "}),)
    config = BrokerConfig.from_properties(
        {"log.index.interval.bytes": "x", "log.segment.bytes": "2097152"}, overrides=layers
    )
    assert config.log_defaults.index_interval_bytes == 1
    assert config.log_defaults.preallocate
    assert config.log_defaults.segment_bytes == 2_097_152
    with pytest.raises(UsageError, match=r"^--property: log\.preallocate=x"):
        BrokerConfig.from_properties({}, overrides=(Layer("--property", {"log.preallocate": "x"}),))


def test_node_id_and_broker_id_stand_for_each_other():
    assert broker(broker__id="3").node_id == 3
    assert broker(broker__id="3", node__id="3").node_id == 3
    with pytest.raises(UsageError, match="differ"):
        broker(broker__id="3", node__id="4")


def test_cordoned_log_dirs():
    assert broker(log__dirs="/a,/b", cordoned__log__dirs="*").cordoned_log_dirs == ("*",)
    assert broker(log__dirs="/a,/b", cordoned__log__dirs="").cordoned_log_dirs == ()
    with pytest.raises(UsageError, match="only entry"):
        broker(log__dirs="/a,/b", cordoned__log__dirs="*,/a")
    with pytest.raises(UsageError, match=r"/c: not in log\.dirs"):
        broker(log__dirs="/a,/b", cordoned__log__dirs="/a,/c")


def test_cordons_are_held_against_the_brokers_own_log_dirs():
    selected = (Layer(LOG_DIRS_OPTION, {"log.dirs": "/a"}),)
    config = BrokerConfig.from_properties(
        {"log.dirs": "/a,/b", "cordoned.log.dirs": "/b"}, overrides=selected
    )
    assert (config.log_dirs, config.own_log_dirs, config.cordoned_log_dirs) == (
        ("/a",),
        ("/a", "/b"),
        ("/b",),
    )
    with pytest.raises(UsageError, match=r"/c: not in log\.dirs"):
        BrokerConfig.from_properties({"log.dir": "/b", "cordoned.log.dirs": "/c"}, overrides=selected)
    unknown = BrokerConfig.from_properties({"cordoned.log.dirs": "/c"}, overrides=selected)
    assert (unknown.own_log_dirs, unknown.cordoned_log_dirs) == ((), ("/c",))


def test_a_cordon_that_kafka_refuses_costs_a_broker_all_its_dynamic_settings():
    static = broker(log__dirs="/a,/b", log__preallocate="false")
    refused = {"cordoned.log.dirs": "/c", "log.preallocate": "true"}
    assert "/c: not in log.dirs" in static.dynamic_fault(refused)
    assert "only entry" in static.dynamic_fault({"cordoned.log.dirs": "*,/a"})
    config = static.with_dynamic(cluster_default={"log.index.interval.bytes": "9"}, broker=refused)
    assert not config.log_defaults.preallocate
    assert (config.cordoned_log_dirs, config.log_defaults.index_interval_bytes) == ((), 9)
    assert static.dynamic_fault({"cordoned.log.dirs": "/b", "log.preallocate": "true"}) is None


def test_value_of_a_config_provider_is_not_taken_for_a_path():
    with pytest.raises(UsageError, match="config provider"):
        broker(log__dirs="${env:DIRS}", config__providers="env")
    assert broker(log__dirs="/a${x}").log_dirs == ("/a${x}",)


def test_dynamic_settings_come_before_the_file_and_a_brokers_own_first():
    static = broker(log__index__interval__bytes="1", log__preallocate="false", log__segment__bytes="2097152")
    config = static.with_dynamic(
        cluster_default={
            "log.index.interval.bytes": "2",
            "log.preallocate": "true",
            "num.recovery.threads.per.data.dir": "5",
            "min.insync.replicas": "1",
        },
        broker={"log.index.interval.bytes": "3", "producer.id.expiration.ms": "9"},
    )
    assert config.log_defaults.index_interval_bytes == 3
    assert config.log_defaults.preallocate
    assert config.log_defaults.segment_bytes == 2_097_152
    assert (config.recovery_threads_per_data_dir, config.producer_id_expiration_ms) == (5, 9)
    assert config.with_dynamic(cluster_default={}) == static.with_dynamic(cluster_default={}) == static


def test_dynamic_settings_that_a_broker_leaves_out():
    static = broker(log__dirs="/a,/b", log__index__interval__bytes="1")
    config = static.with_dynamic(
        cluster_default={
            "log.index.interval.bytes": "-5",  # invalid
            "log.dirs": "/c",  # not dynamic
            "cordoned.log.dirs": "/a",  # of a broker only
            "remote.log.storage.system.enable": "true",  # not dynamic
        },
        broker={"log.preallocate": "maybe", "cordoned.log.dirs": "/b"},
    )
    assert config.log_defaults.index_interval_bytes == 1
    assert config.log_dirs == ("/a", "/b")
    assert config.cordoned_log_dirs == ("/b",)
    assert not config.is_remote_log_storage_system_enabled
    assert not config.log_defaults.preallocate


def topics(overrides=None, records=None, topics=(), is_metadata_whole=True, **properties):
    return TopicConfigs(
        broker=broker(**properties),
        records=records or {},
        overrides=overrides or {},
        topic_ids={topic: UUID(int=1) for topic in topics} or None,
        is_metadata_whole=is_metadata_whole,
    )


def test_the_topic_id_is_the_clusters():
    assert topics().settings_of("t").topic_id is None
    assert topics(topics=["t"]).settings_of("t").topic_id == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert topics(topics=["t"]).settings_of("u").topic_id == ""


def test_a_topic_may_be_in_what_was_not_read_of_the_metadata_log_or_what_it_has_lost():
    configs = topics(topics=["t"], is_metadata_whole=False, remote__log__storage__system__enable="true")
    assert configs.settings_of("u").topic_id is None
    assert [configs.settings_of(topic).remote_log_known for topic in ("t", "u")] == [True, False]
    whole = replace(configs, is_metadata_whole=True)
    assert whole.settings_of("u").remote_log_known
    emptied = replace(whole, topic_ids={})
    assert not emptied.settings_of("u").remote_log_known
    assert not emptied.is_gone("u")


def test_precedence_key_by_key():
    configs = topics(
        overrides={"t": {"index.interval.bytes": "10"}},
        records={
            "t": {"index.interval.bytes": "20", "segment.index.bytes": "200"},
            "u": {"preallocate": "true"},
        },
        log__index__interval__bytes="30",
        log__index__size__max__bytes="300",
        log__segment__bytes="3000000",
    )
    assert configs.settings_of("t") == LogSettings(
        index_interval_bytes=10, segment_index_bytes=200, segment_bytes=3_000_000
    )
    assert configs.settings_of("u") == LogSettings(
        index_interval_bytes=30, segment_index_bytes=300, segment_bytes=3_000_000, preallocate=True
    )
    assert configs.config_of("stray") == configs.broker.log_defaults


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"topics": {"t"}}, False),
        ({"topics": {"t"}, "log__cleanup__policy": "compact"}, True),
        ({"log__cleanup__policy": "compact"}, None),
        ({"records": {"t": {"cleanup.policy": "compact,delete"}}}, True),
        ({"records": {"t": {"preallocate": "true"}}}, None),
        (
            {
                "overrides": {"t": {"cleanup.policy": "delete"}},
                "records": {"t": {"cleanup.policy": "compact"}},
            },
            False,
        ),
        ({"overrides": {"t": {"preallocate": "true"}}}, None),
    ],
)
def test_whether_a_topic_is_compacted_may_not_be_known(given, expected):
    assert topics(**given).settings_of("t").is_compacted is expected
    assert topics(**given).settings_of("__consumer_offsets").is_compacted
    assert topics(**given).settings_of("__transaction_state").is_compacted


def test_that_a_topic_is_compacted_is_no_other_configuration_for_an_interrupted_run():
    """Journals hold the settings in words, also those from before this was one."""
    assert str(LogSettings(is_compacted=True)) == str(LogSettings())


def test_internal_segment_bytes_come_before_segment_bytes():
    records = {
        "t": {"segment.bytes": "1048576", "internal.segment.bytes": "17"},
        "u": {"segment.bytes": "1048576"},
    }
    configs = topics(records=records)
    assert [configs.settings_of(topic).segment_bytes for topic in "tu"] == [17, 1_048_576]


def test_which_topics_are_tiered():
    on = {"remote.storage.enable": "true"}
    names = ["t", "__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata"]
    records = {
        **dict.fromkeys([*names, "__cluster_metadata"], on),
        "c": {**on, "cleanup.policy": "delete,compact"},
        "n": {**on, "cleanup.policy": ""},
        "off": {"remote.storage.enable": "false"},
    }
    configs = topics(records=records, remote__log__storage__system__enable="true")
    assert {topic for topic in records if configs.settings_of(topic).remote_log_enabled} == {"t", "n"}
    assert not topics(records=records).settings_of("t").remote_log_enabled


def test_compaction_by_default_is_never_tiered():
    records = {
        "t": {"remote.storage.enable": "true"},
        "u": {"remote.storage.enable": "true", "cleanup.policy": "delete"},
    }
    configs = topics(
        records=records, remote__log__storage__system__enable="true", log__cleanup__policy="compact"
    )
    assert [configs.settings_of(topic).remote_log_enabled for topic in "tu"] == [False, True]


def test_bad_topic_value_names_its_place():
    with pytest.raises(UsageError, match=r"^metadata log, topic t: segment\.index\.bytes=3: expected"):
        topics(records={"t": {"segment.index.bytes": "3"}}).settings_of("t")
    with pytest.raises(UsageError, match=r"^--topic-config, topic t: preallocate=1: expected"):
        topics(overrides={"t": {"preallocate": "1"}}).settings_of("t")


def test_topic_config_option():
    text = '{"t": {"index.interval.bytes": 64, "preallocate": true, "cleanup.policy": "compact"}, "u": {}}'
    assert read_topic_configs(text) == {
        "t": {"index.interval.bytes": "64", "preallocate": "true", "cleanup.policy": "compact"},
        "u": {},
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected JSON"),
        ("[1]", "expected JSON"),
        ('{"t": 5}', "topic t: expected"),
        ('{"t": {"index.interval.byte": "5"}}', "is index.interval.bytes meant"),
        ('{"t": {"xyzzy": "5"}}', "xyzzy is not a setting of a topic"),
        ('{"t": {"segment.ms": null}}', "segment.ms=None"),
        ('{"t": {"segment.ms": 1.5}}', "segment.ms=1.5"),
        ('{"t": {"segment.ms": [1]}}', "segment.ms="),
    ],
)
def test_topic_config_option_that_is_refused(text, says):
    with pytest.raises(UsageError, match=says):
        read_topic_configs(text)


def test_all_topic_settings_are_known():
    assert len(TOPIC_CONFIG_NAMES) == 38


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_int_kind(value, minimum):
    assert IntKind(minimum).read(f" {value}\t") == (value if value >= minimum else None)


def test_boolean_and_list_kinds():
    assert [BooleanKind().read(text) for text in ("True", " false ", "1")] == [True, False, None]
    assert ListKind().read("a ,b,\ta") == ("a", "b")
    assert ListKind().read("a b") == ("a b",)
    assert ListKind().read("") == ()
    assert ListKind(is_empty_allowed=False).read(" ") is None
    assert ListKind(choices=("a",)).read("a,b") is None


def test_a_misspelled_topic_is_not_looked_for_among_those_of_a_whole_cluster() -> None:
    """Which would take minutes: then all are told together, without those that may be meant."""
    here = [f"orders-{number:05}" for number in range(150)]
    (text,) = without_effect({"order-00017": {}}, here)
    assert text.endswith("its settings have no effect; is orders-00017 meant?")
    (text,) = without_effect({f"order-{number:05}": {} for number in range(100)}, here)
    assert "no logs of order-00000, order-00001, order-00002 and 97 more lie in the log dirs" in text
    assert text.endswith("so their settings have no effect")


def test_settings_of_a_whole_cluster_take_one_line_beside_what_is_misspelled() -> None:
    given = {"codec-nine": {}, "codec-gzip": {}, "codec-zstd": {}, "__transaction_state": {}}
    misspelled, others = without_effect(given, ["codec-none", "codec-zstd", "transactions"])
    assert "no log of codec-nine lies" in misspelled
    assert misspelled.endswith("so its settings have no effect; is codec-none meant?")
    assert "no logs of __transaction_state, codec-gzip lie in" in others
    assert others.endswith("so their settings have no effect")
