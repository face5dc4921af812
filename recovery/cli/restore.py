"""`kafka-log-recovery archive restore`: archived partitions back in the log dirs of a stopped broker."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from recovery.cli.arguments import (
    GivenOnce,
    add_log_dir_arguments,
    add_setting_arguments,
    add_thread_argument,
    add_verbosity_arguments,
    add_watching_arguments,
    byte_rate,
    log_dirs_of,
    metadata_of,
    milliseconds,
    observer_options,
    pair_of,
    properties_of,
    topic_configs_of,
)
from recovery.cli.session import print_report, watched_signals

if TYPE_CHECKING:
    from recovery.archive.restore.options import RestoreOptions

_EPILOG = """\
examples:
  kafka-log-recovery archive restore s3://backups/kafka -c /etc/kafka/server.properties --dry-run
  kafka-log-recovery archive restore s3://backups/kafka -c /etc/kafka/server.properties

exit codes:
  0  all that was chosen is in the log dirs
  1  usage or I/O error
  3  a log dir is locked or unsafe to touch; nothing was changed
  4  some partitions were refused, or failed; the others are restored
  129, 130, 143  interrupted; start again to resume
"""


def add_action(actions: argparse._SubParsersAction[Any]) -> None:
    """Add the command to those of `archive`."""
    parser = actions.add_parser(
        "restore",
        help="restore archived partitions into the log dirs of a stopped broker",
        description="Restore archived partitions into the log dirs of a stopped broker: in full, or with --aux what a "
        "broker needs to serve them from remote storage. undo takes it back.",
        epilog=_EPILOG,
    )
    parser.add_argument("archive", metavar="ARCHIVE", help="path or URL of the archive")
    add_log_dir_arguments(parser, "restore into")
    source = parser.add_argument_group("what")
    source.add_argument("--layout", metavar="NAME", default="auto", help="of the archive (default: auto)")
    source.add_argument(
        "--metadata",
        metavar="A,B",
        action=GivenOnce,
        help="log dirs of the brokers that wrote the archive, or copies of them: they tell which segments count",
    )
    source.add_argument("--topic", metavar="NAME", action="append", default=[], help="only this topic")
    source.add_argument(
        "--partition", metavar="TOPIC-N", action="append", default=[], help="only this partition"
    )
    source.add_argument(
        "--aiven-key", metavar="ID=FILE", action="append", default=[], help="an RSA key of Aiven's plugin"
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--aux",
        action="store_true",
        help="leave the records in remote storage: an empty local log behind the last archived offset",
    )
    how.add_argument(
        "--leader-epochs",
        choices=("auto", "keep", "renumber"),
        default="auto",
        help="of the batches: auto keeps them if the cluster's is as high, else all become 0",
    )
    how.add_argument(
        "--topic-id",
        metavar="TOPIC=ID",
        action="append",
        default=[],
        help="the topic's id where no metadata log tells it",
    )
    how.add_argument(
        "--ignore-cordon", action="store_true", help="choose a log dir even if all of them are cordoned"
    )
    how.add_argument("--quarantine-dir", metavar="DIR", action=GivenOnce, help="where what is replaced goes")
    how.add_argument("-n", "--dry-run", action="store_true", help="write nothing, list what would be done")
    how.add_argument("--restart", action="store_true", help="forget what an interrupted run has fetched")
    settings = add_setting_arguments(parser)
    add_thread_argument(settings)
    settings.add_argument(
        "--max-bytes-per-second",
        metavar="N",
        type=byte_rate,
        help="read at most this many bytes a second from the archive; k, M and G are powers of 1024",
    )
    settings.add_argument(
        "--now",
        metavar="MS",
        type=milliseconds,
        help="the clock of retention and of producers (default: now)",
    )
    add_watching_arguments(parser, served="progress")
    add_verbosity_arguments(parser, "each partition")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    with watched_signals() as signals, ExitStack() as process:
        from recovery.archive.restore.run import restore
        from recovery.stop_request import StopRequest
        from recovery.watch.open import open_observers

        stop = StopRequest()
        options = _options(arguments)
        signals.forward_to(stop)
        with open_observers(observer_options(arguments), process=process) as observers:
            report = restore(options, observers=observers, stop=stop)
        print_report(report, arguments, signals)
    return report.exit_code


def _options(arguments: argparse.Namespace) -> RestoreOptions:
    from recovery.archive.options import ArchiveOptions
    from recovery.archive.restore.options import RestoreOptions
    from recovery.engine.options import RecoverOptions

    properties = properties_of(arguments)
    log_dirs = log_dirs_of(arguments)
    return RestoreOptions(
        archive=ArchiveOptions(
            url=arguments.archive,
            layout=arguments.layout,
            metadata=metadata_of(arguments),
            topics=tuple(arguments.topic),
            partitions=tuple(arguments.partition),
        ),
        log_dirs=None if log_dirs is None else tuple(log_dirs),
        broker=RecoverOptions(
            config=properties.values,
            config_notes=properties.notes,
            is_config_complete=arguments.config is not None,
            topic_configs=topic_configs_of(arguments),
            now_ms=arguments.now,
            dry_run=arguments.dry_run,
            threads=arguments.threads,
            quarantine_dir=arguments.quarantine_dir,
            restart=arguments.restart,
            max_bytes_per_second=arguments.max_bytes_per_second,
            acknowledge=False,
        ),
        is_aux=arguments.aux,
        topic_ids=dict(pair_of(item, "--topic-id", "TOPIC=ID") for item in arguments.topic_id),
        leader_epochs=arguments.leader_epochs,
        ignore_cordon=arguments.ignore_cordon,
        aiven_keys=dict(pair_of(item, "--aiven-key", "ID=FILE") for item in arguments.aiven_key),
    )
