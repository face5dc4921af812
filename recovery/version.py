"""The version of this tool. Reading it from the installed metadata would take longer than recovering a small dir."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
