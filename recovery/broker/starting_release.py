"""Which release of Kafka will start on the log dirs.

Nothing but the metadata log shows it. Each registration of a node names the highest `metadata.version` that it knows,
and so the release that ran last; the cluster's own level is a lower bound, for every broker has to know it. A broker
registers once it has loaded its logs, so one that dies in that leaves no trace, unless it is a controller as well,
which registers before it. The next broker may be newer than all of that: `--release` comes first.

Kafka: MetadataVersion, BrokerFeatures.defaultSupportedFeatures, RegisterBrokerRecord, RegisterControllerRecord,
FeatureLevelRecord.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.errors import UsageError
from recovery.load.release import Release

AUTO: Final = "auto"
CHOICES: Final = (AUTO, Release.KAFKA_4_3.value, Release.KAFKA_4_4.value)
_KNOWN_VERSIONS: Final = {Release.KAFKA_4_3: range(1, 32), Release.KAFKA_4_4: range(7, 35)}
"""The levels that brokers of the release know, unstable ones included. Those up to 6, before 3.3, end with 3.9; 4.3
stands for all before. Kafka: MetadataVersion.MINIMUM_VERSION.
"""
_NEWEST = Release.KAFKA_4_4


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingRelease:
    """A release, and how it is known.

    Attributes:
        origin: the option or the fact that says so, or why nothing does; for the report.
        warning: what is doubtful about it, None for nothing.
    """

    release: Release = Release.UNKNOWN
    origin: str = "no metadata log says which broker ran last"
    warning: str | None = None

    def to_json(self) -> dict[str, str]:
        """Return the JSON form."""
        return {"name": self.release.value, "origin": self.origin}

    def __str__(self) -> str:
        if self.release is Release.UNKNOWN:
            return f"for a broker of any release, because {self.origin} (--release)"
        return f"for a broker of Kafka {self.release.value} ({self.origin})"


def starting_release(choice: str, metadata: ClusterMetadata | None, node_id: int | None) -> StartingRelease:
    """Return which release will start.

    Args:
        choice: one of CHOICES.
        metadata: None if there is no metadata log, or none that can be read.
        node_id: the broker's, None if it is not known.

    Raises:
        UsageError: a broker of the chosen release does not start at the cluster's level of metadata.version.
    """
    level = None if metadata is None else metadata.metadata_version
    if choice != AUTO:
        release = Release(choice)
        _refuse_level(release, level)
        return StartingRelease(release=release, origin=f"--release {choice}")
    if metadata is None:
        return StartingRelease()
    own = None if node_id is None else metadata.node_versions.get(node_id)
    if own is not None and (level is None or own >= level):
        return _by_version(own, f"node {node_id} registered with metadata.version up to {own}")
    releases = [release for release, versions in _KNOWN_VERSIONS.items() if level in versions]
    if level is not None and (own is not None or len(releases) < len(_KNOWN_VERSIONS)):
        return _by_version(level, f"the cluster's metadata.version is {level}")
    origin = f"the metadata log has no registration of node {'?' if node_id is None else node_id}"
    if level is not None:
        origin += f", and every release knows the cluster's metadata.version, {level}"
    return StartingRelease(origin=origin)


def _by_version(version: int, origin: str) -> StartingRelease:
    """Return the oldest release that knows a metadata.version, or the newest if none does."""
    for release, versions in _KNOWN_VERSIONS.items():
        if version < versions.stop:
            return StartingRelease(release=release, origin=origin)
    warning = (
        f"{origin}, newer than Kafka {_NEWEST.value}, whose rules are the newest known here, and are used"
    )
    return StartingRelease(release=_NEWEST, origin=origin, warning=warning)


def _refuse_level(release: Release, level: int | None) -> None:
    known = _KNOWN_VERSIONS[release]
    if level is None or level in known:
        return
    fitting = [each.value for each, versions in _KNOWN_VERSIONS.items() if level in versions]
    remedy = f"--release {fitting[0]}" if fitting else f"--release {AUTO}"
    raise UsageError(
        f"--release {release.value}: the cluster's metadata.version is {level}, and a broker of this release knows "
        f"{known.start} to {known.stop - 1}, so it does not start. Nothing was changed. Remedy: {remedy}"
    )
