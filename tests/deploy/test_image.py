"""deploy/Dockerfile says what the project, the documents and the manifests say. It is not built here."""

from __future__ import annotations

import json
import re
import tomllib
from itertools import pairwise

from native.kernels.cache import _SYSTEM_FOLDER
from recovery.version import VERSION
from tests import ROOT
from tests.documents.texts import text_of
from tests.install.environment import PARTS

DEPLOY = ROOT / "deploy"
LINES = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text_of(DEPLOY / "Dockerfile"), flags=re.MULTILINE))
PROJECT = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
CACHE = "/cache"

_NAMED = (ROOT / "docs/operate/deploy.md", DEPLOY / "Dockerfile", *sorted(DEPLOY.glob("kubernetes/*.yaml")))
_TAG = re.compile(r"\bkafka-log-recovery:([\w.-]+)")


def stages() -> dict[str, tuple[str, str]]:
    """Name -> what the stage is made from, and its lines."""
    starts = [*re.finditer(r"^FROM (\S+) AS (\S+)$", LINES, re.MULTILINE)]
    assert len(starts) == LINES.count("FROM ")
    ends = [*(start.start() for start in starts), len(LINES)]
    return {
        start[2]: (start[1], LINES[start.end() : end])
        for start, (_, end) in zip(starts, pairwise(ends), strict=True)
    }


def images() -> dict[str, str]:
    """Target -> the lines of the stage; that without a target is the last."""
    found = {name: lines for name, (_, lines) in stages().items() if "ENTRYPOINT" in lines}
    assert [*found][-1] == [*stages()][-1]
    assert len(found) == 2
    return found


def test_all_that_a_wheel_is_made_from_is_copied_and_nothing_else() -> None:
    copied = [line.split() for line in re.findall(r"^COPY (?!--from)(.*)$", LINES, re.MULTILINE)]
    for *sources, target in copied:
        assert target == "./" or sources == [target]
    assert sorted(source for *sources, _ in copied for source in sources) == sorted(PARTS)
    rules = [line for line in text_of(DEPLOY / "Dockerfile.dockerignore").splitlines() if line[0] != "#"]
    assert rules == ["*", *(f"!{part}" for part in sorted(PARTS)), "**/__pycache__"]


def test_an_image_runs_the_command_as_nobody_with_kernels_that_are_there() -> None:
    for target, lines in images().items():
        assert "USER 65534:65534\n" in lines, target
        # Without a shell, which would keep signals for itself.
        (entry,) = re.findall(r"^ENTRYPOINT (.*)$", lines, re.MULTILINE)
        assert json.loads(entry)[0] in PROJECT["scripts"]
        for folder in ("/opt/kafka-log-recovery", str(_SYSTEM_FOLDER)):
            (source,) = re.findall(rf"^COPY --from=(\S+) {folder} {folder}$", lines, re.MULTILINE)
            assert f"warm --kernel-cache {_SYSTEM_FOLDER}\n" in stages()[source][1], target


def test_only_the_target_with_spark_has_archives_spark_and_java() -> None:
    *_, (default, lines) = images().items()
    assert default != "spark"
    assert "RUN" not in lines
    assert "jre" in images()["spark"]
    extras = {
        stage: re.findall(r"\*\.whl\)\[(.*?)\]", lines)
        for stage, (_, lines) in stages().items()
        if ".whl" in lines
    }
    assert extras == {"build": ["client"], "build-spark": ["archive,spark"]}
    assert {"client", "archive", "spark"} <= set(PROJECT["optional-dependencies"])


def test_versions_and_targets_that_are_named_are_those_there_are() -> None:
    assert f"org.opencontainers.image.version={VERSION}\n" in LINES
    for path in _NAMED:
        text = text_of(path)
        tags = set(_TAG.findall(text))
        assert tags, path
        assert tags <= {VERSION, f"{VERSION}-spark"}, path
        for target, tag in re.findall(r"--target (\S+) -t \S+:(\S+)", text):
            assert (target in images(), tag) == (True, f"{VERSION}-{target}"), path
    for name in re.findall(r"--build-arg (\w+)=", text_of(_NAMED[0])):
        assert re.search(rf"^ARG {name}\b", LINES, re.MULTILINE), name


def test_the_manifests_mount_a_volume_where_the_image_keeps_kernels() -> None:
    assert f"XDG_CACHE_HOME={CACHE}\n" in LINES
    for path in DEPLOY.glob("kubernetes/*.yaml"):
        assert f"{{name: kernels, mountPath: {CACHE}}}" in text_of(path), path
