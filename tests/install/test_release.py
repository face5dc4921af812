"""What a release consists of is built from a commit, and from nothing else; versions that differ are told.

The workflow that publishes it takes its commands from here.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy.release import ReleaseError, version_of
from recovery.version import VERSION
from tests import ROOT

WORKFLOW = (ROOT / ".github" / "workflows" / "release.yml").read_text()
LEFT_OUT = (
    ".git",
    ".venv*",
    "build",
    "dist",
    "target",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    "*.egg-info",
)
SAYING = ("pyproject.toml", "recovery/version.py", "deploy/Dockerfile", "CHANGELOG.md")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files that say the version."""
    for name in SAYING:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_version_is_the_same_everywhere(project: Path) -> None:
    assert version_of(project, None) == VERSION


@pytest.mark.parametrize("name", SAYING)
def test_a_version_that_differs_is_told(project: Path, name: str) -> None:
    path = project / name
    path.write_text(path.read_text().replace(VERSION, "9.9.9"))
    with pytest.raises(ReleaseError, match=f"the version differs: .*9.9.9 in {name}"):
        version_of(project, None)


def test_a_tag_wants_its_version_and_its_heading(project: Path) -> None:
    with pytest.raises(ReleaseError, match=f"--tag v9.9.9: the version is {VERSION}"):
        version_of(project, "v9.9.9")
    changelog = project / "CHANGELOG.md"
    text = changelog.read_text()
    with pytest.raises(ReleaseError, match=r"no heading '## \[0\.1\.0\]'"):
        version_of(project, f"v{VERSION}")
    changelog.write_text(text.replace(f"## [Unreleased] {VERSION}", f"## [{VERSION}] - 2026-12-01"))
    assert version_of(project, f"v{VERSION}") == VERSION


@pytest.mark.install
def test_all_is_built_from_the_last_commit(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*LEFT_OUT))
    git = ("git", "-c", "user.name=n", "-c", "user.email=e@e", "-C", str(clone))
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], check=True)
    (clone / "recovery" / "more.py").write_text("")
    told = _release(clone)
    assert told.returncode == 1
    assert "there are changes that are not committed" in told.stderr
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "more"], check=True)
    (clone / "build").mkdir(exist_ok=True)  # leftovers that no commit has
    (clone / "build" / "junk.py").write_text("")
    done = _release(clone)
    assert done.returncode == 0, done.stderr
    dist = clone / "dist"
    names = sorted(path.name for path in dist.iterdir())
    wheel, sources = f"kafka_log_recovery-{VERSION}-py3-none-any.whl", f"kafka_log_recovery-{VERSION}.tar.gz"
    site = f"kafka-log-recovery-docs-{VERSION}.tar.gz"
    assert names == sorted([wheel, sources, site, "SHA256SUMS"])
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
    with zipfile.ZipFile(dist / wheel) as packed:
        inside = packed.namelist()
    assert "recovery/more.py" in inside
    assert not any("junk" in name or name.startswith("tests") for name in inside)
    assert any(name.endswith("man/man1/kafka-log-recovery-recover.1") for name in inside)
    with tarfile.open(dist / sources) as packed_sources:
        packed_names = {one.name.partition("/")[2] for one in packed_sources if one.isfile()}
    committed = subprocess.run([*git, "ls-files"], check=True, capture_output=True, text=True)
    made = {name for name in packed_names if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert packed_names - made == {*committed.stdout.splitlines()}
    description = metadata_of(dist / wheel)
    assert "\nProject-URL: Source, https://forge.example/kafka-log-recovery\n" in description
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert len(links) > 40
    place = f"https://forge.example/kafka-log-recovery/(blob|raw)/v{VERSION}/"
    for link in links:
        match = re.match(place, link)
        assert match is not None, link
        assert (ROOT / link[match.end() :].partition("#")[0]).exists(), link
        assert (match[1] == "raw") == link.endswith(".svg"), link
    with tarfile.open(dist / site) as packed_site:
        assert "docs/index.html" in packed_site.getnames()


def metadata_of(wheel: Path) -> str:
    """The fields of a wheel, and the long description."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        return packed.read(name).decode()


def _release(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["python3", "dev.py", "release", "--url", "https://forge.example/kafka-log-recovery/"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_workflow_runs_what_there_is() -> None:
    commands = re.findall(r"^ *- run: (.+)$", WORKFLOW, re.MULTILINE)
    build = 'python3 dev.py release --tag "$GITHUB_REF_NAME" --url "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY"'
    assert build in commands
    # The tags of documents and manifests have no v: tests/deploy/test_image.py
    assert 'echo "VERSION=${GITHUB_REF_NAME#v}" >> "$GITHUB_ENV"' in commands
    assert re.findall(r"kafka-log-recovery:(.*)$", WORKFLOW, re.MULTILINE) == [
        "${{ env.VERSION }}${{ matrix.suffix }}"
    ]
    assert re.findall(r'suffix: "?([\w-]*)"?$', WORKFLOW, re.MULTILINE) == ["", "-spark"]
    assert any(command.endswith(" .ci/run") for command in commands)
    stages = set(
        re.findall(r"^FROM .* AS ([\w-]+)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    )
    targets = set(re.findall(r"target: (\w+)$", WORKFLOW, re.MULTILINE))
    assert targets == {"plain", "spark"}
    assert targets <= stages


def test_nothing_is_published_before_the_tests_have_passed() -> None:
    jobs = re.findall(r"^  (\w+):\n    (?:needs: (\w+)\n)?", WORKFLOW.partition("\njobs:\n")[2], re.MULTILINE)
    needs = dict(jobs)
    assert needs.pop("tests") == ""
    assert needs.pop("build") == "tests"
    assert needs == {"image": "build", "package": "image", "docs": "package"}
