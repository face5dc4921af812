"""Options that commands share: which log dirs, and which settings.

They are declared and read here once, so that every command spells them alike.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.errors import UsageError, reason_text, scarcity_remedy
from segfmt.java_text import LONG_MAX

if TYPE_CHECKING:
    from recovery.watch.open import ObserverOptions

_SIZE = re.compile(r"([0-9]{1,15})([kKmMgG]?)")
_SECONDS_OF_TODAY = range(10**9, 10**10)  # of 2001 to 2286; as milliseconds, of January to April 1970
_MOST_PROPERTIES_BYTES = 64 << 20
_READ_FILES = {
    "config": "-c",
    "topic_config": "--topic-config",
    "files_from": "--files-from",
    "source": "SOURCE",
}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class GivenOnce(argparse.Action):
    """An option whose first value would be dropped without a word if it were given a second time."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        _option_string: str | None = None,
    ) -> None:
        """Take the value; refuse a second one."""
        if getattr(namespace, self.dest) != self.default:
            together = "; give all of them at once, as A,B" if self.metavar == "A,B" else ""
            raise argparse.ArgumentError(self, f"given twice{together}")
        setattr(namespace, self.dest, values)


def add_config_argument(group: argparse._ActionsContainer) -> None:
    """Declare `-c/--config`."""
    group.add_argument(
        "-c", "--config", metavar="FILE", action=GivenOnce, help="the broker's server.properties"
    )


def add_place_arguments(group: argparse._ActionsContainer) -> None:
    """Declare `-c/--config` and `--log-dirs`."""
    add_config_argument(group)
    group.add_argument(
        "--log-dirs",
        metavar="A,B",
        action=GivenOnce,
        help="log dirs, instead of those in the configuration",
    )


def add_log_dir_arguments(
    parser: argparse.ArgumentParser, verb: str, *, choices: str = "one of the two is needed"
) -> argparse._ArgumentGroup:
    """Declare `-c/--config` and `--log-dirs`, and return their group; *verb* is what the command does to the dirs."""
    where = parser.add_argument_group(f"what to {verb} ({choices})")
    add_place_arguments(where)
    return where


def add_property_argument(group: argparse._ActionsContainer) -> None:
    """Declare `--property`, which every command with `-c/--config` has."""
    group.add_argument(
        "--property", metavar="K=V", action="append", default=[], help="a broker property; wins over FILE"
    )


def add_setting_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Declare `--property` and `--topic-config` in a group, and return the group for more options."""
    settings = parser.add_argument_group("settings")
    add_property_argument(settings)
    settings.add_argument(
        "--topic-config",
        metavar="JSON",
        action=GivenOnce,
        help='settings of topics; JSON {"topic": {"key": "value"}}, or a file that has it; wins over the metadata log',
    )
    return settings


def add_release_argument(settings: argparse._ArgumentGroup) -> None:
    """Declare `--release` among the *settings*."""
    settings.add_argument(
        "--release",
        choices=("auto", "4.3", "4.4"),
        default="auto",
        help="the release of Kafka that will start on the log dirs; 4.3 stands for all before, too. auto (default): "
        "the one that ran last, as the metadata log has it",
    )


def add_thread_argument(settings: argparse._ArgumentGroup) -> None:
    """Declare `--threads` among the *settings*."""
    settings.add_argument(
        "--threads",
        metavar="N",
        type=thread_count,
        help="threads per log dir (default: num.recovery.threads.per.data.dir, or 2)",
    )


def add_reading_arguments(settings: argparse._ArgumentGroup) -> None:
    """Declare `--max-bytes-per-second` and `--drop-cache` among the *settings*."""
    settings.add_argument(
        "--max-bytes-per-second",
        metavar="N",
        type=byte_rate,
        help="read at most this many bytes a second, over all threads; k, M and G are powers of 1024",
    )
    settings.add_argument(
        "--drop-cache",
        action="store_true",
        help="drop what was read from disk from the page cache again, for the sake of others on this machine",
    )


def add_watching_arguments(parser: argparse.ArgumentParser, *, served: str) -> None:
    """Declare the options of `observer_options`, where *served* is what there is to be served, and `--format`."""
    watching = parser.add_argument_group("watching")
    add_progress_argument(watching)
    watching.add_argument(
        "--metrics-port",
        metavar="P",
        type=port,
        help=f"serve {served} to Prometheus at /metrics of port P, a page at /, and /healthz; 0: any free port",
    )
    watching.add_argument(
        "--metrics-host",
        metavar="ADDRESS",
        help="listen on this address of this machine (default: 127.0.0.1); anyone who can reach it can read it",
    )
    watching.add_argument(
        "--metrics-textfile",
        metavar="FILE",
        action=GivenOnce,
        help="keep the metrics in FILE, for node_exporter, which reads names in .prom; FILE outlives the run",
    )
    watching.add_argument(
        "--stall-seconds",
        metavar="N",
        type=seconds,
        help="/healthz answers 503 when nothing has moved for so long (default: 300)",
    )
    watching.add_argument(
        "--format", choices=("text", "json"), default="text", help="form of the report on standard output"
    )


def add_progress_argument(parser: argparse._ActionsContainer) -> None:
    """Declare `--progress`."""
    parser.add_argument(
        "--progress",
        choices=("auto", "bar", "log", "json", "none"),
        default="auto",
        help="on standard error: a bar on a terminal, log lines elsewhere (auto)",
    )


def add_verbosity_arguments(parser: argparse.ArgumentParser, more: str) -> None:
    """Declare `-q`, and `-v`, which has *more* in the report; `verbosity_of` reads them."""
    much = parser.add_argument_group("how much the report says as text").add_mutually_exclusive_group()
    much.add_argument("-q", "--quiet", action="store_true", help="problems alone; nothing if there are none")
    much.add_argument("-v", "--verbose", action="count", default=0, help=more)


def verbosity_of(arguments: argparse.Namespace) -> int:
    """Return how much the report says: -1 for problems alone, 0, or how often `-v` was given."""
    return -1 if arguments.quiet else int(arguments.verbose)


def observer_options(arguments: argparse.Namespace) -> ObserverOptions:
    """Return what `add_watching_arguments` has declared.

    Raises:
        UsageError: as `textfile_of`; or there is an address, and nothing is served; or the environment puts kernels
            into a log dir.
    """
    from recovery.watch.open import ObserverOptions

    refuse_kernel_folder(arguments)
    given = {
        "metrics_port": arguments.metrics_port,
        "metrics_host": arguments.metrics_host,
        "metrics_textfile": textfile_of(arguments),
        "stall_seconds": arguments.stall_seconds,
    }
    if arguments.metrics_port is None and arguments.metrics_host is not None:
        raise UsageError(
            f"--metrics-host {arguments.metrics_host}: nothing is served. Remedy: give --metrics-port, too"
        )
    return ObserverOptions(
        progress=arguments.progress, **{name: value for name, value in given.items() if value is not None}
    )


def textfile_of(arguments: argparse.Namespace) -> str | None:
    """Return `--metrics-textfile`, None without it.

    Raises:
        UsageError: as `refuse_written_file`, or the file is there, and this tool has not written it.
    """
    path: str | None = arguments.metrics_textfile
    if path is not None:
        from recovery.watch.textfile import refuse_foreign_file

        refuse_written_file("--metrics-textfile", path, arguments)
        refuse_foreign_file(path)
    return path


def refuse_written_file(option: str, path: str, arguments: argparse.Namespace) -> None:
    """Refuse a file that *option* names to be written to, where it would do harm.

    Raises:
        UsageError: the command reads it, or it lies in a log dir, named here or not, in a partition's folder, or in the
            archive.
    """
    from recovery.logdir.brokers_place import refuse_brokers_place
    from recovery.read.file_system import is_same

    for name, given in _READ_FILES.items():
        if (read := getattr(arguments, name, None)) and is_same(path, read):
            raise UsageError(f"{option} {path}: this is the file of {given}. Remedy: name another file")
    refuse_brokers_place(f"{option} {path}", path, _named_log_dirs(arguments), kind="file")
    copies_to = arguments.output if getattr(arguments, "action", None) == "copy" else None
    if archive := getattr(arguments, "archive", copies_to):
        from recovery.archive.stores.stores import refuse_within

        refuse_within(f"{option} {path}", path, archive, kind="file")


def refuse_kernel_folder(arguments: argparse.Namespace) -> None:
    """Refuse a folder for kernels that the environment names, where a broker would not start with it.

    Raises:
        UsageError: it lies in a log dir, named here or not, or in a partition's folder.
    """
    from native import kernels
    from recovery.logdir.brokers_place import refuse_brokers_place

    for name in (kernels.CACHE_ENVIRONMENT, "NUMBA_CACHE_DIR"):
        if path := os.environ.get(name):
            refuse_brokers_place(f"{name}={path}", path, _named_log_dirs(arguments))
            return  # the first one counts


def _named_log_dirs(arguments: argparse.Namespace) -> list[str]:
    """Return the log dirs that *arguments* name; a copy of logs need not have a file that shows that it is one."""
    from recovery.broker.config import BrokerConfig

    log_dirs = _entries(
        f"{getattr(arguments, 'log_dirs', None) or ''},{getattr(arguments, 'metadata', None) or ''}"
    )
    if getattr(arguments, "config", None) is None or log_dirs:
        return log_dirs
    broker = BrokerConfig.from_properties(properties_of(arguments).values)
    return [*broker.log_dirs, broker.metadata_log_dir]


def log_dirs_of(arguments: argparse.Namespace, *, also: str = "") -> list[str] | None:
    """Return the dirs of `--log-dirs`; None if the configuration names them.

    Args:
        also: a third option with which the command does without both.

    Raises:
        UsageError: neither option is given.
    """
    if arguments.log_dirs is None:
        if arguments.config is None:
            named = (
                f"-c/--config FILE, --log-dirs A,B or {also}"
                if also
                else "-c/--config FILE or --log-dirs A,B"
            )
            action = getattr(arguments, "action", None)
            command = arguments.command if action is None else f"{arguments.command} {action}"
            raise UsageError(f"{command} needs {named}")
        return None
    log_dirs = _entries(arguments.log_dirs)
    if not log_dirs:
        raise UsageError(
            "--log-dirs: no log dir is named. Remedy: name one; is a variable of the shell empty?"
        )
    return log_dirs


def kept_quarantine_dir(arguments: argparse.Namespace) -> str | None:
    """Return `--quarantine-dir` for a command that looks for what a recovery has put there.

    Raises:
        UsageError: it is not there: a misspelled one would never have anything in it.
    """
    from recovery.read.file_system import is_there

    path: str | None = arguments.quarantine_dir
    if path and not is_there(path):
        raise UsageError(
            f"--quarantine-dir {path}: no such folder. Remedy: name the one that was given to recover, and check that "
            "its file system is mounted"
        )
    return path


def metadata_of(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the log dirs that `--metadata` names, none without it.

    Raises:
        UsageError: the option is there, and names none: left out it means something else.
    """
    found = tuple(_entries(arguments.metadata or ""))
    if arguments.metadata is not None and not found:
        raise UsageError(
            "--metadata A,B: no log dir given; a shell variable may not be set. Remedy: name log dirs of the brokers, "
            "or copies of them"
        )
    return found


def _entries(text: str) -> list[str]:
    """Return what stands between commas; a shell's variable may leave nothing there."""
    return [part.strip() for part in text.split(",") if part.strip()]


class GivenProperties(NamedTuple):
    """The broker's properties as a command was given them.

    Attributes:
        values: text by key.
        notes: remarks about where they come from.
    """

    values: dict[str, str]
    notes: tuple[str, ...]


def properties_of(arguments: argparse.Namespace) -> GivenProperties:
    """Return the properties file, overridden by `--property`; read once, as it may be a pipe.

    Raises:
        UsageError: the file or a property cannot be read.
    """
    given: GivenProperties | None = getattr(arguments, "given_properties", None)
    if given is None:
        given = arguments.given_properties = _read_properties(arguments)
    return given


def _read_properties(arguments: argparse.Namespace) -> GivenProperties:
    from recovery.broker.config import LOG_DIRS_OPTION, BrokerConfig, misspelled
    from recovery.broker.settings import Layer

    file = getattr(arguments, "config", None)
    properties, notes = ({}, []) if file is None else read_properties_file(file, "--config")
    last_values: dict[str, str] = {}
    for item in arguments.property:
        key, value = pair_of(item, "--property", "KEY=VALUE")
        if last_values.get(key, value) != value:
            notes.append(f"--property {key} is given more than once; the last value, {value}, counts")
        last_values[key] = value
    for hint in misspelled(last_values):
        raise UsageError(f"--property {hint}")
    # Checked here, where it is still known which of them a wrong value comes from.
    layers: tuple[Layer, ...] = (Layer("--property", last_values), Layer(f"{file}", properties))
    if file is None and getattr(arguments, "log_dirs", None):
        log_dirs = ",".join(_entries(arguments.log_dirs))
        layers = (Layer(LOG_DIRS_OPTION, {"log.dirs": log_dirs}), *layers) if log_dirs else layers
    BrokerConfig.from_layers(layers)
    return GivenProperties(properties | last_values, tuple(notes))


def pair_of(item: str, option: str, form: str) -> tuple[str, str]:
    """Return what *item* has before and behind its first `=`, without spaces around them.

    Raises:
        UsageError: it has no name, or no `=`; *option* and *form* say of what, and what is expected.
    """
    key, equals, value = (part.strip() for part in item.partition("="))
    if not equals or not key:
        raise UsageError(f"{option} {item}: expected {form}")
    return key, value


def read_properties_file(path: str, option: str) -> tuple[dict[str, str], list[str]]:
    """Return the entries of the file that *option* names, and notes.

    Raises:
        UsageError: it cannot be read, or is no properties file.
    """
    from recovery.quantity import bytes_text
    from segfmt.errors import MalformedPropertiesError
    from segfmt.properties import read_properties, repeated_keys

    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_PROPERTIES_BYTES + 1)
        if len(data) > _MOST_PROPERTIES_BYTES:
            raise UsageError(
                f"{option} {path}: more than {bytes_text(_MOST_PROPERTIES_BYTES)}. Remedy: name a properties file"
            )
        properties = read_properties(data)
        repeated = repeated_keys(data)
    except OSError as error:
        remedy = scarcity_remedy(error) or "name a properties file that this user may read"
        raise UsageError(f"{option} {path}: {error.strerror}. Remedy: {remedy}") from error
    except MalformedPropertiesError as error:
        raise UsageError(f"{option} {path}: {error}") from error
    return properties, [
        f"{path} has {key} more than once; the last value, {properties[key]}, counts, as for the broker"
        for key in repeated
    ]


def topic_configs_of(arguments: argparse.Namespace) -> dict[str, dict[str, str]] | None:
    """Return the overrides of `--topic-config`: its JSON, or the JSON in the file of that name.

    Raises:
        UsageError: it is neither.
    """
    from recovery.broker.topic_configs import read_topic_configs

    text: str | None = arguments.topic_config
    if text is None:
        return None
    if not text.lstrip().startswith(("{", "[")):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--topic-config {text}: {reason_text(error)}. Remedy: name a file that this user may read, or give "
                "JSON {topic: {key: value}}"
            ) from error
    return read_topic_configs(text)


def port(text: str) -> int:
    """Return *text* as a TCP port."""
    return _integer(text, 0, 65535)


def thread_count(text: str) -> int:
    """Return *text* as a number of threads."""
    return _integer(text, 1, 1 << 15)


def seconds(text: str) -> int:
    """Return *text* as a length of time in seconds."""
    return _integer(text, 1, 1 << 31)


def milliseconds(text: str) -> int:
    """Return *text* as a time, ms since 1970."""
    value = _integer(text, 0, LONG_MAX)
    if value in _SECONDS_OF_TODAY:
        raise argparse.ArgumentTypeError(f"{text}: a day of 1970; are seconds meant? Then give {value}000")
    return value


def byte_rate(text: str) -> int:
    """Return *text* as bytes a second."""
    return _bytes(text, 1, "an integer above 0")


def byte_count(text: str) -> int:
    """Return *text* as a number of bytes."""
    return _bytes(text, 0, "an integer from 0 on")


def _bytes(text: str, minimum: int, expected: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or int(match[1]) < minimum:
        raise argparse.ArgumentTypeError(
            f"{text}: expected {expected}, of up to 15 digits, optionally followed by k, M or G"
        )
    return int(match[1]) * _UNITS[match[2].lower()]


def _integer(text: str, minimum: int, maximum: int) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 20 and minimum <= int(text) <= maximum:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text}: expected an integer from {minimum} to {maximum}")
