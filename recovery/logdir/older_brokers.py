"""Brokers before 3.6 do not ignore folders that end in `-stray`, and quarantine inside a log dir is such a folder.

The metadata log shows a broker's version: each registration names the highest metadata.version that the broker knows,
and all of them know the cluster's own level. Without a metadata log, `inter.broker.protocol.version` may show it.

Kafka: LogManager.loadLogs, MetadataVersion.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.logdir.quarantine_place import INSIDE_FOLDER, quarantine_root
from recovery.problem import Problem

_FIRST_METADATA_VERSION = 12
"""Of 3.6. Kafka: MetadataVersion.IBP_3_6_IV0."""
_FIRST_VERSION = (3, 6)
_PROTOCOL_VERSION = "inter.broker.protocol.version"
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


def older_version(
    metadata: ClusterMetadata | None, node_id: int | None, properties: Mapping[str, str]
) -> str | None:
    """Return the fact that shows that the broker is, or may be, older than 3.6, as text; None if nothing does.

    Args:
        metadata: None if there is no metadata log.
        node_id: the broker's.
        properties: the broker's.
    """
    if metadata is not None:
        own = None if node_id is None else metadata.node_versions.get(node_id)
        if own is not None:
            return (
                None
                if own >= _FIRST_METADATA_VERSION
                else f"broker {node_id} knows metadata.version up to {own}"
            )
        level = metadata.metadata_version
        if level is not None:
            return None if level >= _FIRST_METADATA_VERSION else f"metadata.version is {level}"
    match = _VERSION.match(properties.get(_PROTOCOL_VERSION, "").strip())
    if match is None or (int(match[1]), int(match[2])) >= _FIRST_VERSION:
        return None
    return f"{_PROTOCOL_VERSION} is {match[0]}"


def place_problems(log_dirs: Iterable[str], version: str | None) -> dict[str, tuple[Problem, ...]]:
    """Return, by log dir, the problem that quarantine would lie inside it and stop an old broker.

    Args:
        version: the fact that shows that the broker is too old, None if nothing does.
    """
    if version is None:
        return {}
    problem = Problem(
        file=INSIDE_FOLDER,
        rule="quarantine-place",
        detail=f"quarantine would lie in this folder of the log dir, and {version}: a broker before 3.6 does not "
        "ignore it (KafkaException stops the broker)",
        remedy="choose another place with --quarantine-dir",
    )
    return {log_dir: (problem,) for log_dir in log_dirs if _has_it_inside(log_dir)}


def _has_it_inside(log_dir: str) -> bool:
    try:
        return os.path.basename(quarantine_root(log_dir, None)) == INSIDE_FOLDER
    except OSError:
        return False  # the log dir is offline
