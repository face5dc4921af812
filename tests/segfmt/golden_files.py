"""Excerpts of real files, and what their manifest says of them."""

import json

from tests import ROOT

FOLDER = ROOT / "tests/segfmt/golden"
MANIFEST = json.loads((FOLDER / "MANIFEST.json").read_text())["files"]


def golden(name):
    return (FOLDER / name).read_bytes()
