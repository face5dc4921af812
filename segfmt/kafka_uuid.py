"""Kafka's spelling of UUIDs: 22 characters of URL-safe base64.

Kafka: org.apache.kafka.common.Uuid.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from uuid import UUID

from segfmt.errors import FormatError

ZERO_UUID = UUID(int=0)
ONE_UUID = UUID(int=1)
"""Also the topic id of `__cluster_metadata`. Both reserved ids are never drawn at random."""

_KNOWN_UUIDS = 1 << 10  # the files of one segment, or partition, follow one another in a listing
_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?")


@lru_cache(_KNOWN_UUIDS)
def read_uuid(text: str) -> UUID:
    """Return the UUID that *text* spells; unused bits of the last character are ignored, as in Java.

    Raises:
        FormatError: not 16 bytes in URL-safe base64 (Kafka: IllegalArgumentException).

    Kafka: Uuid.fromString.
    """
    if _TEXT.fullmatch(text) is None:
        raise FormatError(
            f"{text[:80]!r} is not a UUID of 22 base64url characters", kafka="IllegalArgumentException"
        )
    return UUID(bytes=base64.urlsafe_b64decode(text[:22] + "=="))


@lru_cache(_KNOWN_UUIDS)
def format_uuid(uuid: UUID) -> str:
    """Return *uuid* in 22 characters. Kafka: Uuid.toString."""
    return base64.urlsafe_b64encode(uuid.bytes).decode("ascii").rstrip("=")
