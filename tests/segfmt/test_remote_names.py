from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.remote_names import (
    AIVEN_SUFFIXES,
    LOCAL_TIERED_SUFFIXES,
    AivenKey,
    LocalTieredFolder,
    RemoteFileName,
    format_aiven_folder,
    read_aiven_file,
    read_aiven_key,
    read_aiven_topic_folder,
    read_local_tiered_file,
    read_local_tiered_folder,
)

UUIDS = st.uuids()
OFFSETS = st.integers(0, 2**63 - 1)
PARTITIONS = st.integers(0, 2**31 - 1)
TOPICS = st.text("abzAZ019._-", min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))
ID = "azWoOhPLTY2ie0GUqzeQ_A"
NAME = "00000000000000000960-9HqOfWiVQFGS77rn8k-ghw"


@given(TOPICS, PARTITIONS, UUIDS)
def test_a_folder_of_local_tiered_storage_comes_back(topic, partition, topic_id):
    folder = LocalTieredFolder(topic=topic, partition=partition, topic_id=topic_id)
    assert read_local_tiered_folder(str(folder)) == folder


@given(OFFSETS, UUIDS, st.sampled_from(LOCAL_TIERED_SUFFIXES))
def test_a_file_of_local_tiered_storage_comes_back(start_offset, segment_id, suffix):
    file = RemoteFileName(start_offset=start_offset, segment_id=segment_id, suffix=suffix)
    assert read_local_tiered_file(str(file)) == file


@given(
    TOPICS, UUIDS, PARTITIONS, OFFSETS, UUIDS, st.sampled_from(AIVEN_SUFFIXES), st.text("ab/-.", max_size=9)
)
def test_a_key_of_the_plugin_comes_back(topic, topic_id, partition, start_offset, segment_id, suffix, prefix):
    file = RemoteFileName(start_offset=start_offset, segment_id=segment_id, suffix=suffix)
    key = AivenKey(topic=topic, topic_id=topic_id, partition=partition, file=file)
    assert read_aiven_key(f"{prefix}{key}", prefix=prefix) == key
    assert str(key) == f"{format_aiven_folder(topic, topic_id, partition)}{file}"
    assert read_aiven_topic_folder(f"{topic}-{format_uuid(topic_id)}") == (topic, topic_id)
    assert read_aiven_file(str(file)) == file


@given(st.text("ab019-_./AZ", max_size=60))
def test_any_name_is_a_value_that_spells_it_or_none(name):
    for found in (read_local_tiered_folder(name), read_local_tiered_file(name), read_aiven_key(name)):
        assert found is None or str(found) == name


def test_a_name_is_taken_apart_from_the_right():
    """The topic ends like a partition, the id begins and ends with a dash."""
    topic_id = UUID(bytes=b"\xf8" + bytes(14) + b"\x03")
    assert format_uuid(topic_id).startswith("-")
    folder = LocalTieredFolder(topic="orders-7-", partition=12, topic_id=topic_id)
    assert read_local_tiered_folder(str(folder)) == folder


@pytest.mark.parametrize(
    "name",
    [
        f"t-0-{ID[:-1]}",
        f"t-00-{ID}",
        f"t-2147483648-{ID}",
        f"-0-{ID}",
        f".-0-{ID}",
        f"t-0-{ID[:-1]}B",  # the last character spells bits behind the 128th
        f"t/x-0-{ID}",
        f"t-0-{ID}.bak",
        f"t-0-{ID}\n",
        f"t-\u0660-{ID}",
        "t-0",
        "",
    ],
)
def test_other_folders_are_none(name):
    assert read_local_tiered_folder(name) is None


@pytest.mark.parametrize(
    "name",
    [
        f"{NAME}.indexes",
        f"{NAME}.log.bak",
        f"{NAME}",
        f"{NAME[1:]}.log",
        f"9{NAME[1:]}.log",
        f"09223372036854775808{NAME[20:]}.log",
        f"{NAME}.LOG",
        f"{NAME}.log\n",
        "00000000000000000960.log",
    ],
)
def test_other_files_are_none(name):
    assert read_local_tiered_file(name) is None


def test_an_id_is_one_that_comes_back_from_the_uuid_it_spells():
    """Of its last character two bits belong to the UUID; Java passes over the others, but never writes them."""
    for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
        text = ID[:-1] + last
        is_written = format_uuid(read_uuid(text)) == text
        assert (read_local_tiered_file(f"{NAME[:21]}{text}.log") is not None) == is_written
        assert (read_local_tiered_folder(f"t-0-{text}") is not None) == is_written
        assert (read_aiven_topic_folder(f"t-{text}") is not None) == is_written


@pytest.mark.parametrize(
    "key",
    [
        f"avb-{ID}/0/{NAME}.snapshot",
        f"avb-{ID}/{NAME}.log",
        f"x/avb-{ID}/0/{NAME}.log",
        f"avb-{ID}/0/0/{NAME}.log",
        f"avb-{ID}/01/{NAME}.log",
        f"avb-{ID}/2147483648/{NAME}.log",
        f"avb{ID}/0/{NAME}.log",
    ],
)
def test_other_keys_are_none(key):
    assert read_aiven_key(key) is None


def test_a_key_without_the_prefix_is_none():
    key = f"avb-{ID}/0/{NAME}.log"
    assert read_aiven_key(key) is not None
    assert read_aiven_key(key, prefix="tier/") is None
    assert read_aiven_key(f"tier-{key}", prefix="tier-") == read_aiven_key(key)
