"""Wrong use: exit code 1, one line on standard error that says what to do, no result, nothing touched."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from recovery.cli.main import build_parser, main
from tests.install.commands import parsers
from tests.logs.samples import Sample, unpack
from tests.runs.command import RECOVERY, Done, assert_one_line, recover, run
from tests.runs.driving import footprint


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return unpack("intact", tmp_path_factory.mktemp("usage"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["restore"], ["restore", "recover"]),
        (["recover"], ["--config", "--log-dirs"]),
        (["recover", "--log-dirs", ""], ["log dir"]),
        (["recover", "--log-dirs", ","], ["--log-dirs: no log dir is named. Remedy: "]),
        (
            ["recover", "--log-dirs", "/a", "--log-dirs", "/b"],
            ["argument --log-dirs: given twice; give all of them at once, as A,B"],
        ),
        (["verify", "-c", "/a", "-c", "/b"], ["argument -c/--config: given twice"]),
        (["watch", "--log-dirs", "/a", "--log-dirs", "/b"], ["argument --log-dirs: given twice"]),
        (
            ["archive", "copy", "-c", "/c", "--output", "/a", "--output", "/b"],
            ["argument --output: given twice"],
        ),
        (
            ["recover", "-c", "/c", "--quarantine-dir", "/a", "--quarantine-dir", "/b"],
            ["argument --quarantine-dir: given twice"],
        ),
        (
            ["log-dirs", "--describe", "--bootstrap-server", "a:1", "--bootstrap-server", "b:1"],
            ["argument --bootstrap-server: given twice"],
        ),
        (
            ["archive", "inventory", "/", "--metadata", "/a", "--metadata", "/b"],
            ["argument --metadata: given twice"],
        ),
        (["estimate", "-c", "/a", "--sample-bytes", "-5"], ["expected an integer from 0 on"]),
        (
            ["archive", "copy", "--output", "/nowhere"],
            ["archive copy needs -c/--config FILE or --log-dirs A,B"],
        ),
        (["archive", "inventory", "/", "--metadata", ","], ["--metadata", "no log dir given"]),
        (
            ["archive", "verify", "/", "--files-from", "/nowhere"],
            ["--files-from /nowhere: No such file or directory. Remedy: "],
        ),
        (
            ["archive", "verify", "/", "--aiven-key", "a=/nowhere"],
            ["/nowhere: no readable RSA private key for 'a': No such file or directory. Remedy: "],
        ),
        (
            ["archive", "restore", "/", "--log-dirs", "/", "--metadata", ""],
            ["--metadata", "no log dir given"],
        ),
        (["archive", "metrics", "--metadata", ""], ["--metadata", "no log dir given"]),
        (
            ["recover", "--log-dirs", "/nowhere/data, "],
            ["/nowhere/data: no such log dir. Remedy: check the path"],
        ),
        (["recover", "--log-dirs", "/", "--thread", "2"], ["--thread"]),
        (["recover", "--log-dirs", "/", "--threads", "0"], ["--threads", "0", "from 1"]),
        (["recover", "--log-dirs", "/", "--threads", "two"], ["--threads", "two"]),
        (["recover", "--log-dirs", "/", "--now", "yesterday"], ["--now", "yesterday"]),
        (["recover", "--log-dirs", "/", "--now", "99999999999999999999"], ["--now"]),
        (["recover", "--log-dirs", "/", "--metrics-port", "65536"], ["--metrics-port", "65536"]),
        (["recover", "--log-dirs", "/", "--handoff", "marker"], ["--handoff", "marker", "recovery-point"]),
        (["recover", "--log-dirs", "/", "--progress", "dots"], ["--progress", "dots"]),
        (["recover", "--log-dirs", "/", "--format", "xml"], ["--format", "xml"]),
        (["recover", "--log-dirs", "/", "--format"], ["--format"]),
        (
            ["recover", "-c", "/nowhere/server.properties"],
            ["/nowhere/server.properties", "No such file", "Remedy: name a properties file"],
        ),
        (["recover", "-c", "/"], ["--config /", "directory"]),
        (
            ["recover", "--log-dirs", "/nowhere/data"],
            ["/nowhere/data", "no such log dir. Remedy: check the path"],
        ),
        (
            ["estimate", "--log-dirs", "/nowhere/data"],
            ["/nowhere/data", "no such log dir. Remedy: check the path"],
        ),
        (["watch", "ftp://kafka-0/server.log"], ["ftp://kafka-0/server.log", "Remedy: ", "https://"]),
        (["archive", "inventory", "/nowhere/a"], ["/nowhere/a: No such file", "Remedy: check the path"]),
    ],
    ids=" ".join,
)
def test_wrong_options_are_said_in_one_line(arguments: list[str], words: list[str]) -> None:
    done = run(*arguments)
    assert done.exit_code == 1
    assert_one_line(done, *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic-config", "{plain"], ["--topic-config", "JSON"]),
        (["--topic-config", "[1]"], ["--topic-config", "[1]"]),
        (["--topic-config", '{"plain": 7}'], ["--topic-config", "plain"]),
        (["--topic-config", '{"plain": {"segment.index.byte": 1}}'], ["segment.index.bytes is meant"[:19]]),
        (["--topic-config", '{"plain": {"index.interval.bytes": "often"}}'], ["plain", "often"]),
        (["--property", "log.index.interval.bytes"], ["--property", "KEY=VALUE"]),
        (["--property", "log.index.interval.bytes=-1"], ["--property", "-1"]),
        (["--property", "num.recovery.threads.per.data.dir=0"], ["--property", "per.data.dir=0"]),
        (["--property", "log.dirs=data"], ["log.dirs", "data", "relative"]),
        (["--property", "metadata.log.dir=meta"], ["metadata.log.dir", "meta", "relative"]),
        (["--property", "log.dirs=${file:/x:dirs}"], ["log.dirs", "${file:/x:dirs}", "a placeholder"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_wrong_settings_are_said_in_one_line(sample: Sample, arguments: list[str], words: list[str]) -> None:
    found = footprint(sample.log_dirs[1])
    done = recover(sample, *arguments)
    assert done.exit_code == 1
    assert_one_line(done, *words)
    assert {path: at for path, at in footprint(sample.log_dirs[1]).items() if path != "."} == {
        path: at for path, at in found.items() if path != "."
    }


def test_a_wrong_value_is_said_with_the_place_it_comes_from(sample: Sample, tmp_path: Path) -> None:
    config = tmp_path / "broken.properties"
    config.write_text(sample.config.read_text() + "\nlog.preallocate=perhaps\n")
    done = run("recover", "-c", config)
    assert done.exit_code == 1
    assert_one_line(done, str(config), "log.preallocate=perhaps")


def test_relative_log_dirs_of_a_configuration_are_refused(sample: Sample, tmp_path: Path) -> None:
    config = tmp_path / "relative.properties"
    config.write_text(sample.config.read_text().replace(f"{sample.root}/", ""))
    done = run("recover", "-c", config, cwd=sample.root)
    assert done.exit_code == 1
    assert_one_line(done, "log.dirs: d1", "relative")


def test_relative_log_dirs_of_the_command_line_are_those_of_the_shell(sample: Sample) -> None:
    done = run(
        "recover",
        "--log-dirs",
        "d1,d2",
        "--dry-run",
        "--progress",
        "none",
        "--format",
        "json",
        cwd=sample.root,
    )
    assert done.exit_code == 0
    assert [log_dir["logDir"] for log_dir in done.report["logDirs"]] == [
        str(path) for path in sample.log_dirs
    ]


@pytest.mark.parametrize("how", ["link", "dot"])
def test_a_log_dir_that_is_named_twice_is_refused(how: str, sample: Sample, tmp_path: Path) -> None:
    other = tmp_path / "link"
    other.symlink_to(sample.log_dirs[0])
    again = other if how == "link" else f"{sample.log_dirs[0]}/."
    found = footprint(sample.root)
    done = run("recover", "--log-dirs", f"{sample.log_dirs[0]},{sample.log_dirs[1]},{again}")
    assert done.exit_code == 1
    assert_one_line(done, str(sample.log_dirs[0]), str(again), "same folder")
    assert footprint(sample.root) == found


def test_a_quarantine_inside_a_log_dir_is_refused(sample: Sample) -> None:
    found = footprint(sample.root)
    done = recover(sample, "--quarantine-dir", sample.log_dirs[1] / "saved")
    assert done.exit_code == 1
    assert_one_line(done, "--quarantine-dir", str(sample.log_dirs[1]))
    assert footprint(sample.root) == found


@pytest.mark.parametrize(
    "command", [("recover",), ("undo",), ("quarantine", "list"), ("quarantine", "purge", "--all")]
)
def test_a_quarantine_without_a_name_is_refused(command: tuple[str, ...], sample: Sample) -> None:
    found = footprint(sample.root)
    done = run(*command, "-c", sample.config, "--quarantine-dir", "")
    assert done.exit_code == 1
    assert_one_line(done, "--quarantine-dir", "empty")
    assert footprint(sample.root) == found


def test_a_port_in_use_is_said_in_one_line(sample: Sample) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = footprint(sample.root)
        done = recover(sample, "--metrics-port", str(port))
        assert done.exit_code == 1
        assert_one_line(done, str(port), "--metrics-port")
        assert footprint(sample.root) == found


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--metrics-host", "::1"), ["--metrics-host ::1", "--metrics-port"]),
        (("--metrics-port", "0", "--metrics-host", "192.0.2.1"), ["192.0.2.1", "--metrics-host"]),
        (("--metrics-port", "0", "--metrics-host", ""), ["--metrics-host"]),
        (("--metrics-textfile", "/dev/null"), ["/dev/null", "not a regular file"]),
        (("--metrics-textfile", "/no/such/folder/x.prom"), ["/no/such/folder/x.prom", "No such file"]),
        (("--metrics-textfile", ""), ["--metrics-textfile"]),
        (("--stall-seconds", "0"), ["--stall-seconds"]),
    ],
)
def test_what_cannot_show_a_run_is_said_in_one_line(
    sample: Sample, options: tuple[str, ...], words: list[str]
) -> None:
    found = footprint(sample.root)
    done = recover(sample, *options)
    assert done.exit_code == 1
    assert_one_line(done, *words)
    assert footprint(sample.root) == found


def test_one_log_dir_that_cannot_be_locked_is_offline_and_the_other_is_done(tmp_path: Path) -> None:
    sample = unpack("crashed-v0-v1", tmp_path)
    (sample.log_dirs[1] / ".lock").unlink(missing_ok=True)
    (sample.log_dirs[1] / ".lock").mkdir()  # an I/O error that root meets, too
    done = recover(sample)
    assert done.exit_code == 4
    first, second = done.report["logDirs"]
    assert (first["status"], second["status"]) == ("recovered", "offline")
    assert ".lock" in second["error"]
    (sample.log_dirs[0] / ".lock").mkdir()
    nothing = recover(sample)
    assert nothing.exit_code == 1
    assert {log_dir["status"] for log_dir in nothing.report["logDirs"]} == {"offline"}


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_folder_that_is_no_log_dir_is_left_alone(is_empty: bool, sample: Sample, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    folder.mkdir()
    if not is_empty:
        (folder / "package-1").mkdir()
        (folder / "package-1" / "notes").write_text("mine")
    found = footprint(tmp_path)
    done = run("recover", "--log-dirs", f"{sample.log_dirs[0]},{folder}", "--progress", "none")
    assert done.exit_code == 3
    assert_one_line(done, str(folder), "not the log dir of a broker", "Nothing was changed")
    assert footprint(tmp_path) == found
    estimated = run("estimate", "--log-dirs", f"{sample.log_dirs[0]},{folder}")
    assert estimated.exit_code == 1
    assert_one_line(estimated, str(folder), "not the log dir of a broker", "is mounted")
    described = run("log-dirs", "--describe", "--log-dirs", f"{sample.log_dirs[0]},{folder}")
    assert described.exit_code == 4
    assert f"{folder}: offline: not the log dir of a broker" in described.stdout + described.stderr


def test_a_configuration_that_names_no_log_dir_is_told_of(tmp_path: Path) -> None:
    config = tmp_path / "log4j.properties"
    config.write_text("log4j.rootLogger=INFO\n")
    done = run("recover", "-c", config, "--property", f"log.dir={tmp_path / 'nope'}")
    assert_one_line(done, "nope: no such log dir. Remedy: check the path")
    if not Path("/tmp/kafka-logs").exists():
        config.write_text("\ufefflog.dirs=/var/lib/kafka\n", encoding="utf-8")
        meant = "a byte order mark, for Kafka a part of its first key, log.dirs: save it without"
        assert_one_line(run("recover", "-c", config), "/tmp/kafka-logs: no such log dir", meant)
        config.write_text("log.dirz=/var/lib/kafka\n")
        for command in (("recover",), ("verify",), ("estimate",), ("undo",), ("quarantine", "list")):
            done = run(*command, "-c", config)
            meant = "(log.dirz is not a setting of a broker, and has no effect; is log.dir meant?). Remedy: "
            assert_one_line(
                done, "/tmp/kafka-logs: no such log dir", "neither log.dirs nor log.dir is set", meant
            )


@pytest.mark.parametrize(
    "arguments",
    [
        ("recover", "-c", ""),
        ("recover", "-c", "x", "--topic-config", ""),
        ("recover", "-c", "x", "--metrics-textfile="),
        ("undo", "-c", "x", "--run", ""),
        ("warm", "--kernel-cache="),
        ("archive", "verify", "/", "--output", ""),
    ],
)
def test_an_empty_name(arguments: tuple[str, ...]) -> None:
    assert_one_line(run(*arguments), "the name is empty; is a variable of the shell not set? Remedy: see ")


@pytest.mark.parametrize("is_parent", [True, False])
def test_verify_looks_at_no_folder_without_logs(is_parent: bool, sample: Sample, tmp_path: Path) -> None:
    """Else the log dirs themselves are foreign folders that the remedy moves away."""
    place = sample.root if is_parent else tmp_path
    done = run("verify", "--progress", "none", "--log-dirs", place)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"NOT CHECKED {place}: not the log dir of a broker: ")
    assert "and there is no log in it. Remedy: check the path" in done.stdout
    beside = run("verify", "--progress", "none", "--log-dirs", f"{place},{sample.log_dirs[1]}")
    assert (beside.exit_code, "DAMAGED" in beside.stdout) == (4, False)
    folder = next(path / "plain-0" for path in sample.log_dirs if (path / "plain-0").exists())
    shutil.copytree(folder, tmp_path / "copy" / "plain-0")
    copied = run("verify", "--progress", "none", "--log-dirs", tmp_path / "copy")
    assert copied.exit_code == 2
    assert "1 damaged" in copied.stdout  # meta.properties alone


def test_each_command_that_reads_a_configuration_takes_properties_beside_it() -> None:
    """Remedies name the option."""
    for parser in parsers(build_parser()):
        options = parser._option_string_actions
        assert ("--property" in options) == ("--config" in options or "--topic-config" in options), (
            parser.prog
        )


def test_a_property_wins_over_the_configuration(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    sample.config.write_text(f"{sample.config.read_text()}num.recovery.threads.per.data.dir=many\n")
    mended = ("--property", "num.recovery.threads.per.data.dir=1")
    for command in (("undo", "-n"), ("quarantine", "list"), ("log-dirs", "--describe"), ("estimate",)):
        assert_one_line(
            run(*command, "-c", sample.config), "override it with --property num.recovery.threads"
        )
        assert run(*command, "-c", sample.config, *mended).exit_code == 0


def test_a_clock_in_seconds_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["recover", "--log-dirs", "x", "--now", "1764201600"])
    assert "are seconds meant? Then give 1764201600000" in capsys.readouterr().err


def test_processes_and_a_limit_on_bytes_are_refused_together(tmp_path: Path) -> None:
    both = ("--processes", "always", "--max-bytes-per-second", "1M")
    assert_one_line(run("recover", "-n", "--log-dirs", tmp_path, *both), "Remedy: leave out one of the two")


def test_a_partition_that_is_given_as_a_topic_is_told_of(sample: Sample) -> None:
    done = run("recover", "-n", "-c", sample.config, "--topic", "plain-0")
    assert done.exit_code == 1
    assert "is --partition plain-0 meant?" in done.stderr


def test_a_metadata_log_in_an_offline_dir_is_not_called_missing(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    (sample.log_dirs[0] / ".lock").unlink(missing_ok=True)
    (sample.log_dirs[0] / ".lock").mkdir()
    log_dirs = ",".join(map(str, sample.log_dirs))
    done = run("recover", "-n", "--log-dirs", log_dirs, "--topic-config", "{}")
    assert f"OFFLINE {sample.log_dirs[0]}: " in done.stdout
    assert "no __cluster_metadata-0 in the log dirs that can be read: topics get" in done.stdout


def test_a_metadata_log_dir_that_cannot_be_locked_makes_the_run_unsafe(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    metadata_dir = tmp_path / "metadata"
    (metadata_dir / ".lock").mkdir(parents=True)
    found = footprint(sample.root)
    done = recover(sample, "--property", f"metadata.log.dir={metadata_dir}")
    assert done.exit_code == 3
    assert_one_line(done, str(metadata_dir), "Nothing was changed")
    assert {path: at for path, at in footprint(sample.root).items() if path not in ("d1", "d2")} == {
        path: at for path, at in found.items() if path not in ("d1", "d2")
    }


class TestFoldersThatNoTopicCanHave:
    @pytest.mark.parametrize("name", [b"\xff-0", b"two words-0", b"line\nfeed-0"])
    def test_they_are_refused_and_the_rest_is_done(self, name: bytes, tmp_path: Path) -> None:
        sample = unpack("crashed-v0-v1", tmp_path)
        folder = os.fsencode(sample.log_dirs[0]) + b"/" + name
        os.mkdir(folder)
        done = run("recover", "--log-dirs", f"{sample.log_dirs[0]},{sample.log_dirs[1]}", "--progress", "log")
        assert done.exit_code == 4
        assert "Traceback" not in done.stderr
        assert "no topic can have this name" in done.stdout
        assert "\nfeed-0: refused" not in done.stdout  # a name cannot forge a line of the report
        assert os.listdir(folder) == []
        assert not (sample.log_dirs[0] / ".kafka_cleanshutdown").exists()
        assert (sample.log_dirs[1] / ".kafka_cleanshutdown").exists()


class TestStreamsThatAreGone:
    def arguments(self, sample: Sample) -> list[str]:
        return [*RECOVERY, "recover", "--log-dirs", str(sample.log_dirs[0]), "--dry-run"]

    def shell(self, sample: Sample, redirections: str) -> Done:
        done = subprocess.run(
            ["sh", "-c", f'"$@" {redirections}', "sh", *self.arguments(sample)],
            # With buffers, whose last flush the interpreter counts as well
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            capture_output=True,
            text=True,
            check=False,
        )
        return Done(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    @pytest.mark.parametrize("redirections", [">&-", "2>&-", ">&- 2>&-", "2>/dev/full", "| :"])
    def test_they_do_not_change_the_outcome(self, redirections: str, sample: Sample) -> None:
        done = self.shell(sample, redirections)
        assert done.exit_code == 0
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("closed", [False, True])
    def test_the_null_device_is_opened_where_one_is_missing_and_else_may_be_forbidden(
        self, closed: bool, sample: Sample
    ) -> None:
        """In some containers a broker's user may not write to it."""
        program = (
            "import os, sys; from recovery.cli.main import main\n"
            "original = os.open\n"
            "def guarded(path, *rest, **more):\n"
            "    if path == os.devnull: raise PermissionError(13, 'denied', path)\n"
            "    return original(path, *rest, **more)\n"
            "os.open = guarded\n"
            f"sys.exit(main(['quarantine', 'list', '--log-dirs', {str(sample.log_dirs[0])!r}]))"
        )
        redirection = ">&-" if closed else ""
        done = run(command=("sh", "-c", f'"$0" -c "$1" {redirection}', sys.executable, program))
        assert done.exit_code == closed, done.stderr
        assert ("denied" in done.stderr) == closed
        assert "Traceback" not in done.stderr

    def test_a_report_that_cannot_be_written_is_an_error(self, sample: Sample) -> None:
        done = self.shell(sample, "--progress none >/dev/full")
        assert done.exit_code == 1
        assert_one_line(done, "report", "No space left")


def test_an_error_in_the_tool_itself_is_one_line_and_a_traceback_on_request() -> None:
    program = (
        "import sys, recovery.engine.api; from recovery.cli.main import main\n"
        "def recover(*_, **__): raise ZeroDivisionError('why')\n"
        "recovery.engine.api.recover = recover\n"
        "sys.exit(main(['recover', '--log-dirs', '/', '--progress', 'none']))"
    )
    command = (sys.executable, "-c", program)
    done = run(command=command)
    assert done.exit_code == 1
    assert_one_line(done, "ZeroDivisionError", "KAFKA_LOG_RECOVERY_TRACEBACK=1")
    shown = run(command=command, env=os.environ | {"KAFKA_LOG_RECOVERY_TRACEBACK": "1"})
    assert "Traceback" in shown.stderr


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom recovery.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as ended:\n    assert ended.code == 0\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    for arguments in (["--help"], ["recover", "--help"]):
        done = run(*arguments, command=(sys.executable, "-c", program))
        assert done.exit_code == 0, done.stderr
        assert "recover" in done.stdout
        imported = set(done.stderr.strip(" []\n").replace("'", "").split(", "))
        assert "recovery" in imported
        assert not imported & {
            "numpy",
            "numba",
            "llvmlite",
            "rich",
            "structlog",
            "prometheus_client",
            "cramjam",
            "native",
        }


def test_a_process_starts_no_thread_of_numpys_and_ends_without_a_last_collection() -> None:
    program = (
        "import atexit, gc, os\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "from recovery.cli.main import main\n"
        "try: main(['--version'])\n"
        "except SystemExit: pass\n"
        "import numpy\n"
        "print(len(os.listdir('/proc/self/task')), os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    for own, expected in ((None, "1"), ("2", "2")):
        environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
        shown = subprocess.run(
            [sys.executable, "-c", program],
            env=environment if own is None else environment | {"OPENBLAS_NUM_THREADS": own},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        assert shown[1].split()[1] == expected
        assert own is not None or shown[1].split()[0] == "1"
        assert shown[2] == "True"


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_an_undo_that_finds_nothing_says_where_it_has_looked(tmp_path: Path, is_elsewhere: bool) -> None:
    sample = unpack("intact", tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = run("undo", "-c", sample.config, *(("--quarantine-dir", elsewhere) if is_elsewhere else ()))
    assert done.exit_code == 0
    where = (
        f"only in {elsewhere}"
        if is_elsewhere
        else "next to it and inside it; a recovery with --quarantine-dir needs"
    )
    for line, log_dir in zip(done.stdout.splitlines(), sample.log_dirs, strict=True):
        assert line.startswith(f"{log_dir}: nothing to take back (looked {where}")


@pytest.mark.parametrize(
    "command",
    [("undo",), ("undo", "--dry-run"), ("quarantine", "list"), ("quarantine", "purge", "--all")],
)
def test_a_misspelled_quarantine_is_not_an_empty_one(tmp_path: Path, command: tuple[str, ...]) -> None:
    sample = unpack("intact", tmp_path)
    done = run(*command, "-c", sample.config, "--quarantine-dir", tmp_path / "spair")
    assert done.exit_code == 1
    assert_one_line(done, f"--quarantine-dir {tmp_path / 'spair'}: no such folder. Remedy: name the one")


def test_a_log_dir_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("")
    for command in ("recover", "verify", "estimate", "undo"):
        done = run(command, "--log-dirs", tmp_path / "d")
        assert done.exit_code == 1
        assert_one_line(done, f"{tmp_path / 'd'}: not a folder. Remedy: check the path")


@pytest.mark.parametrize("command", [("recover",), ("recover", "--dry-run")])
def test_quarantine_below_a_file(tmp_path: Path, command: tuple[str, ...]) -> None:
    sample = unpack("intact", tmp_path)
    (tmp_path / "file").write_text("mine")
    done = run(*command, "-c", sample.config, "--quarantine-dir", tmp_path / "file" / "q")
    assert done.exit_code == 1
    assert_one_line(done, f"--quarantine-dir {tmp_path}/file/q: {tmp_path}/file is not a folder. Remedy: ")


@pytest.mark.parametrize("command", [("recover",), ("recover", "--dry-run"), ("undo",)])
def test_places_where_no_quarantine_can_be(tmp_path: Path, command: tuple[str, ...]) -> None:
    sample = unpack("intact", tmp_path)
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "pipe", "link"):
        done = run(*command, "-c", sample.config, "--quarantine-dir", tmp_path / name)
        assert done.exit_code == 1
        assert_one_line(done, f"--quarantine-dir {tmp_path / name}: not a folder. Remedy: ")
    deep = tmp_path.joinpath(*["log-dirs-of-a-broker"] * 12)
    deep.mkdir(parents=True)
    shutil.move(sample.log_dirs[0], deep / "d1")
    (tmp_path / "quarantine").mkdir()
    done = run(*command, "--log-dirs", deep / "d1", "--quarantine-dir", tmp_path / "quarantine")
    assert done.exit_code == 1
    assert_one_line(done, "would have a name of more than 255 bytes. Remedy: leave the option out")
    beside = deep / "d1.quarantine"
    shutil.copytree(deep / "d1", beside)
    done = run(*command, "--log-dirs", f"{deep / 'd1'},{beside}")
    assert done.exit_code == 1
    assert_one_line(done, "the quarantine of ", "is a log dir itself", "--quarantine-dir")


def test_a_zero_byte_in_a_path(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("log.dirs=/x\\u0000y\n")
    for command in ("recover", "verify", "undo"):
        done = run(command, "-c", tmp_path / "server.properties")
        assert done.exit_code == 1
        assert_one_line(done, "no path can have a zero byte")


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["archive", "verify", "x", "--layot", "plain"], "kafka-log-recovery archive verify"),
        (["recover", "--log-dirs", "x", "--bar", "1"], "kafka-log-recovery recover"),
    ],
)
def test_an_unknown_option_is_referred_to_the_help_of_its_command(words, program, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith(f"{program}: unrecognized arguments: --")
    assert said.endswith(f"Remedy: see {program} --help\n")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--versoin"], "is --version meant?"),
        (["RECOVER"], "is recover meant?"),
        (["--log-dirs", "x", "recover"], "--log-dirs; options go after the command"),
        (["archive", "--metadata", "x", "metrics"], "--metadata; options go after the command"),
        (["archive", "verify", "x", "--layot", "plain"], "is --layout meant?"),
        (["recover", "--log-dirs", "x", "--dryrun", "--thread=3"], "is --dry-run and --threads meant?"),
        (["archive", "copy", "--log-dirs", "x", "--ouput=y"], "--ouput; is --output meant?"),
        (["archive", "metrics", "--metdata", "x"], "--metdata; is --metadata meant?"),
        (["quarantine", "purge", "--log-dirs", "x", "--older-then", "7d"], "is --older-than meant?"),
        (["log-dirs", "--descibe", "--log-dirs", "x"], "is --describe meant?"),
        (["recovr", "--log-dirs", "x"], "is recover meant?"),
        (["archive", "verfy", "x"], "is verify meant?"),
        (["recover", "--log-dirs", "x", "--handoff", "recovery-pont"], "is recovery-point meant?"),
    ],
)
def test_what_is_near_to_a_wrong_word_is_named(words, meant, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1
    assert meant in capsys.readouterr().err


def every_option() -> list[tuple[str, str]]:
    """The words before each long option of each command, and the option."""
    return [
        (parser.prog.partition(" ")[2], option)
        for parser in parsers(build_parser())
        for option in parser._option_string_actions
        if option.startswith("--")
    ]


@pytest.mark.parametrize(("words", "option"), every_option())
def test_each_option_with_a_typo(words, option, capsys):
    middle = len(option) // 2 + 1
    typo = option[: middle - 1] + option[middle] + option[middle - 1] + option[middle + 1 :]
    if typo == option:
        typo = option[:middle] + option[middle + 1 :]
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), typo])
    assert ended.value.code == 1
    assert f"{typo}; is {option} meant?" in capsys.readouterr().err


def test_an_option_of_another_command_is_near_to_none(capsys):
    """`--force` is the last thing to suggest to somebody who has typed `--once`."""
    with pytest.raises(SystemExit):
        main(["recover", "--log-dirs", "x", "--once"])
    said = capsys.readouterr().err
    assert "unrecognized arguments: --once. Remedy" in said


@pytest.mark.parametrize("release", ["4.2", "44"])
def test_no_release_is_near_to_another_one(release, capsys):
    with pytest.raises(SystemExit):
        main(["recover", "--log-dirs", "x", "--release", release])
    said = capsys.readouterr().err
    assert "4.3, 4.4)" in said.replace("'", "")  # Python 3.13 leaves the quotes out
    assert "meant?" not in said


@pytest.mark.parametrize(
    ("words", "commands"),
    [
        ([], ("recover", "undo", "verify", "archive", "help")),
        (["archive"], ("verify", "recover", "inventory", "metrics", "retention", "copy", "restore")),
        (["quarantine"], ("list", "purge")),
    ],
)
def test_without_a_command_the_commands_are_listed(words, commands, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1
    printed = capsys.readouterr().out
    assert all(re.search(rf"^    {command}\b", printed, re.MULTILINE) for command in commands)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["recover", "nonsense"], "kafka-log-recovery recover: unrecognized arguments: nonsense"),
        (["archive", "recover", "undo"], "kafka-log-recovery archive recover: unrecognized arguments: undo"),
        (["archive", "undo"], "kafka-log-recovery archive: argument ACTION: invalid choice"),
        (["recovr"], "is recover meant?"),
    ],
)
def test_help_of_what_is_no_command(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["help", *words])
    assert ended.value.code == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["recover"], ["archive", "verify"]])
def test_help_of_a_command(words, capsys):
    printed = []
    for arguments in (["help", *words], [*words, "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


@pytest.mark.parametrize("columns", ["1", "2", "13"])
def test_help_on_a_screen_that_is_too_narrow_for_it(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit) as ended:
        main(["recover", "--help"])
    assert ended.value.code == 0
    assert "--dry-run" in capsys.readouterr().out


@pytest.mark.parametrize("words", [parser.prog.split()[1:] for parser in parsers(build_parser())])
def test_the_usage_has_what_is_needed_and_fits_a_narrow_screen(words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    usage = capsys.readouterr().out.partition("\n\n")[0]
    assert usage.startswith(" ".join(["usage: kafka-log-recovery", *words]))
    assert max(map(len, usage.splitlines())) <= 60
    assert len(usage.splitlines()) <= 2
    needed = {
        "log-dirs": "--describe",
        "copy": "--output URL",
        "purge": "(--older-than AGE | --run NAME | --all)",
    }
    assert needed.get(words[-1] if words else "", "") in usage
