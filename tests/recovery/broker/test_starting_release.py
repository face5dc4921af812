"""Which release will start: by the option, by the last registration, by the cluster's level, or not known."""

from __future__ import annotations

import argparse

import pytest

from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.broker.starting_release import AUTO, CHOICES, StartingRelease, starting_release
from recovery.cli.arguments import add_release_argument
from recovery.errors import UsageError
from recovery.load.release import Release


def found(
    choice: str = "auto",
    *,
    level: int | None = None,
    registered: dict[int, int] | None = None,
    node_id: int | None = 1,
) -> StartingRelease:
    metadata = ClusterMetadata(metadata_version=level, node_versions=registered or {})
    return starting_release(choice, metadata, node_id)


@pytest.mark.parametrize(
    ("registered", "release"),
    [
        (12, "4.3"),
        (25, "4.3"),
        (27, "4.3"),
        (29, "4.3"),
        (30, "4.3"),
        (31, "4.3"),
        (32, "4.4"),
        (33, "4.4"),
        (34, "4.4"),
    ],
)
def test_the_release_that_ran_last_is_the_oldest_that_knows_what_it_registered(registered, release):
    one = found(level=12, registered={1: registered, 2: 30})
    assert (one.release.value, one.warning) == (release, None)
    assert one.origin == f"node 1 registered with metadata.version up to {registered}"


def test_a_downgraded_broker_has_registered_again():
    assert found(level=30, registered={1: 30, 2: 33}).release is Release.KAFKA_4_3


@pytest.mark.parametrize(
    ("level", "release"), [(6, "4.3"), (7, "unknown"), (31, "unknown"), (32, "4.4"), (33, "4.4")]
)
def test_without_a_registration_the_level_is_a_lower_bound(level, release):
    one = found(level=level, registered={2: 33})
    assert one.release.value == release
    assert str(level) in one.origin


def test_a_level_above_the_registration_counts():
    assert found(level=33, registered={1: 30}).release is Release.KAFKA_4_4
    one = found(level=25, registered={1: 20})
    assert (one.release, one.origin) == (Release.KAFKA_4_3, "the cluster's metadata.version is 25")


@pytest.mark.parametrize("known", [{"level": 99}, {"level": 30, "registered": {1: 35}}])
def test_what_is_newer_than_all_known_releases_counts_as_the_newest_with_a_warning(known):
    one = found(**known)
    assert one.release is Release.KAFKA_4_4
    assert "newer than Kafka 4.4" in one.warning


def test_nothing_is_known_without_a_metadata_log_or_a_node_id():
    assert starting_release("auto", None, 1).release is Release.UNKNOWN
    assert found(registered={1: 33}, node_id=None).release is Release.UNKNOWN
    assert found().release is Release.UNKNOWN


@pytest.mark.parametrize("choice", ["4.3", "4.4"])
def test_the_option_comes_first(choice):
    one = found(choice, level=30, registered={1: 34})
    assert (one.release.value, one.origin) == (choice, f"--release {choice}")
    assert starting_release(choice, None, None).release.value == choice


@pytest.mark.parametrize(
    ("choice", "level", "remedy"),
    [
        ("4.3", 33, "--release 4.4"),
        ("4.4", 35, "--release auto"),
        ("4.4", 6, "--release 4.3"),
        ("4.3", 0, "--release auto"),
    ],
)
def test_a_level_that_the_chosen_release_cannot_load_is_an_error(choice, level, remedy):
    with pytest.raises(UsageError, match=f"metadata.version is {level}, .*does not start.*Remedy: {remedy}"):
        found(choice, level=level, registered={1: 33})


def test_the_command_line_has_all_choices():
    arguments = argparse.ArgumentParser()
    add_release_argument(arguments.add_argument_group())
    (option,) = (one for one in arguments._actions if one.dest == "release")
    assert (option.choices, option.default) == (CHOICES, AUTO)
