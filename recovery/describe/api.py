"""`recovery.describe_log_dirs`: the library call. It only reads, and writes nothing, not even a lock file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from recovery.describe.log_dirs import describe_dirs
from recovery.describe.options import DescribeOptions
from recovery.describe.report import LogDirsReport
from recovery.errors import UsageError
from recovery.logdir.dirs import find_broker_dirs
from recovery.several import several
from recovery.watch.tally import Tally


def describe_log_dirs(
    log_dirs: Sequence[str] | None = None,
    options: DescribeOptions | None = None,
    *,
    tally: Tally | None = None,
    **changes: Any,  # noqa: ANN401 - the fields of DescribeOptions, whose types stand there alone
) -> LogDirsReport:
    """Return what is in log dirs: sizes of replicas, room on the volumes, what is offline and what is cordoned.

    Args:
        log_dirs: paths on this machine; None for those in the options' `config`, or of live brokers.
        options: None for the defaults.
        tally: counts folders and active segments, or the brokers that are asked.
        changes: fields of `DescribeOptions` that differ from *options*:
            `describe_log_dirs(bootstrap_servers="localhost:9092")`.

    Raises:
        UsageError: settings that Kafka does not accept or that are not known here; a relative log dir; a broker or a
            topic that there is not; no broker gave an answer.
    """
    options, tally = replace(options or DescribeOptions(), **changes), tally or Tally()
    for argument, names in (("topics", options.topics), ("brokers", options.brokers)):
        several(argument, names or ())
    if log_dirs is None and options.config is None and options.bootstrap_servers is None:
        raise UsageError("log dirs of what? Remedy: give log_dirs, config or bootstrap_servers")
    if options.bootstrap_servers is None:
        report = _from_files(log_dirs, options, tally)
    else:
        if log_dirs is not None or options.config is not None:
            raise UsageError("log dirs are described from files, or by live brokers: leave one of them out")
        from recovery.describe.brokers import ask_brokers  # the client library is optional

        report = ask_brokers(options, tally)
    _refuse_unknown_topics(report, options.topics)
    return report


def _from_files(log_dirs: Sequence[str] | None, options: DescribeOptions, tally: Tally) -> LogDirsReport:
    if options.client_config is not None:
        raise UsageError("--command-config: for --bootstrap-server alone. Remedy: leave it out")
    dirs = find_broker_dirs(log_dirs, options.config or {}, may_be_foreign=True, may_be_missing="all")
    report = describe_dirs(dirs, topics=options.topics, tally=tally)
    refuse_unknown_brokers(options.brokers, [broker.broker for broker in report.brokers])
    return replace(report, warnings=(*options.config_notes, *report.warnings))


def refuse_unknown_brokers(wanted: Sequence[int] | None, known: Iterable[int]) -> None:
    """Raise UsageError if one of the brokers *wanted* is not *known*. Kafka: LogDirsCommand.execute."""
    known = sorted(known)
    if unknown := [broker for broker in wanted or () if broker not in known]:
        raise UsageError(
            f"--broker-list: no broker {', '.join(map(str, unknown))}. Remedy: choose from {', '.join(map(str, known))}"
        )


def _refuse_unknown_topics(report: LogDirsReport, topics: Sequence[str] | None) -> None:
    found = {replica.topic for log_dir in report.log_dirs for replica in log_dir.replicas}
    if unknown := [topic for topic in topics or () if topic not in found]:
        raise UsageError(
            f"--topic-list: no replica of {', '.join(unknown)} in these log dirs. Remedy: check the name"
            + "".join(f"; {complaint}" for complaint in report.complaints if "offline" in complaint)
        )
