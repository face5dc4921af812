"""What the retention of a topic is where it is restored to."""

from __future__ import annotations

from collections.abc import Mapping

from recovery.archive.restore.target import Target
from recovery.broker.log_retention import LogRetention, retention_of
from recovery.broker.topic_configs import TopicConfigs


class TargetRetention:
    """The retention of topics by the settings of the target.

    Args:
        overrides: settings by topic that are given for this run.
    """

    def __init__(self, target: Target, overrides: Mapping[str, Mapping[str, str]]) -> None:
        self._metadata, self._node_id = target.metadata, target.node_id
        self._configs = TopicConfigs(
            broker=target.dirs.broker,
            records={} if target.metadata is None else target.metadata.topic_configs,
            overrides=overrides,
        )

    def __call__(self, topic: str) -> LogRetention | None:
        """Return the retention of *topic*, None where its settings are not known."""
        if self._metadata is None and topic not in self._configs.overrides:
            return None
        return retention_of(topic, self._configs, self._metadata, self._node_id)
