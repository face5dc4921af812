"""The version of this tool. Looking for it in what is installed takes longer than a small dir does."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
