"""Whether a broker uses tiered storage: what its properties say, or its topics let assume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recovery.broker.config import REMOTE_LOG_STORAGE_SYSTEM_ENABLE, REMOTE_STORAGE_ENABLE, BrokerConfig
from recovery.broker.settings import Layer
from recovery.broker.topic_configs import Configs


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStorage:
    """What is known, or assumed.

    Attributes:
        broker: its settings, with what is assumed.
        is_known: whether its properties say for certain that tiered storage is on, or off.
        wanted_by: the topics because of which it is assumed to be on, sorted.
    """

    broker: BrokerConfig
    is_known: bool
    wanted_by: tuple[str, ...] = ()


def remote_storage_of(
    broker: BrokerConfig, topic_configs: Iterable[Mapping[str, Configs]], *, is_config_complete: bool
) -> RemoteStorage:
    """Return whether *broker* uses tiered storage.

    Only its complete properties, or this one setting, say so. If neither is given, a topic that enables tiered storage
    is assumed to have it: treating its log as a plain one would lose its log start offset.

    Args:
        topic_configs: settings by topic; later ones win.
        is_config_complete: whether *broker* was made from all of the broker's properties.
    """
    key = REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name
    if is_config_complete or any(key in layer.values for layer in broker.layers):
        return RemoteStorage(broker=broker, is_known=True)
    name, kind = REMOTE_STORAGE_ENABLE.name, REMOTE_STORAGE_ENABLE.kind
    texts = {
        topic: config[name]
        for configs in topic_configs
        for topic, config in configs.items()
        if name in config
    }
    wanted_by = tuple(sorted(topic for topic, text in texts.items() if kind.read(text)))
    if wanted_by:
        broker = BrokerConfig.from_layers((Layer("assumed", {key: "true"}), *broker.layers))
    return RemoteStorage(broker=broker, is_known=False, wanted_by=wanted_by)


def assumption_text(topics: Sequence[str]) -> str:
    """Return what is assumed because of *topics*, for people."""
    return (
        f"{', '.join(topics)}: {REMOTE_STORAGE_ENABLE.name}=true, so {REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name}=true is "
        "assumed"
    )
