"""The options of an estimate: made once, by the command line or a caller of the library, and handed down whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recovery.broker.topic_configs import refuse_wrong_topic_configs
from recovery.errors import UsageError

DEFAULT_SAMPLE_BYTES = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOptions:
    """The options of `estimate`, as its command line has them.

    Attributes:
        config: the broker's properties, as in its server.properties.
        is_config_complete: whether these are all of the broker's properties; None means yes if the log dirs come from
            them.
        config_notes: remarks about where they come from; they become notes of the report.
        topic_configs: settings by topic; they win over those in the metadata log.
        release: of the broker that would start: `auto`, `4.3` or `4.4`.
        sample_bytes: how much is read of the segments that would be recovered, at most; 0 for nothing: then there are
            no seconds.
        seed: of the choice of what is read.
    """

    config: Mapping[str, str] | None = None
    is_config_complete: bool | None = None
    config_notes: tuple[str, ...] = ()
    topic_configs: Mapping[str, Mapping[str, str]] | None = None
    release: str = "auto"
    sample_bytes: int = DEFAULT_SAMPLE_BYTES
    seed: int = 0

    def refuse_wrong_values(self) -> None:
        """Raise UsageError if a number is out of range, or a value of another type."""
        refuse_wrong_topic_configs(self.topic_configs)
        if self.sample_bytes < 0:
            raise UsageError(f"sample_bytes={self.sample_bytes}: expected an integer from 0")
