"""Several things are never one text, of which each letter would count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import recovery
from recovery.errors import UsageError
from recovery.several import several
from recovery.spark import archive
from tests.logs.samples import Sample, unpack


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return unpack("crashed", tmp_path_factory.mktemp("several"))


def test_the_items_in_their_order() -> None:
    assert several("topics", ["b", "a"]) == ("b", "a")
    assert several("topics", {}) == ()


@pytest.mark.parametrize("call", ["recover", "verify", "estimate", "describe_log_dirs"])
@pytest.mark.parametrize("kind", [str, Path])
def test_one_path_is_no_list_of_log_dirs(sample: Sample, call: str, kind: type) -> None:
    one = kind(sample.log_dirs[0])
    with pytest.raises(UsageError, match=r"log_dirs=.*: expected a list\. Remedy: log_dirs=\["):
        getattr(recovery, call)(one)


@pytest.mark.parametrize("call", ["recover", "verify", "estimate", "describe_log_dirs"])
def test_paths_may_be_of_any_kind(sample: Sample, call: str) -> None:
    options: dict[str, Any] = {"dry_run": True} if call == "recover" else {}
    report = getattr(recovery, call)([Path(path) for path in sample.log_dirs], **options)
    assert [one.log_dir for one in report.log_dirs] == [str(path) for path in sample.log_dirs]


@pytest.mark.parametrize("call", ["recover", "verify", "estimate", "describe_log_dirs"])
def test_a_path_is_no_configuration(sample: Sample, call: str) -> None:
    """It would be passed over without a word, with all that the broker was told."""
    with pytest.raises(UsageError, match=r"config=.*: expected a dict\. Remedy: segfmt\.properties"):
        getattr(recovery, call)(sample.log_dirs, config=str(sample.config))


@pytest.mark.parametrize("call", ["recover", "verify", "estimate"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"config": {"num.recovery.threads.per.data.dir": 8}},
            r"config: num\..*=8: expected a text\. Remedy: num\..*='8'",
        ),
        ({"topic_configs": "x"}, r"topic_configs='x': expected a dict\. Remedy: "),
    ],
)
def test_a_value_of_another_type(sample: Sample, call: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        getattr(recovery, call)(sample.log_dirs, **options)


@pytest.mark.parametrize("call", ["recover", "verify"])
def test_a_number_of_threads_is_a_number(sample: Sample, call: str) -> None:
    with pytest.raises(UsageError, match="--threads '2': expected an integer from 1 on"):
        getattr(recovery, call)(sample.log_dirs, threads="2")


def test_nothing_is_described_of_nothing() -> None:
    with pytest.raises(UsageError, match=r"log dirs of what\? Remedy: "):
        recovery.describe_log_dirs()


@pytest.mark.parametrize("call", ["recover", "verify", "describe_log_dirs"])
def test_one_text_is_no_list_of_topics(sample: Sample, call: str) -> None:
    with pytest.raises(UsageError, match=r"topics='late': expected a list\. Remedy: topics=\['late'\]"):
        getattr(recovery, call)(sample.log_dirs, topics="late")


@pytest.mark.parametrize("call", [archive.inventory, archive.verify])
@pytest.mark.parametrize("argument", ["topics", "partitions", "metadata"])
def test_nor_of_what_an_archive_is_asked_for(tmp_path: Path, call: Any, argument: str) -> None:
    with pytest.raises(UsageError, match=f"{argument}='one': expected a list"):
        call(str(tmp_path), **{argument: "one"})
