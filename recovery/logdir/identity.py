"""Whose log dirs these are: `meta.properties` of all of them, compared with each other and with the configuration.

A dir of another node or cluster was mounted in the wrong place, and must not be touched. One without the file can be
recovered, though no broker starts before it is there.

Kafka: MetaPropertiesEnsemble.Loader.load, MetaPropertiesEnsemble.verify, KafkaRaftServer.initializeLogDirs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from recovery.errors import reason_text
from recovery.logdir.listing import other_kind
from recovery.logdir.node_files import is_nameless_voter, node_faults
from recovery.logdir.user import access_remedy
from recovery.problem import Problem, ProblemRule
from recovery.read.file_system import is_folder, is_there, read_small
from segfmt.errors import FormatError
from segfmt.filenames import CLUSTER_METADATA_FOLDER, META_PROPERTIES
from segfmt.meta_properties import MetaProperties, read_meta_properties

_MOST_BYTES = 1 << 20


@dataclass(slots=True, kw_only=True)
class Identity:
    """What the files and the configuration say.

    Attributes:
        node_id: of the configuration, else of the first file that has one; None if there is none.
        problems: by log dir; such a dir must not be touched.
        blockers: by log dir; a broker does not start, though the logs can be recovered.
    """

    node_id: int | None = None
    problems: dict[str, tuple[Problem, ...]] = field(default_factory=dict)
    blockers: dict[str, tuple[Problem, ...]] = field(default_factory=dict)

    @property
    def all_problems(self) -> dict[str, tuple[Problem, ...]]:
        """Both, by log dir."""
        log_dirs = dict.fromkeys((*self.problems, *self.blockers))
        return {
            log_dir: (*self.problems.get(log_dir, ()), *self.blockers.get(log_dir, ()))
            for log_dir in log_dirs
        }


def identify(
    log_dirs: Sequence[str], *, node_id: int | None = None, metadata_log_dir: str | None = None
) -> Identity:
    """Return whose *log_dirs* are.

    Args:
        node_id: of the configuration; None if it has none.
        metadata_log_dir: the only place for `__cluster_metadata-0`; None if it is not known.
    """
    identity = Identity(node_id=node_id)
    meta_of: dict[str, MetaProperties] = {}
    problems: dict[str, list[Problem]] = {}
    blockers: dict[str, list[Problem]] = {}
    with_metadata: list[str] = []
    for log_dir in log_dirs:
        try:
            if not is_folder(log_dir):
                continue
            has_metadata = is_folder(os.path.join(log_dir, CLUSTER_METADATA_FOLDER))
            if has_metadata:
                with_metadata.append(log_dir)
            meta = _read(log_dir, has_metadata=has_metadata)
        except OSError as error:
            meta = _problem(
                f"{reason_text(error)} (IOException takes the log dir offline)",
                access_remedy(error.filename or log_dir)
                if isinstance(error, PermissionError)
                else "look for I/O errors of its disk (dmesg)",
                file=_name_in(log_dir, error.filename),
            )
        if isinstance(meta, MetaProperties):
            meta_of[log_dir] = meta
            if meta.missing_keys:
                detail = f"{lacks(meta)} (RuntimeException stops the broker)"
                blockers.setdefault(log_dir, []).append(_problem(detail, _remedy(has_metadata=has_metadata)))
        elif isinstance(meta, Problem):
            problems.setdefault(log_dir, []).append(meta)
        else:
            how = (
                _remedy(has_metadata=True)
                if has_metadata
                else "check that its file system is mounted; if it is new, kafka-storage format --ignore-formatted, "
                "with the cluster.id of the others"
            )
            blockers.setdefault(log_dir, []).append(
                _problem("missing (RuntimeException stops the broker)", how)
            )
    for log_dir, problem in contradictions(meta_of, node_id=node_id):
        problems.setdefault(log_dir, []).append(problem)
    if node_id is None:
        identity.node_id = next((meta.node_id for meta in meta_of.values() if meta.node_id is not None), None)
    identity.problems = {log_dir: tuple(dir_problems) for log_dir, dir_problems in problems.items()}
    for log_dir in with_metadata:
        blockers.setdefault(log_dir, []).extend(fault.problem() for fault in node_faults(log_dir))
        if log_dir in meta_of and is_nameless_voter(log_dir, meta_of[log_dir]):
            detail = (
                "no directory.id in it: a broker makes a new one, has no vote with it, and never comes up"
            )
            blockers[log_dir].append(_problem(detail, _remedy(has_metadata=True)))
    for log_dir, problem in _misplaced(with_metadata, metadata_log_dir):
        blockers.setdefault(log_dir, []).append(problem)
    identity.blockers = {log_dir: tuple(found) for log_dir, found in blockers.items() if found}
    return identity


def contradictions(
    meta_of: Mapping[str, MetaProperties], *, node_id: int | None
) -> Iterator[tuple[str, Problem]]:
    """Yield the points in which the files of log dirs contradict each other, or the configured *node_id*."""
    yield from _of_others({log_dir: meta.node_id for log_dir, meta in meta_of.items()}, "node.id", node_id)
    yield from _of_others({log_dir: meta.cluster_id for log_dir, meta in meta_of.items()}, "cluster.id", None)
    yield from _copies({log_dir: meta.directory_id for log_dir, meta in meta_of.items()})


def lacks(meta: MetaProperties) -> str:
    """Return what a broker misses in *meta*."""
    return f"version {meta.version}, without {' and '.join(meta.missing_keys)}"


def _remedy(*, has_metadata: bool) -> str:
    """Return how to get the file of a log dir again. With a new directory.id for its metadata log, no node votes."""
    how = (
        "with the directory.id that was its own: the KRaftVoters in a .checkpoint of __cluster_metadata-0 have it "
        "(kafka-dump-log.sh --cluster-metadata-decoder --files ...)"
        if has_metadata
        else "without its directory.id"
    )
    return f"restore it from a backup, or write it again from that of another log dir of this node, {how}"


def _read(log_dir: str, *, has_metadata: bool) -> MetaProperties | Problem | None:
    path = os.path.join(log_dir, META_PROPERTIES)
    if not is_there(path):
        return None
    remedy = _remedy(has_metadata=has_metadata)
    effect = "the broker does not start" if has_metadata else "the broker starts without this log dir"
    kind = other_kind(path)
    if kind is not None:
        return _problem(f"a {kind}, which cannot be read ({effect})", remedy)
    size_bytes = os.stat(path).st_size
    if size_bytes > _MOST_BYTES:
        return _problem(f"{size_bytes} bytes, but no such file has more than {_MOST_BYTES}", remedy)
    try:
        return read_meta_properties(read_small(path, _MOST_BYTES))
    except FormatError as error:
        return _problem(f"{error} ({error.kafka}: {effect})", remedy)


def _of_others(values: Mapping[str, object], key: str, expected: object) -> Iterable[tuple[str, Problem]]:
    """Yield the dirs whose value differs from the configuration's or, if it has none, from other dirs' values."""
    values = {log_dir: value for log_dir, value in values.items() if value is not None}
    if expected is None and len(set(values.values())) <= 1:
        return
    for log_dir, value in values.items():
        if value == expected:
            continue
        conflict = (
            f"the configuration says {expected}"
            if expected is not None
            else ", ".join(f"{other} in {path}" for path, other in values.items() if other != value)
        )
        yield (
            log_dir,
            _problem(
                f"{key} is {value}, but {conflict} (RuntimeException stops the broker)",
                "this is the log dir of another node: check what is mounted where, and the configuration",
                "another-node",
            ),
        )


def _copies(directory_ids: Mapping[str, object]) -> Iterable[tuple[str, Problem]]:
    counts = Counter(directory_id for directory_id in directory_ids.values() if directory_id is not None)
    for log_dir, directory_id in directory_ids.items():
        if directory_id is not None and counts[directory_id] > 1:
            copies = [
                path for path, other in directory_ids.items() if other == directory_id and path != log_dir
            ]
            yield (
                log_dir,
                _problem(
                    f"directory.id is also that of {', '.join(copies)} (RuntimeException stops the broker)",
                    "one dir is a copy of the other: decide which one is right, and leave the other out of log.dirs",
                    "duplicate-directory-id",
                ),
            )


def _misplaced(log_dirs: Iterable[str], metadata_log_dir: str | None) -> Iterator[tuple[str, Problem]]:
    """Yield those of *log_dirs*, all with a metadata log, that are not metadata.log.dir, and the problem.

    Kafka: KafkaRaftServer.initializeLogDirs.
    """
    if metadata_log_dir is None:
        return
    expected_path = os.path.realpath(metadata_log_dir)
    for log_dir in log_dirs:
        if os.path.realpath(log_dir) != expected_path:
            problem = Problem(
                file=CLUSTER_METADATA_FOLDER,
                rule="metadata-place",
                detail=f"not in metadata.log.dir, {metadata_log_dir} (KafkaException stops the broker)",
                remedy="set metadata.log.dir to where it is, or move it",
            )
            yield log_dir, problem


def _problem(
    detail: str, remedy: str, rule: ProblemRule = "meta-properties", *, file: str = META_PROPERTIES
) -> Problem:
    return Problem(file=file, rule=rule, detail=detail, remedy=remedy)


def _name_in(log_dir: str, path: str | None) -> str:
    """Return what an error of *path* is about: a file of the log dir, or the log dir itself."""
    if path is None:
        return META_PROPERTIES
    return log_dir if path == log_dir else os.path.relpath(path, log_dir)
