"""The log dirs that a command works on: absolute, each of them a separate folder, and a broker's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import Literal

from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.broker.config import LOG_DIRS_OPTION, BrokerConfig, misspelled
from recovery.broker.cordons import Cordons, find_cordons
from recovery.broker.settings import Layer
from recovery.errors import UnsafeError, UsageError
from recovery.logdir.brokers_place import BROKER_TRACES, brokers_place_of, is_inside, refuse_brokers_place
from recovery.logdir.choice import PartitionChoice
from recovery.logdir.quarantine_place import possible_roots
from recovery.read.file_system import absolute, is_folder, is_link, is_same, is_there, nearest
from recovery.several import refuse_no_mapping, several
from segfmt.errors import FileNameError
from segfmt.filenames import (
    CLUSTER_METADATA_TOPIC,
    LOG_SUFFIX,
    META_PROPERTIES,
    FolderState,
    read_folder_name,
)

MayBeMissing = Literal["none", "some", "all"]
NOT_A_LOG_DIR = f"not the log dir of a broker: {META_PROPERTIES} and all checkpoints are missing"
CHECK_MOUNT = "Remedy: check the path, and that its file system is mounted"
_LONGEST_NAME_BYTES = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDirs:
    """The dirs of one broker.

    Attributes:
        log_dirs: absolute paths.
        locked_dirs: these, and a separate metadata.log.dir.
        broker: the settings that name them.
        quarantine_dir: `--quarantine-dir`, absolute.
        notes: remarks on the properties.
    """

    log_dirs: tuple[str, ...]
    locked_dirs: tuple[str, ...]
    broker: BrokerConfig
    quarantine_dir: str | None = None
    notes: tuple[str, ...] = ()


def find_broker_dirs(
    log_dirs: Sequence[str] | None,
    properties: Mapping[str, str],
    *,
    quarantine_dir: str | None = None,
    may_be_foreign: bool = False,
    may_be_missing: MayBeMissing = "none",
) -> BrokerDirs:
    """Return the dirs that *log_dirs* names or, if it is None, the properties.

    Args:
        may_be_foreign: whether a folder that no broker has ever opened is accepted, since nothing is written.
        may_be_missing: which log dirs that are not there are accepted, as those that are offline.

    Raises:
        UsageError: a path that is missing, relative or named twice, or a quarantine inside one, or without a name; an
            argument of another type.
        UnsafeError: a folder that no broker has ever opened.
    """
    _refuse_no_properties(properties)
    broker = _broker_config(log_dirs, properties)
    if log_dirs is None:
        _refuse_relative(broker)
    paths = _log_dir_paths(broker, may_be_missing=may_be_missing)
    if not may_be_foreign:
        _refuse_foreign(paths)
    locked_dirs = _with_metadata_dir(broker, paths)
    if not may_be_foreign:
        _refuse_nested(locked_dirs)
    quarantine = quarantine_place(quarantine_dir)
    if quarantine is not None:
        named = f"--quarantine-dir {quarantine}"
        refuse_brokers_place(named, quarantine, locked_dirs, remedy=", or leave the option out")
    for path in () if may_be_foreign else paths:
        _refuse_place(path, quarantine, paths)
    return BrokerDirs(
        log_dirs=paths,
        locked_dirs=locked_dirs,
        broker=broker,
        quarantine_dir=quarantine,
        notes=(
            *(f"log.dirs names {path} more than once; it counts once" for path in broker.repeated_log_dirs),
            *misspelled(properties),
        ),
    )


def quarantine_place(quarantine_dir: str | None) -> str | None:
    """Return the absolute path of `--quarantine-dir`, None if it is not given.

    Raises:
        UsageError: it is not a folder, or a URL, or it is empty: that comes from an unset shell variable, and does not
            mean the present folder.
    """
    if quarantine_dir == "":
        raise UsageError(
            "--quarantine-dir: the name is empty. Remedy: name a folder (`.` for the present one), or leave the "
            "option out"
        )
    if quarantine_dir is None:
        return None
    if "://" in quarantine_dir:
        raise UsageError(
            f"--quarantine-dir {quarantine_dir}: a path is needed, and this is a URL. Remedy: name a folder of this "
            "machine"
        )
    path = absolute(quarantine_dir)
    if is_there(path) and not is_folder(path):
        raise UsageError(f"--quarantine-dir {path}: not a folder. Remedy: choose another place")
    if not is_folder(above := nearest(path)):
        raise UsageError(f"--quarantine-dir {path}: {above} is not a folder. Remedy: choose another place")
    return path


def _broker_config(log_dirs: Sequence[str] | None, properties: Mapping[str, str]) -> BrokerConfig:
    if log_dirs is None:
        return BrokerConfig.from_properties(properties)
    paths = several("log_dirs", log_dirs)
    if not paths:
        raise UsageError("no log dir given")
    return BrokerConfig.from_properties(
        properties, overrides=(Layer(LOG_DIRS_OPTION, {"log.dirs": ",".join(map(os.fspath, paths))}),)
    )


def _refuse_no_properties(properties: Mapping[str, object]) -> None:
    """Refuse what cannot be a broker's properties: passed over, it would let defaults decide about bytes."""
    refuse_no_mapping(
        "config", properties, "segfmt.properties.read_properties makes one of the bytes of server.properties"
    )
    for key, value in properties.items():
        if not isinstance(value, str):
            raise UsageError(f"config: {key}={value!r}: expected a text. Remedy: {key}={str(value)!r}")


def _refuse_relative(broker: BrokerConfig) -> None:
    """Refuse paths relative to the folder that the broker is started in, which is not known here."""
    for key, path in (
        *(("log.dirs", path) for path in broker.log_dirs),
        ("metadata.log.dir", broker.metadata_log_dir),
    ):
        refuse_relative(path, key, f"--property {key}=...")


def refuse_relative(path: str, key: str, option: str) -> None:
    """Refuse a *path* of the configuration that depends on the folder in which the broker is started.

    Raises:
        UsageError: it is relative; *option* takes the absolute one.
    """
    if os.path.isabs(path):
        return
    fault = "a relative path, which depends on the folder that the broker is started in"
    if path.startswith("${"):
        fault = "a placeholder, and configuration providers are not run here"
    raise UsageError(f"{key}: {path}: {fault}. Remedy: give the absolute path with {option}")


def _log_dir_paths(broker: BrokerConfig, *, may_be_missing: MayBeMissing) -> tuple[str, ...]:
    """Return the log dirs as absolute paths, each of them a separate folder, or one that cannot be looked at.

    Kafka: LogManager.createAndValidateLogDirs. Differs: a missing log dir is not created.
    """
    entries: dict[tuple[int, int], str] = {}
    missing: list[UsageError] = []
    if odd := [entry for entry in broker.log_dirs if "\0" in entry]:
        raise UsageError(f"log.dirs: {odd[0]!r}: no path can have a zero byte. Remedy: correct it")
    paths = {entry: absolute(entry) for entry in broker.log_dirs}
    for entry, path in paths.items():
        try:
            if not is_folder(path):
                fault = "not a folder" if is_there(path) else "no such log dir"
                why = "" if broker.names_log_dirs else by_default(broker)
                missing.append(UsageError(f"{path}: {fault}{why}. {CHECK_MOUNT}"))
                continue
            status = os.stat(path)
        except OSError:
            continue  # the log dir goes offline when it is locked
        other = entries.setdefault((status.st_dev, status.st_ino), entry)
        if other != entry:
            raise UsageError(
                f"log.dirs: {other} and {entry} are the same folder (KafkaException stops the broker). "
                "Remedy: name it once"
            )
    if missing and (may_be_missing == "none" or (may_be_missing == "some" and len(missing) == len(paths))):
        raise missing[0]
    return tuple(paths.values())


def by_default(broker: BrokerConfig) -> str:
    """Return why a log dir is one that nobody has named, with what may be a misspelled name of the setting."""
    hints = [hint for layer in broker.layers for hint in misspelled(layer.values)]
    meant = f" ({' '.join(hints)})" if hints else ""
    return f", and neither log.dirs nor log.dir is set, so that Kafka's default counts{meant}"


def _refuse_foreign(paths: tuple[str, ...]) -> None:
    """Refuse a folder that no broker has ever opened: another one was meant, or its file system is not mounted.

    Kafka: KafkaRaftServer.initializeLogDirs (a missing meta.properties stops the node). Differs: any file of a
    broker's own is enough, since a dir that has lost that file is still a broker's.
    """
    if (path := foreign_among(paths)) is not None:
        raise UnsafeError(f"{path}: {NOT_A_LOG_DIR}. Nothing was changed. {CHECK_MOUNT}")


def is_without_logs(path: str) -> bool:
    """Return whether no broker has ever opened the folder at *path*, and it is no copy of logs either.

    Raises:
        OSError: it cannot be listed.
    """
    return is_foreign(path) and not any(_is_log(path, name) for name in os.listdir(path))


def _is_log(path: str, name: str) -> bool:
    try:
        read_folder_name(name)
        return any(file.endswith(LOG_SUFFIX) for file in os.listdir(os.path.join(path, name)))
    except (FileNameError, NotADirectoryError):
        return False


def foreign_among(paths: Iterable[str]) -> str | None:
    """Return the first of *paths* that is a foreign folder; one that cannot be read is none."""
    for path in paths:
        with suppress(OSError):  # the log dir goes offline when it is locked
            if is_foreign(path):
                return path
    return None


def is_foreign(path: str) -> bool:
    """Return whether no broker has ever opened the folder at *path*.

    Raises:
        OSError: it cannot be listed.
    """
    return BROKER_TRACES.isdisjoint(os.listdir(path))


def _with_metadata_dir(broker: BrokerConfig, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the dirs to lock: a separate metadata.log.dir is one of them."""
    metadata_dir = absolute(broker.metadata_log_dir)
    if metadata_dir in paths or not is_folder(metadata_dir):
        return paths
    return paths if any(map(partial(is_same, metadata_dir), paths)) else (*paths, metadata_dir)


def _refuse_place(log_dir: str, quarantine: str | None, log_dirs: tuple[str, ...]) -> None:
    """Refuse a quarantine of *log_dir* that would be another log dir, or whose name no file system can have."""
    for root in possible_roots(log_dir, quarantine):
        if root in log_dirs:
            raise UsageError(
                f"log.dirs: {root}: the quarantine of {log_dir} would be in this folder, which is a log dir itself. "
                "Remedy: choose another place with --quarantine-dir"
            )
        with suppress(OSError):  # it goes offline for that
            if is_link(root) and (inside := brokers_place_of(root, log_dirs)) is not None:
                raise UsageError(
                    f"log.dirs: {root}: a link into {inside}, where a broker takes folders for logs. "
                    "Remedy: remove the link, or choose another place with --quarantine-dir"
                )
        if len(os.fsencode(os.path.basename(root))) > _LONGEST_NAME_BYTES:
            raise UsageError(
                f"--quarantine-dir {quarantine}: the folder for {log_dir} in it would have a name of more than "
                f"{_LONGEST_NAME_BYTES} bytes. Remedy: leave the option out"
            )


def _refuse_nested(dirs: tuple[str, ...]) -> None:
    """Refuse a log dir, or a metadata.log.dir, that a broker would take for a log: it lies in another one.

    Kafka: LogManager.loadLogs, KafkaException.
    """
    for inner, outer in permutations(dirs, 2):
        if is_inside(os.path.dirname(os.path.realpath(inner)), outer):
            raise UsageError(
                f"log.dirs: {inner} lies in {outer}, where a broker takes folders for logs (KafkaException stops it). "
                "Remedy: name the one that is meant with --log-dirs, or move the inner one out"
            )


def cordons_in(dirs: BrokerDirs, metadata: ClusterMetadata | None, node_id: int | None) -> Cordons:
    """Return which of the log dirs in *dirs* are cordoned, by what is known of broker *node_id*.

    Args:
        metadata: None if no metadata log is known.
        node_id: as `meta.properties` has it, which is known more often than that of the configuration.
    """
    cordons = find_cordons(dirs.broker, dirs.log_dirs, metadata, node_id)
    places = [absolute(log_dir) for log_dir in cordons.log_dirs]
    return replace(
        cordons,
        log_dirs=tuple(
            path for path in dirs.log_dirs if path in places or any(map(partial(is_same, path), places))
        ),
    )


def refuse_missing_partitions(is_chosen: PartitionChoice, log_dirs: Sequence[str]) -> None:
    """Refuse a choice of what none of *log_dirs* has.

    Raises:
        UsageError: a topic or partition that was named has no folder.
    """
    for name in () if is_chosen.is_everything else _names_in(log_dirs):
        with suppress(FileNameError):
            folder = read_folder_name(name)
            is_left_alone = folder.topic == CLUSTER_METADATA_TOPIC  # each start of a broker recovers it
            if folder.state in (FolderState.CURRENT, FolderState.FUTURE) and not is_left_alone:
                is_chosen(folder)
    is_chosen.refuse_missing(", ".join(log_dirs))


def topics_in(log_dirs: Iterable[str]) -> frozenset[str]:
    """Return the topics that have a folder in one of *log_dirs*."""
    topics = set()
    for name in _names_in(log_dirs):
        with suppress(FileNameError):
            topics.add(read_folder_name(name).topic)
    return frozenset(topics)


def _names_in(log_dirs: Iterable[str]) -> frozenset[str]:
    names: set[str] = set()
    for log_dir in log_dirs:
        with suppress(OSError):  # the log dir is offline
            names.update(os.listdir(log_dir))
    return frozenset(names)
