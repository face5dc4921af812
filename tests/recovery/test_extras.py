"""Packages that a plain install leaves out: one sentence says what needs them and what brings them."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from recovery import extras
from recovery.cli.main import main
from recovery.errors import UsageError
from recovery.extras import needed_for
from recovery.version import VERSION
from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_EXTRAS = {"pyspark", "pyarrow", "pandas", "obstore", "cryptography", "Crypto", "grpc", "kafka"}
ARGUMENTS_AND_WORDS = [
    ("pyarrow", ["inventory", "@", "--output", "@.out"], r"--output /\S+ needs", "[archive]"),
    ("obstore", ["inventory", "s3://bucket/there"], r"s3://bucket/there needs", "[archive]"),
    ("obstore", ["inventory", "@", "--metadata", "gs://b/d1"], r"gs://b/d1 needs", "[archive]"),
    ("pyarrow", ["verify", "@"], "archive verify or recover needs", "[archive]"),
    ("pyarrow", ["recover", "@", "--output", "@.out"], "archive verify or recover needs", "[archive]"),
    ("pyspark", ["verify", "@", "--engine", "spark"], "--engine spark needs", "[archive,spark]"),
    ("pandas", ["verify", "@", "--engine", "spark"], "--engine spark needs", "[archive,spark]"),
    ("pyarrow", ["verify", "@", "--engine", "spark"], "--engine spark needs", "[archive,spark]"),
    ("pandas", ["verify", "@", "--master", "spark://h:1"], "--master spark://h:1 needs", "[archive,spark]"),
    ("grpc", ["verify", "@", "--remote", "sc://h:1"], "--remote sc://h:1 needs", "[archive,spark]"),
]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "archive" / "orders-0").mkdir(parents=True)
    return tmp_path / "archive"


@pytest.mark.parametrize(("package", "arguments", "words", "remedy"), ARGUMENTS_AND_WORDS)
def test_what_is_missing_is_said_in_one_sentence(
    package: str,
    arguments: list[str],
    words: str,
    remedy: str,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hide(package, monkeypatch)
    given = [argument.replace("@", str(archive)) for argument in arguments]
    assert main(["archive", *given]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert re.search(words, line), line
    assert re.search(rf"package {package}\b.* is not installed|grpcio .*must be installed", line), line
    assert f"pip install '.{remedy}'" in line
    assert f"kafka_log_recovery-{VERSION}-py3-none-any.whl{remedy}'" in line


@pytest.mark.parametrize("package", ["cryptography", "Crypto"])
def test_keys_of_encrypted_segments(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from recovery.archive.layouts.aiven_cipher import load_aiven_keys

    hide(package, monkeypatch)
    with pytest.raises(
        UsageError, match=rf"the RSA key a=key\.pem needs the package {package}, .*\[archive\]"
    ):
        load_aiven_keys({"a": "key.pem"})


def test_the_client_of_live_brokers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide("kafka", monkeypatch)
    assert main(["log-dirs", "--describe", "--bootstrap-server", "localhost:9092"]) == 1
    said = capsys.readouterr().err
    assert "--bootstrap-server needs the package kafka, which is not installed. Remedy: pip install" in said
    assert ".[client]'" in said


def test_a_package_that_is_broken_is_not_called_missing() -> None:
    with (
        pytest.raises(UsageError, match=r"^--this needs libfoo\.so: cannot open\. Remedy: pip install"),
        needed_for("--this", extras="archive"),
    ):
        raise ImportError("libfoo.so: cannot open")


def test_the_extras_in_remedies_are_those_of_the_project() -> None:
    for named in (extras.ARCHIVE, extras.SPARK, extras.CLIENT):
        assert set(named.split(",")) <= PROJECT["optional-dependencies"].keys()


def test_packages_of_extras_are_loaded_by_those_that_need_them_alone() -> None:
    """Nothing that a plain install runs imports one at its head; what is imported at all, somebody declares."""
    core = {re.split(r"[>=<\[]", one)[0].replace("-", "_") for one in PROJECT["dependencies"]}
    transitive = {"llvmlite"}  # numba's
    stubs = {"_typeshed"}  # of the type checker, which reads them alone
    own = {"recovery", "native", "segfmt"}
    for path in sorted(path for package in own for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - own
            assert found <= core | transitive | stubs | OF_EXTRAS, f"{path}:{node.lineno}"


def hide(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let *package* and what is in it be as if it were not installed."""
    names = [name for name in sys.modules if name.partition(".")[0] == package]
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Nowhere(package), *sys.meta_path])
    # What looks for it while it is imported looks again.
    for name in [name for name in sys.modules if name.startswith("pyspark.sql.connect")]:
        monkeypatch.delitem(sys.modules, name)


class _Nowhere:
    """A finder by which a package is nowhere."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name.partition(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=self._package)
