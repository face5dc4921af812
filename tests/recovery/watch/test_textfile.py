"""`--metrics-textfile`: whole at any moment, the last figures at the end, no harm if it cannot be written."""

import logging
import os
import resource
import signal
import stat
import time
from contextlib import ExitStack, contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from recovery.errors import InterruptedRecoveryError, LogDirLockedError, UsageError
from recovery.watch import textfile
from recovery.watch.events import RunFinished
from recovery.watch.gauges import Gauges
from recovery.watch.http.metrics import metrics_text
from recovery.watch.open import ObserverOptions, open_observers
from recovery.watch.textfile import kept_in_file, replace_textfile
from tests.patience import wait_until
from tests.runs.event_streams import A, at, dir_started, log_finished, one_of_each, run_started


def samples(path):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(path.read_text("utf-8"))
        for sample in family.samples
    }


def state(path):
    (name,) = (
        labels[0][1]
        for (metric, labels), value in samples(path).items()
        if metric == "kafka_log_recovery_run_state" and value == 1
    )
    return name


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recovery.prom"


@contextmanager
def file_size_limit(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


def test_it_is_there_at_once_for_every_user_and_has_the_last_figures_at_the_end(path):
    gauges = Gauges()
    mask = os.umask(0o077)
    try:
        with kept_in_file(gauges, str(path)):
            assert state(path) == "waiting"
            assert stat.S_IMODE(path.stat().st_mode) == 0o644
            for event in one_of_each():
                gauges(event)
            assert state(path) == "waiting", "not at each event"
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert state(path) == "incomplete"
    assert samples(path)["kafka_log_recovery_truncated_bytes_total", (("dir", A),)] == 477 + 71
    assert os.listdir(path.parent) == [path.name]


def test_it_is_replaced_again_and_again_and_whole(path, monkeypatch):
    monkeypatch.setattr(textfile, "INTERVAL_S", 0.02)
    gauges = Gauges()
    names = set()
    with kept_in_file(gauges, str(path)), open(path) as first:
        before = path.read_text()
        gauges(run_started())
        gauges(dir_started())

        def is_there():
            names.update(os.listdir(path.parent))
            return state(path) == "recovering"

        wait_until(is_there)
        assert first.read() == before, "whoever reads the old one reads it to its end"
        gauges(log_finished())
        logs = ("kafka_log_logmanager_remaininglogstorecover", (("dir", A),))
        wait_until(lambda: samples(path)[logs] == 1)
    assert {name for name in names if name.endswith(".prom")} == {path.name}


def test_what_a_killed_process_has_left_is_in_nobodys_way(path):
    left = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    left.symlink_to(path.parent / "elsewhere")
    with kept_in_file(Gauges(), str(path)):
        pass
    assert os.listdir(path.parent) == [path.name]


def test_a_link_stays_one(path, tmp_path):
    (tmp_path / "real").mkdir()
    path.symlink_to("real/file.prom")
    with kept_in_file(Gauges(), str(path)):
        assert state(tmp_path / "real/file.prom") == "waiting"
    assert path.is_symlink()


@pytest.mark.parametrize("name", ["missing/x.prom", "folder", "pipe", "file/x.prom", ""])
def test_what_cannot_be_written_is_an_error_at_the_start_and_stays_as_it_was(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(
        UsageError, match=r"--metrics-textfile .*: .*\. Remedy: ", check=lambda e: "\n" not in str(e)
    ):
        kept_in_file(Gauges(), str(tmp_path / name)).__enter__()
    assert sorted(os.listdir(tmp_path)) == before
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize(
    "data",
    [
        b"mine",
        b"# HELP node_uptime_seconds Of another program.\n",
        b"# HELP kafka_server_replicamanager_value A broker's own.\n",
        b"kafka_log_recovery_run_state 1\n",
        bytes(8) + b"\1",
        bytes(100) + b"mine",
    ],
)
def test_a_file_of_somebody_else_is_an_error_and_stays_as_it_was(tmp_path, data):
    path = tmp_path / "server.properties"
    path.write_bytes(data)
    with pytest.raises(
        UsageError, match=r"not empty, and not metrics that this tool has written\. Remedy: name a file"
    ):
        kept_in_file(Gauges(), str(path)).__enter__()
    with pytest.raises(OSError, match="not empty, and not metrics that this tool has written"):
        replace_textfile(str(path), b"")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (data, [path.name])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(4096),
        b"# HELP kafka_log_recovery_run_state 1 for the state that the run is in.\n",
        b"# HELP kafka_log_logmanager_remaininglogstorecover Kafka's remainingLogsToRecover (KIP-831).\n",
        b"# HELP kafka_server_brokertopicmetrics_remotecopylagbytes Bytes of closed segments that are not copied.\n",
    ],
)
def test_what_the_tool_has_written_and_what_a_loss_of_power_has_left_of_it_is_replaced(path, data):
    path.write_bytes(data)
    with kept_in_file(Gauges(), str(path)):
        assert state(path) == "waiting"


@pytest.mark.parametrize("events", [[], [run_started(), dir_started()], one_of_each()])
def test_all_figures_begin_as_what_is_replaced(path, events):
    gauges = Gauges()
    for event in events:
        gauges(event)
    for _ in range(2):
        replace_textfile(str(path), metrics_text(gauges.values()))


def test_a_file_that_somebody_else_puts_there_meanwhile_stays(path, monkeypatch, caplog):
    monkeypatch.setattr(textfile, "INTERVAL_S", 0.02)
    with caplog.at_level(logging.WARNING, "recovery"), kept_in_file(Gauges(), str(path)):
        other = path.with_name("other")
        other.write_text("mine")
        other.rename(path)
        wait_until(lambda: caplog.records)
    assert path.read_text() == "mine"
    (record,) = caplog.records
    assert "cannot be written any more: not empty, and not metrics" in record.getMessage()


def test_when_the_disk_fills_that_is_one_warning_and_the_file_keeps_what_it_had(path, monkeypatch, caplog):
    monkeypatch.setattr(textfile, "INTERVAL_S", 0.02)
    gauges = Gauges()
    with caplog.at_level(logging.WARNING, "recovery"), kept_in_file(gauges, str(path)):
        with file_size_limit(100):
            gauges(run_started())
            wait_until(lambda: caplog.records)
            time.sleep(0.2)  # it tries again, and says nothing
            assert state(path) == "waiting"
            wait_until(lambda: os.listdir(path.parent) == [path.name])  # between two tries
        wait_until(lambda: state(path) == "listing")
    (record,) = caplog.records
    assert (
        "recovery.prom cannot be written any more: File too large; the run continues." in record.getMessage()
    )


def test_a_name_that_node_exporter_passes_over_is_a_warning(tmp_path, caplog):
    with kept_in_file(Gauges(), str(tmp_path / "recovery.txt")):
        pass
    (record,) = caplog.records
    assert "end in .prom" in record.getMessage()


class TestEnds:
    """Through `open_observers`, as a command does it."""

    def end(self, path, *events, error=None, process=None):
        options = ObserverOptions(progress="none", metrics_textfile=str(path))
        with open_observers(options, process=process) as observers:
            for event in events:
                for observer in observers:
                    observer(event)
            if error is not None:
                raise error

    def found(self, path):
        return state(path), samples(path)["kafka_log_recovery_exit_code", ()]

    def test_with_a_run_that_is_over(self, path):
        self.end(path, run_started(), RunFinished(exit_code=2, **at(1)))
        assert self.found(path) == ("complete", 2)

    @pytest.mark.parametrize(
        ("error", "wanted"),
        [
            (UsageError("no such dir"), ("failed", 1)),
            (LogDirLockedError("locked"), ("failed", 3)),
            (InterruptedRecoveryError(15), ("interrupted", 143)),
            (KeyError("a defect"), ("failed", 1)),
        ],
    )
    def test_with_an_error_before_or_in_the_run(self, path, error, wanted):
        for events in ((), (run_started(), dir_started())):
            with pytest.raises(type(error)):
                self.end(path, *events, error=error)
            assert self.found(path) == wanted

    def test_with_an_error_after_the_run_as_the_run_did_and_as_the_process_does(self, path):
        ended = RunFinished(exit_code=4, **at(1))
        with pytest.raises(OSError, match="report"):
            self.end(path, run_started(), ended, error=OSError("report"))
        assert self.found(path) == ("incomplete", 1)
        process = ExitStack()
        self.end(path, run_started(), ended, process=process)
        assert self.found(path) == ("incomplete", 4)
        with pytest.raises(OSError, match="report"), process:
            raise OSError("report")
        assert self.found(path) == ("incomplete", 1)
