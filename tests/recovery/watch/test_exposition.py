"""What a scraper sees: names, labels, life of the gauges."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from recovery.watch.gauges import Gauges
from recovery.watch.http.metrics import metrics_text
from tests.runs.event_streams import (
    START_MS,
    A,
    B,
    at,
    dir_started,
    log_started,
    one_of_each,
    restoring,
    run_started,
    scanned,
    segment_recovered,
)

LOGS = "kafka_log_logmanager_remaininglogstorecover"
SEGMENTS = "kafka_log_logmanager_remainingsegmentstorecover"


def text_of(*stream, monotonic_s=1000.0):
    gauges = Gauges()
    for event in stream:
        gauges(event)
    return metrics_text(gauges.values(monotonic_s)).decode("utf-8")


def samples(text):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_kafkas_gauges_have_their_names_and_labels():
    lines = text_of(run_started(), dir_started(), dir_started(B, log_count=7), log_started()).splitlines()
    assert [line for line in lines if line.startswith((LOGS, SEGMENTS))] == [
        f'{LOGS}{{dir="/data/a"}} 2.0',
        f'{LOGS}{{dir="/data/b"}} 7.0',
        f'{SEGMENTS}{{dir="/data/a",threadNum="0"}} 3.0',
        f'{SEGMENTS}{{dir="/data/a",threadNum="1"}} 0.0',
        f'{SEGMENTS}{{dir="/data/b",threadNum="0"}} 0.0',
        f'{SEGMENTS}{{dir="/data/b",threadNum="1"}} 0.0',
    ]
    assert f"# TYPE {LOGS} gauge" in lines
    assert f"# TYPE {SEGMENTS} gauge" in lines


def test_kafkas_gauges_go_at_the_end_and_our_own_stay():
    text = text_of(*one_of_each())
    assert LOGS not in text
    assert SEGMENTS not in text
    found = samples(text)
    assert found["kafka_log_recovery_truncated_bytes_total", (("dir", A),)] == 477 + 71
    assert found["kafka_log_recovery_truncated_batches_total", (("dir", A),)] == 4 + 1
    assert found["kafka_log_recovery_recovered_bytes_total", (("dir", A),)] == 423
    assert found["kafka_log_recovery_exit_code", ()] == 4
    assert found["kafka_log_recovery_log_dir_offline", (("dir", B),)] == 1
    assert found["kafka_log_recovery_finished_logs_total", (("dir", A), ("status", "refused"))] == 1
    assert found["kafka_log_recovery_last_progress_timestamp_seconds", ()] == (START_MS + 800) / 1000


def test_a_brokers_gauges_of_log_dirs_are_there_from_the_start_and_stay():
    def of_dirs(*stream):
        return {
            (name.removeprefix("kafka_log_logmanager_"), *(value for _, value in labels)): value
            for (name, labels), value in samples(text_of(*stream)).items()
            if "logdirectory" in name
        }

    all_well = {
        ("offlinelogdirectorycount",): 0,
        ("logdirectoryoffline", A): 0,
        ("logdirectoryoffline", B): 0,
    }
    cordoned = {
        ("cordonedlogdirectorycount",): 1,
        ("logdirectorycordoned", A): 0,
        ("logdirectorycordoned", B): 1,
    }
    started = run_started(cordoned_log_dirs=(B,))
    assert of_dirs(started) == of_dirs(started, dir_started()) == all_well | cordoned
    gone = {("offlinelogdirectorycount",): 1, ("logdirectoryoffline", B): 1}
    stream = [started, *one_of_each()[1:]]
    assert of_dirs(*stream) == all_well | gone | cordoned


@pytest.mark.parametrize(("command", "names"), [("watch", {"offline"}), ("archive verify", set())])
def test_gauges_of_log_dirs_only_where_they_are_known(command, names):
    found = {name for name, _ in samples(text_of(run_started(command=command), dir_started()))}
    prefix = "kafka_log_logmanager_"
    assert {name for name in found if "logdirectory" in name} == {
        name for word in names for name in (f"{prefix}logdirectory{word}", f"{prefix}{word}logdirectorycount")
    }


def test_run_state_is_one_of_its_names():
    states = {
        labels[0][1]: value
        for (name, labels), value in samples(text_of(run_started(), dir_started())).items()
        if name == "kafka_log_recovery_run_state"
    }
    assert sum(states.values()) == states["recovering"] == 1
    assert set(states) == {
        "waiting",
        "listing",
        "recovering",
        "verifying",
        "copying",
        "complete",
        "incomplete",
        "interrupted",
        "failed",
    }


def test_figures_that_are_not_known_have_no_sample():
    text = text_of(run_started(), dir_started())
    assert "eta_seconds" not in text
    assert "exit_code" not in text
    assert "last_progress" not in text
    assert "kafka_log_recovery_bytes_per_second" not in text


def test_bytes_segments_and_eta_of_a_run_in_the_middle():
    stream = [run_started(log_dirs=(A,)), dir_started(log_count=1, bytes_total=400 << 20)]
    stream += [log_started(recover_bytes=400 << 20)]
    stream += [scanned(10 << 20, **at(i)) for i in range(1, 21)]
    stream += [segment_recovered(2, size_bytes=1, valid_bytes=1, **at(20))]
    found = samples(text_of(*stream, monotonic_s=1020.0))
    of_a = (("dir", A),)
    assert found["kafka_log_recovery_bytes", of_a] == 400 << 20
    assert found["kafka_log_recovery_remaining_bytes", of_a] == 200 << 20
    assert found["kafka_log_recovery_scanned_bytes_total", of_a] == 200 << 20
    assert found["kafka_log_recovery_bytes_per_second", of_a] == pytest.approx(10 << 20)
    assert found["kafka_log_recovery_eta_seconds", of_a] == pytest.approx(20.8)
    assert found["kafka_log_recovery_run_eta_seconds", ()] == pytest.approx(20.8)
    assert found["kafka_log_recovery_remaining_segments", of_a] == 3
    assert found["kafka_log_recovery_elapsed_seconds", ()] == 20
    assert found["kafka_log_recovery_start_timestamp_seconds", ()] == START_MS / 1000


def test_rate_falls_while_nothing_moves_between_events():
    stream = [run_started(log_dirs=(A,)), dir_started(), *(scanned(10, **at(i)) for i in range(1, 11))]
    rate = ("kafka_log_recovery_bytes_per_second", (("dir", A),))
    assert samples(text_of(*stream, monotonic_s=1010.0))[rate] == 10
    assert samples(text_of(*stream, monotonic_s=1100.0))[rate] == 0


def test_paths_of_any_bytes_can_be_scraped():
    odd, other = '/data/"q"\\\n\udcff', '/data/"q"\\\n\udcfe'
    found = samples(text_of(run_started(log_dirs=(odd, other)), dir_started(odd), dir_started(other)))
    assert found[LOGS, (("dir", '/data/"q"\\\n\\xff'),)] == 2
    assert found[LOGS, (("dir", '/data/"q"\\\n\\xfe'),)] == 2


def test_auxiliary_states_are_counted_by_topic_under_a_brokers_names():
    """Kafka: BuildRemoteLogAuxStateRequestsPerSec, BuildRemoteLogAuxStateErrorsPerSec."""
    prefix = "kafka_server_brokertopicmetrics_buildremotelogauxstate"
    found = samples(text_of(*restoring()))
    assert found[f"{prefix}requests_total", (("topic", "aux"),)] == 2
    assert found[f"{prefix}errors_total", (("topic", "aux"),)] == 1
    assert prefix not in text_of(*one_of_each())


def test_a_restores_log_dirs_are_a_brokers():
    found = samples(text_of(run_started(log_dirs=(A, B), command="archive restore", cordoned_log_dirs=(B,))))
    assert found["kafka_log_logmanager_logdirectorycordoned", (("logDirectory", B),)] == 1
    assert found["kafka_log_logmanager_offlinelogdirectorycount", ()] == 0
