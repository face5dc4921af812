"""Options that name a place to write to: not in a log dir, whoever's it is, nor over a file of somebody else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from recovery.cli.arguments import observer_options, properties_of
from recovery.cli.main import build_parser
from recovery.errors import UsageError
from tests.brokers.tiered_broker import unpack_tiered
from tests.logs.samples import Sample, unpack
from tests.runs.command import Done, assert_one_line, run
from tests.runs.driving import footprint

RECOVERING = ("recover", "recover --dry-run", "verify", "archive copy", "archive restore", "watch")
WATCHED = (*RECOVERING, "archive verify", "archive recover", "archive metrics")
WITH_OUTPUT = (
    "archive copy",
    "archive inventory",
    "archive verify",
    "archive recover",
    "archive recover --in-place",
)
FOR_FOLDERS = "where a broker takes folders for logs. Remedy: choose a folder outside of it"
FOR_BROKER_ALONE = "where nothing but the files of a broker belongs. Remedy: choose a f"


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    """Of a broker; `others` has the log dirs of another one."""
    shutil.copytree(unpack("crashed-v0-v1", tmp_path / "there").root, tmp_path / "others")
    shutil.copytree(tmp_path / "others" / "d1", tmp_path / "archive")
    (tmp_path / "server.log").write_text("[2026-11-30 16:10:57,330] INFO Loading logs\n")
    return unpack("crashed-v0-v1", tmp_path)


def arguments_of(command: str, sample: Sample) -> tuple[str | Path, ...]:
    """A command line that is right without the option in question."""
    place = sample.root.parent
    archive = place / "archive"
    given: dict[str, tuple[str | Path, ...]] = {
        "recover": ("-c", sample.config),
        "verify": ("-c", sample.config),
        "estimate": ("-c", sample.config),
        "watch": (place / "server.log", "-c", sample.config, "--once"),
        "archive copy": ("-c", sample.config),
        "archive restore": (archive, "-c", sample.config),
        "archive metrics": ("--metadata", sample.log_dirs[0], "-c", sample.config),
    }
    words = command.split()
    named = " ".join(words[: 2 if words[0] == "archive" else 1])
    more = ("--output", place / "copy") if named in ("archive copy", "archive recover") else ()
    return (*words, *given.get(named, (archive,)), *more, "--progress", "none")


def with_output(command: str, sample: Sample, output: str | Path) -> Done:
    words = [
        word
        for word in arguments_of(command, sample)
        if word not in ("--output", sample.root.parent / "copy")
    ]
    return run(*words, "--output", output)


def assert_refused(done: Done, *words: str) -> None:
    assert done.exit_code == 1, done
    assert_one_line(done, *words)


class TestTextfile:
    """`--metrics-textfile`, which replaces its file."""

    @pytest.mark.parametrize(
        ("command", "name"),
        [(command, f"old-v0-0/{0:020}.log") for command in WATCHED]
        + [("recover", name) for name in ("recovery-point-offset-checkpoint", "x.prom", "old-v0-0/x.prom")],
    )
    def test_nothing_is_put_into_a_log_dir_that_is_named(
        self, command: str, name: str, sample: Sample
    ) -> None:
        file = sample.log_dirs[0] / name
        found = footprint(sample.root.parent)
        done = run(*arguments_of(command, sample), "--metrics-textfile", file)
        assert_refused(done, f"--metrics-textfile {file}: inside the ", FOR_BROKER_ALONE, "ile outside of it")
        assert footprint(sample.root.parent) == found

    @pytest.mark.parametrize("name", ["x.prom", f"old-v0-gzip-0/{0:020}.log", "old-v0-gzip-0/x.prom"])
    def test_nor_into_that_of_another_broker(self, name: str, sample: Sample, tmp_path: Path) -> None:
        file = tmp_path / "others" / "d2" / name
        place = f"the log dir {file.parent}" if name == "x.prom" else f"the partition's folder {file.parent}"
        found = footprint(tmp_path)
        done = run(*arguments_of("verify", sample), "--metrics-textfile", file)
        assert_refused(
            done, f"--metrics-textfile {file}: inside {place}, {FOR_BROKER_ALONE}ile outside of it"
        )
        assert footprint(tmp_path) == found

    @pytest.mark.parametrize("command", ["recover", "verify", "archive metrics"])
    @pytest.mark.parametrize("is_empty", [True, False])
    def test_the_configuration_stays(self, command: str, is_empty: bool, sample: Sample) -> None:
        words = [*arguments_of(command, sample)]
        if is_empty:
            sample.config.write_text("")
            words += ["--log-dirs", sample.log_dirs[0]] if command != "archive metrics" else []
        link = sample.root / "link.prom"
        link.symlink_to(sample.config.name)
        found = footprint(sample.root.parent)
        for file in (sample.config, link):
            done = run(*words, "--metrics-textfile", file)
            assert_refused(
                done, f"--metrics-textfile {file}: this is the file of -c. Remedy: name another file"
            )
        assert footprint(sample.root.parent) == found

    @pytest.mark.parametrize("command", WATCHED)
    def test_a_file_of_somebody_else_stays(self, command: str, sample: Sample, tmp_path: Path) -> None:
        (file := tmp_path / "x.prom").write_text("# HELP node_uptime_seconds Of another program.\n")
        found = footprint(tmp_path)
        done = run(*arguments_of(command, sample), "--metrics-textfile", file)
        assert_refused(
            done,
            f"--metrics-textfile {file}: not empty, and not metrics that this tool has written. Remedy: ",
        )
        assert footprint(tmp_path) == found

    def test_the_log_that_is_watched_stays(self, sample: Sample, tmp_path: Path) -> None:
        (log := tmp_path / "server.log").write_text("")
        done = run(*arguments_of("watch", sample), "--metrics-textfile", log)
        assert_refused(
            done, f"--metrics-textfile {log}: this is the file of SOURCE. Remedy: name another file"
        )

    @pytest.mark.parametrize("by", ["verify", "archive metrics"])
    @pytest.mark.parametrize("then", ["verify", "archive metrics"])
    def test_a_file_that_the_tool_has_written_is_replaced(self, by: str, then: str, tmp_path: Path) -> None:
        tiered = unpack_tiered(tmp_path)
        dirs = ",".join(str(tiered.root / name) for name in ("d1", "d2") if (tiered.root / name).exists())
        file = tmp_path / "x.prom"
        given = {
            "verify": ("verify", "--log-dirs", dirs),
            "archive metrics": ("archive", "metrics", "--metadata", dirs),
        }
        for command in (by, then):
            before = file.stat().st_ino if file.exists() else None
            done = run(*given[command], "--progress", "none", "--metrics-textfile", file)
            assert done.exit_code in (0, 2, 4), done
            assert file.stat().st_ino != before

    def test_a_copy_of_logs_without_any_file_of_a_broker(self, sample: Sample, tmp_path: Path) -> None:
        copies = tmp_path / "copies"
        shutil.copytree(sample.log_dirs[0] / "old-v0-0", copies / "old-v0-0")
        for command in (("verify", "--log-dirs"), ("archive", "metrics", "--metadata")):
            done = run(*command, copies, "--metrics-textfile", copies / "x.prom")
            assert_refused(
                done, f"{copies}/x.prom: inside the log dir {copies}, {FOR_BROKER_ALONE}ile outside of it"
            )
        done = run("verify", "--log-dirs", copies, "--metrics-textfile", copies / "old-v0-0" / "x.prom")
        assert_refused(done, "old-v0-0/x.prom: inside the ", FOR_BROKER_ALONE)
        assert not list(copies.rglob("*.prom*"))

    def test_a_link_that_leads_into_a_log_dir(self, sample: Sample, tmp_path: Path) -> None:
        (tmp_path / "x.prom").symlink_to(sample.log_dirs[0] / "new.prom")
        done = run(*arguments_of("verify", sample), "--metrics-textfile", tmp_path / "x.prom")
        assert_refused(done, f"{tmp_path}/x.prom: inside the log dir {sample.log_dirs[0]}")
        assert not (sample.log_dirs[0] / "new.prom").exists()


class TestOutput:
    """`--output` of all that has it, and what has its place where it is left out."""

    @pytest.mark.parametrize(
        ("command", "form"),
        [(command, "{}/out") for command in WITH_OUTPUT]
        + [("archive copy", form) for form in ("{}", "{}/", "{}/a/b", "file://{}/out")],
    )
    def test_in_the_log_dir_of_another_broker(
        self, command: str, form: str, sample: Sample, tmp_path: Path
    ) -> None:
        log_dir = tmp_path / "others" / "d2"
        found = footprint(tmp_path)
        done = with_output(command, sample, output := form.format(log_dir))
        assert_refused(done, f"--output {output}: inside the log dir {log_dir}, {FOR_FOLDERS}")
        assert footprint(tmp_path) == found

    @pytest.mark.parametrize("command", WITH_OUTPUT)
    def test_in_the_folder_of_a_partition(self, command: str, sample: Sample, tmp_path: Path) -> None:
        folder = tmp_path / "kept" / "old-v0-0"
        shutil.copytree(sample.log_dirs[0] / folder.name, folder)
        found = footprint(tmp_path)
        done = with_output(command, sample, folder / "out")
        place = f"inside the partition's folder {folder}, {FOR_BROKER_ALONE}older outside of it"
        assert_refused(done, f"--output {folder}/out: {place}")
        assert footprint(tmp_path) == found

    @pytest.mark.parametrize("name", ["", "out"])
    def test_by_a_link(self, name: str, sample: Sample, tmp_path: Path) -> None:
        log_dir = tmp_path / "others" / "d2"
        (tmp_path / "link").symlink_to(log_dir / name)
        found = footprint(tmp_path)
        for command in ("archive copy", "archive inventory"):
            done = with_output(command, sample, tmp_path / "link")
            assert_refused(done, f"inside the log dir {log_dir}, {FOR_FOLDERS}")
        assert footprint(tmp_path) == found

    def test_in_a_log_dir_that_has_lost_its_properties(self, sample: Sample, tmp_path: Path) -> None:
        log_dir = tmp_path / "others" / "d2"
        (log_dir / "meta.properties").unlink()
        done = with_output("archive copy", sample, log_dir)
        assert_refused(done, f"inside the log dir {log_dir}, {FOR_FOLDERS}")

    @pytest.mark.parametrize(
        ("command", "name"),
        [(command, name) for command in WITH_OUTPUT for name in ("kept-7", "own")]
        + [("archive copy", name) for name in ("new", "empty", "empty/new")],
    )
    def test_any_other_place_is_taken(self, command: str, name: str, sample: Sample, tmp_path: Path) -> None:
        for folder in ("empty", "kept-7"):
            (tmp_path / folder).mkdir()
        (tmp_path / "kept-7" / "server.log").write_text("named like a partition's folder, and none")
        if name == "own":
            assert with_output(command, sample, tmp_path / name).exit_code == 0
        done = with_output(command, sample, tmp_path / name)
        assert done.exit_code == 0, done
        assert (
            sorted(os.listdir(tmp_path / name)) != sorted(os.listdir(tmp_path / "kept-7")) or name == "kept-7"
        )

    def test_what_is_replaced_in_a_partition_is_not_kept_beside_it(self, tmp_path: Path) -> None:
        sample = unpack("crashed-v0-v1", tmp_path)
        folder = sample.log_dirs[0] / "old-v0-0"
        found = footprint(tmp_path)
        done = run("archive", "recover", folder, "--in-place", "--progress", "none")
        assert_refused(
            done, f"{folder}.quarantine", f"inside the log dir {sample.log_dirs[0]}", "with --output URL"
        )
        assert footprint(tmp_path) == found


@pytest.mark.parametrize("command", ["recover", "recover --dry-run", "archive restore", "undo"])
def test_no_quarantine_in_the_folder_of_a_partition(command: str, sample: Sample, tmp_path: Path) -> None:
    folder = tmp_path / "kept" / "old-v0-0"
    shutil.copytree(sample.log_dirs[0] / folder.name, folder)
    given = arguments_of(command, sample) if command != "undo" else ("undo", "-c", sample.config)
    found = footprint(tmp_path)
    done = run(*given, "--quarantine-dir", folder)
    assert_refused(done, f"--quarantine-dir {folder}: inside the partition's folder {folder}, ")
    assert footprint(tmp_path) == found


@pytest.mark.parametrize("name", ["", "kernels", "old-v0-0"])
def test_no_kernels_in_a_log_dir(name: str, sample: Sample) -> None:
    place = sample.log_dirs[0] / name
    found = footprint(sample.root)
    assert_refused(
        run("warm", "--kernel-cache", place),
        f"--kernel-cache {place}: inside the ",
        "Remedy: choose a folder",
    )
    assert footprint(sample.root) == found


@pytest.mark.parametrize("variable", ["KAFKA_LOG_RECOVERY_KERNEL_CACHE", "NUMBA_CACHE_DIR"])
@pytest.mark.parametrize("command", ["recover --dry-run", "verify", "archive copy", "estimate"])
def test_no_kernels_that_the_environment_puts_there(
    command: str, variable: str, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_LOG_RECOVERY_KERNEL_CACHE", raising=False)
    place = sample.log_dirs[0] / "kernels"
    monkeypatch.setenv(variable, str(place))
    done = run(*arguments_of(command, sample))
    assert_refused(
        done, f"{variable}={place}: inside the log dir {sample.log_dirs[0]}", "Remedy: choose a folder"
    )
    assert not place.exists()


@pytest.mark.parametrize("command", ["recover", "archive restore"])
def test_quarantine_is_no_url(command: str, sample: Sample, tmp_path: Path) -> None:
    found = footprint(tmp_path)
    done = run(*arguments_of(command, sample), "--quarantine-dir", f"file://{tmp_path}/kept")
    assert_refused(
        done, f"--quarantine-dir file://{tmp_path}/kept: a path is needed, and this is a URL. Remedy: "
    )
    assert footprint(tmp_path) == found


@pytest.mark.parametrize("command", ["archive verify", "archive recover"])
@pytest.mark.parametrize("name", ["old-v0-0/00000000000000000000.log", "old-v0-0/new", "spark.log"])
def test_no_messages_of_spark_in_a_log_dir(command: str, name: str, sample: Sample, tmp_path: Path) -> None:
    found = footprint(tmp_path)
    file = sample.log_dirs[0] / name
    done = run(*arguments_of(command, sample), "--spark-log", file)
    assert_refused(done, f"--spark-log {file}: inside the ", f"{FOR_BROKER_ALONE}ile outside of it")
    assert footprint(tmp_path) == found


def test_no_messages_of_spark_in_the_archive(tmp_path: Path) -> None:
    archive = unpack_tiered(tmp_path).path
    done = run("archive", "verify", archive, "--spark-log", f"{archive}/spark.log")
    assert_refused(done, f"--spark-log {archive}/spark.log: it is in the archive")
    assert not (Path(archive) / "spark.log").exists()


@pytest.mark.parametrize("command", ["verify", "restore"])
def test_no_metrics_in_the_archive(command: str, sample: Sample, tmp_path: Path) -> None:
    archive = unpack_tiered(tmp_path / "tiered").path
    words = ["archive", command, archive, "--metrics-textfile", f"{archive}/x.prom"]
    done = run(*words, *(["-c", sample.config] if command == "restore" else []))
    assert_refused(done, f"--metrics-textfile {archive}/x.prom: it is in the archive")
    assert not (Path(archive) / "x.prom").exists()


def test_nor_in_what_is_copied_to(sample: Sample, tmp_path: Path) -> None:
    words = arguments_of("archive copy", sample)
    assert run(*words).exit_code == 0
    file = tmp_path / "copy" / "x.prom"
    assert_refused(
        run(*words, "--metrics-textfile", file), f"--metrics-textfile {file}: it is in the archive"
    )
    assert not file.exists()


def test_settings_from_a_pipe_are_read_once_and_known_to_each_check(tmp_path: Path) -> None:
    """As of `-c <(command)`: what has been read from it is gone."""
    read, write = os.pipe()
    os.write(write, f"log.dirs={tmp_path}/logs\n".encode())
    os.close(write)
    (tmp_path / "logs").mkdir()  # with nothing in it that shows that it is a log dir
    textfile = tmp_path / "logs" / "x.prom"
    given = ["verify", "-c", f"/dev/fd/{read}", "--metrics-textfile", str(textfile)]
    arguments = build_parser().parse_args(given)
    try:
        assert properties_of(arguments).values == {"log.dirs": f"{tmp_path}/logs"}
        with pytest.raises(UsageError, match="inside the log dir"):
            observer_options(arguments)
        assert properties_of(arguments).values == {"log.dirs": f"{tmp_path}/logs"}
    finally:
        os.close(read)
