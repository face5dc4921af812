"""What `log-dirs --describe` is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeOptions:
    """Where log dirs are looked for, and which of them.

    Attributes:
        config: the broker's properties, as in its server.properties.
        config_notes: remarks about where they come from; they become warnings of the report.
        bootstrap_servers: `host:port,...` of live brokers, which are asked instead; None: files are read.
        client_config: properties of the client for these, as in the file of `--command-config`.
        brokers: node ids; None for all.
        topics: leave out the replicas of others; None for all.
    """

    config: Mapping[str, str] | None = None
    config_notes: tuple[str, ...] = ()
    bootstrap_servers: str | None = None
    client_config: Mapping[str, str] | None = None
    brokers: Sequence[int] | None = None
    topics: Sequence[str] | None = None
