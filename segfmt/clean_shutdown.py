"""`.kafka_cleanshutdown`: the marker of a log dir that was shut down in order.

    {"version":0,"brokerEpoch":-1}

One line without a line end. For loading, only its existence counts; the epoch inside is for the
controller. Brokers up to 3.6 write an empty file.

Kafka: CleanShutdownFileHandler.
"""

from __future__ import annotations

import json

from segfmt.java_text import LONG_MAX, LONG_MIN, parse_long

UNKNOWN_BROKER_EPOCH = -1


def read_clean_shutdown(data: bytes) -> int | None:
    """Return the broker epoch in *data*, int64; None if Kafka finds none. Never raises.

    The version and other fields are ignored.

    Kafka: CleanShutdownFileHandler.read.
    """
    try:
        text = data.decode("utf-8", "replace").lstrip(" \t\r\n")
        content, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    if isinstance(epoch, str):  # Jackson accepts a number in quotes, and drops a fraction
        epoch = parse_long(epoch.strip())
    elif isinstance(epoch, float) and epoch == epoch and abs(epoch) < LONG_MAX:
        epoch = int(epoch)
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        return None
    return epoch if LONG_MIN <= epoch <= LONG_MAX else None


def encode_clean_shutdown(broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> bytes:
    """Return the marker for *broker_epoch*; -1 makes the controller treat the shutdown as unclean."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()
