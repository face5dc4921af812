import hashlib

import pytest

from tests.segfmt.golden_files import FOLDER, MANIFEST, golden


def test_every_file_is_in_the_manifest():
    assert {path.name for path in FOLDER.iterdir()} == {*MANIFEST, "MANIFEST.json"}


@pytest.mark.parametrize("name", sorted(MANIFEST))
def test_file_is_as_it_was_taken(name):
    assert hashlib.sha256(golden(name)).hexdigest() == MANIFEST[name]["sha256"]
