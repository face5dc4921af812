"""Event streams to gauge values: there from the start, 0 at the end, then gone, the same on every replay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.watch.events import (
    LogDirFinished,
    LogDirHandedOver,
    LogDirOffline,
    Remark,
    RunFinished,
    RunStarted,
)
from recovery.watch.gauges import Gauges
from tests.runs.event_streams import (
    START_MS,
    A,
    B,
    at,
    checking,
    corruption,
    dir_started,
    log_finished,
    log_started,
    one_of_each,
    run_started,
    sampled,
    scanned,
    segment_recovered,
    segment_started,
    watching,
)


def after(*stream, gauges=None):
    gauges = gauges or Gauges()
    for event in stream:
        gauges(event)
    return gauges


def values_of(*stream, log_dir=A):
    values = after(*stream).values()
    return next(found for found in values.log_dirs if found.log_dir == log_dir)


STARTED = (run_started(), dir_started(), dir_started(B, log_count=5))


class TestKafkaGauges:
    def test_are_not_there_before_the_inventory_is_known(self):
        values = after(run_started()).values()
        assert [(d.log_dir, d.remaining_logs, d.remaining_segments) for d in values.log_dirs] == [
            (A, None, ()),
            (B, None, ()),
        ]

    def test_are_there_for_every_dir_and_thread_before_the_first_byte(self):
        values = after(*STARTED).values()
        assert [(d.remaining_logs, d.remaining_segments) for d in values.log_dirs] == [
            (2, (0, 0)),
            (5, (0, 0)),
        ]

    def test_segments_of_a_thread_are_put_at_the_start_and_lowered_in_fold_order(self):
        stream = [*STARTED, log_started(thread_num=1)]
        assert values_of(*stream).remaining_segments == (0, 3)
        stream += [segment_started(thread_num=1), segment_recovered(2, thread_num=1)]
        assert values_of(*stream).remaining_segments == (0, 2)
        stream += [segment_recovered(1, thread_num=1)]
        assert values_of(*stream).remaining_segments == (0, 1)

    def test_a_helper_does_not_change_its_own_value(self):
        stream = [*STARTED, log_started(), scanned(300, thread_num=1)]
        assert values_of(*stream).remaining_segments == (3, 0)

    def test_segments_fall_to_0_after_a_cut(self):
        stream = [*STARTED, log_started(), corruption(), segment_recovered(0, valid_bytes=100)]
        assert values_of(*stream).remaining_segments == (0, 0)

    def test_segments_fall_to_0_when_the_log_is_finished_whatever_was_left(self):
        assert values_of(*STARTED, log_started(), log_finished(status="failed")).remaining_segments == (0, 0)

    def test_a_clean_log_leaves_the_value_alone(self):
        assert values_of(*STARTED, log_started(unflushed_segment_count=None)).remaining_segments == (0, 0)

    @pytest.mark.parametrize("status", ["unchanged", "recovered", "truncated", "refused", "failed"])
    def test_logs_count_clean_ones_and_failures_too(self, status):
        assert values_of(*STARTED, log_started(), log_finished(status=status)).remaining_logs == 1

    def test_logs_fall_to_0_with_the_last_log_and_stay_there(self):
        stream = [*STARTED, log_finished("t-0"), log_finished("t-1")]
        assert values_of(*stream).remaining_logs == 0
        assert values_of(*stream, LogDirFinished(log_dir=A, duration_ms=1, **at(1))).remaining_logs == 0

    def test_of_another_dir_do_not_move(self):
        stream = [*STARTED, log_started(), log_finished()]
        assert values_of(*stream, log_dir=B).remaining_logs == 5

    def test_fall_to_0_when_the_dir_goes_offline(self):
        stream = [*STARTED, log_started(), LogDirOffline(log_dir=A, error="EIO", **at(1))]
        values = values_of(*stream)
        assert (values.remaining_logs, values.remaining_segments, values.is_offline) == (0, (0, 0), True)

    def test_late_events_of_a_dir_that_is_offline_do_not_go_below_0(self):
        offline = LogDirOffline(log_dir=A, error="EIO", **at(1))
        finished = [log_finished(f"t-{i}", status="failed") for i in range(4)]
        assert values_of(*STARTED, log_started(), offline, *finished).remaining_logs == 0

    def test_a_dir_offline_from_the_start_shows_0(self):
        values = values_of(run_started(), LogDirOffline(log_dir=A, error="EIO", **at(0)))
        assert (values.remaining_logs, values.remaining_segments) == (0, (0, 0))

    def test_from_4_4_on_it_has_no_gauge_unless_it_was_listed(self):
        offline = LogDirOffline(log_dir=A, error="EIO", **at(1))
        values = values_of(run_started(release="4.4"), offline)
        assert (values.remaining_logs, values.remaining_segments) == (None, ())
        listed = [event for event in STARTED if not isinstance(event, RunStarted)]
        values = values_of(run_started(release="4.4"), *listed, offline)
        assert (values.remaining_logs, values.remaining_segments) == (0, (0, 0))

    @pytest.mark.parametrize("exit_code", [0, 2, 4, 130])
    def test_go_when_the_run_ends_however_it_ends(self, exit_code):
        stream = [*STARTED, log_started(), RunFinished(exit_code=exit_code, **at(2))]
        for values in after(*stream).values().log_dirs:
            assert values.remaining_logs is None
            assert values.remaining_segments == ()


class TestBytes:
    def test_remaining_bytes_fall_with_the_bytes_scanned(self):
        values = values_of(*STARTED, log_started(), scanned(200), scanned(50, thread_num=1))
        assert (values.bytes_total, values.remaining_bytes, values.scanned_bytes) == (1000, 750, 250)

    def test_a_segment_known_from_a_journal_counts_as_done_without_being_scanned(self):
        values = values_of(*STARTED, log_started(), segment_recovered(2))
        assert (values.remaining_bytes, values.scanned_bytes, values.recovered_bytes) == (700, 0, 300)

    def test_scanning_ahead_of_the_fold_is_not_counted_twice(self):
        values = values_of(*STARTED, log_started(), scanned(600), segment_recovered(2))
        assert values.remaining_bytes == 400

    def test_scanning_more_than_announced_does_not_eat_into_other_logs(self):
        """A file may be read twice, or grow under a reader that must not trust it."""
        assert values_of(*STARTED, log_started(recover_bytes=300), scanned(800)).remaining_bytes == 700

    def test_what_a_cut_leaves_unread_is_not_waited_for(self):
        stream = [
            *STARTED,
            log_started(),
            scanned(100),
            log_finished(status="truncated", truncated_bytes=850),
        ]
        values = values_of(*stream, log_finished("t-1"))
        assert (values.remaining_bytes, values.truncated_bytes, values.finished_segments) == (100, 850, 3)

    def test_recovered_bytes_are_the_valid_ones(self):
        values = values_of(*STARTED, log_started(), segment_recovered(0, valid_bytes=123))
        assert values.recovered_bytes == 123

    def test_cut_batches_and_statuses_are_counted(self):
        cut = {"status": "truncated", "truncated_bytes": 10, "truncated_batches": 3}
        values = values_of(*STARTED, log_finished("t-0", **cut), log_finished("t-1", **cut))
        assert (values.truncated_bytes, values.truncated_batches) == (20, 6)
        assert values.partitions == {"truncated": 2}

    def test_segments_done_are_counted_as_the_fold_goes(self):
        values = values_of(*STARTED, log_started(), segment_recovered(2), segment_recovered(1))
        assert (values.finished_segments, values.segment_count) == (2, 4)

    def test_a_log_without_recovery_takes_its_share_off_too(self):
        loaded = log_started(unflushed_segment_count=None, recover_bytes=300)
        assert values_of(*STARTED, loaded, log_finished()).remaining_bytes == 700

    def test_a_finished_dir_has_no_segments_left_that_nobody_had_to_recover(self):
        values = values_of(*STARTED, LogDirFinished(log_dir=A, duration_ms=1, **at(1)))
        assert values.finished_segments == values.segment_count == 4

    def test_nothing_remains_in_a_finished_dir(self):
        assert values_of(*STARTED, LogDirFinished(log_dir=A, duration_ms=1, **at(1))).remaining_bytes == 0

    def test_what_an_interrupted_run_leaves_stays_to_be_read(self):
        values = values_of(*STARTED, log_started(), scanned(200), RunFinished(exit_code=143, **at(2)))
        assert (values.remaining_bytes, values.eta_seconds, values.bytes_per_second) == (800, None, 0.0)


def busy(seconds, per_second=100, step_s=0.5, bytes_total=100_000, log_dir=A):
    """A log of *bytes_total* scanned at an even pace."""
    yield dir_started(log_dir, log_count=1, bytes_total=bytes_total)
    yield log_started(log_dir=log_dir, recover_bytes=bytes_total)
    for i in range(1, round(seconds / step_s) + 1):
        yield scanned(round(per_second * step_s), log_dir=log_dir, **at(i * step_s))


class TestPace:
    def test_rate_is_that_of_the_last_half_minute(self):
        gauges = after(run_started(log_dirs=(A,)), *busy(60, per_second=100))
        for i in range(1, 101):
            gauges(scanned(300, **at(60 + i)))
        values = gauges.values(1000.0 + 160)
        assert values.bytes_per_second == pytest.approx(300)
        assert values.log_dirs[0].bytes_per_second == pytest.approx(300)

    def test_rate_is_unknown_in_the_first_second(self):
        gauges = after(run_started(log_dirs=(A,)), *busy(0.5))
        assert gauges.values(1000.5).bytes_per_second is None

    def test_rate_falls_when_nothing_moves(self):
        gauges = after(run_started(log_dirs=(A,)), *busy(10))
        assert gauges.values(1010.0).bytes_per_second == pytest.approx(100)
        assert gauges.values(1040.0).bytes_per_second < 40
        assert gauges.values(2000.0).bytes_per_second == 0

    def test_eta_counts_bytes_and_logs(self):
        gauges = after(run_started(log_dirs=(A,)), *busy(20, per_second=10 << 20, bytes_total=400 << 20))
        # 200 MiB and one log, worth 8 MiB, at 10 MiB/s
        assert gauges.values(1020.0).eta_seconds == pytest.approx(20.8, rel=0.01)

    def test_logs_that_are_nearly_empty_have_an_eta_too(self):
        gauges = after(run_started(log_dirs=(A,)), dir_started(log_count=300, bytes_total=0))
        for i in range(1, 201):
            gauges(log_finished(f"t-{i}", **at(i / 10)))
        assert gauges.values(1020.0).eta_seconds == pytest.approx(10, rel=0.01)

    def test_eta_is_hidden_in_the_first_seconds(self):
        gauges = after(run_started(log_dirs=(A,)), *busy(4, per_second=10 << 20, bytes_total=400 << 20))
        assert gauges.values(1004.0).eta_seconds is None

    def test_eta_is_hidden_until_a_hundredth_is_done(self):
        gauges = after(run_started(log_dirs=(A,)), *busy(10, per_second=10 << 20, bytes_total=400 << 30))
        assert gauges.values(1010.0).eta_seconds is None

    def test_eta_is_hidden_when_nothing_moves(self):
        gauges = after(run_started(log_dirs=(A,)), *busy(20, per_second=10 << 20, bytes_total=400 << 20))
        assert gauges.values(1024.0).eta_seconds is not None
        assert gauges.values(1030.0).eta_seconds is None

    def test_eta_is_hidden_while_the_pace_swings(self):
        gauges = after(run_started(log_dirs=(A,)), *busy(20, per_second=10 << 20, bytes_total=4000 << 20))
        for i in range(1, 11):
            gauges(scanned(100 << 20, **at(20 + i)))
        assert gauges.values(1030.0).eta_seconds is None

    def test_segments_from_a_journal_do_not_make_the_eta_too_good(self):
        gauges = after(run_started(log_dirs=(A,)), *busy(0, bytes_total=1000 << 20))
        gauges(segment_recovered(2, size_bytes=500 << 20, **at(0.1)))
        for i in range(1, 21):
            gauges(scanned(10 << 20, **at(i)))
        # The log's own 200 MiB are read inside what the fold already has; 500 MiB are left of 1000.
        assert gauges.values(1020.0).eta_seconds == pytest.approx(50.8, rel=0.02)

    def test_the_run_takes_as_long_as_its_slowest_dir(self):
        gauges = after(run_started())
        slow, fast = (
            busy(20, 5 << 20, bytes_total=400 << 20),
            busy(20, 15 << 20, bytes_total=400 << 20, log_dir=B),
        )
        for pair in zip(slow, fast, strict=True):
            after(*pair, gauges=gauges)
        values = gauges.values(1020.0)
        assert values.eta_seconds == values.log_dirs[0].eta_seconds == pytest.approx(61.6, rel=0.01)
        assert values.log_dirs[1].eta_seconds < 10

    def test_one_dir_that_cannot_be_told_hides_the_eta_of_the_run(self):
        gauges = after(run_started(), *busy(20, 10 << 20, bytes_total=400 << 20), dir_started(B))
        values = gauges.values(1020.0)
        assert values.log_dirs[0].eta_seconds is not None
        assert values.eta_seconds is None

    def test_a_finished_dir_is_not_waited_for(self):
        gauges = after(run_started(), *busy(20, 10 << 20, bytes_total=400 << 20), dir_started(B))
        gauges(LogDirFinished(log_dir=B, duration_ms=1, **at(20)))
        assert gauges.values(1020.0).eta_seconds is not None

    def test_what_small_logs_cost_does_not_rule_before_it_is_measured(self):
        gauges = after(run_started(log_dirs=(A,)), dir_started(log_count=2001, bytes_total=1200 << 20))
        gauges(log_started(recover_bytes=1000 << 20))
        for i in range(1, 21):
            gauges(scanned(20 << 20, **at(i)))
        # 800 MiB at 20 MiB/s, and 2,000 logs, which take at least some CPU
        assert 40 < gauges.values(1020.0).eta_seconds < 40 * 1.2

    @pytest.mark.parametrize("log_s", [0.0, 0.05, 0.4])
    def test_what_small_logs_cost_is_learned_from_them(self, log_s):
        gauges = after(run_started(log_dirs=(A,)), dir_started(log_count=401, bytes_total=600 << 20))
        gauges(log_started(recover_bytes=200 << 20))
        for i in range(1, 21):
            gauges(scanned(10 << 20, **at(i)))
        gauges(log_finished(**at(20)))
        one_s = 0.1 + log_s  # 1 MiB at 10 MiB/s, and what the log costs besides
        for i in range(1, 101):
            log = {"partition": f"small-{i}", "thread_num": 0}
            gauges(log_started(**log, recover_bytes=1 << 20, **at(20 + (i - 1) * one_s)))
            gauges(scanned(1 << 20, partition=f"small-{i}", **at(20 + (i - 1) * one_s + 0.1)))
            gauges(log_finished(**log, **at(20 + i * one_s)))
        now_s = 1020 + 100 * one_s
        assert gauges.values(now_s).eta_seconds == pytest.approx(300 * one_s, rel=0.1)

    def test_log_dirs_that_share_a_pace_take_as_long_as_all_of_them(self):
        started = run_started(has_shared_pace=True)
        large, small = (
            busy(20, 10 << 20, bytes_total=1000 << 20),
            busy(20, 10 << 20, bytes_total=400 << 20, log_dir=B),
        )
        gauges = after(started, *(event for pair in zip(large, small, strict=True) for event in pair))
        values = gauges.values(1020.0)
        # 800 and 200 MiB are left, at 20 MiB/s: the small one takes half of that as long as it lasts
        assert values.eta_seconds == pytest.approx(50, rel=0.05)
        assert [one.eta_seconds for one in values.log_dirs] == pytest.approx([50, 20], rel=0.05)
        gauges(LogDirFinished(log_dir=B, duration_ms=1, **at(20)))
        assert gauges.values(1020.0).eta_seconds == pytest.approx(40, rel=0.05)

    def test_samples_are_bounded_however_long_the_run_is(self):
        gauges = after(run_started(log_dirs=(A,)), *busy(5000, step_s=0.25))
        assert len(gauges._scanned._samples) < 100


class TestRun:
    @pytest.mark.parametrize(
        ("exit_code", "state"),
        [
            (0, "complete"),
            (2, "complete"),
            (4, "incomplete"),
            (1, "failed"),
            (3, "failed"),
            (130, "interrupted"),
            (143, "interrupted"),
        ],
    )
    def test_state_follows_the_run(self, exit_code, state):
        gauges = Gauges()
        assert gauges.values().state == "waiting"
        gauges(run_started(dry_run=True))
        assert gauges.values().state == "listing"
        assert gauges.values().dry_run
        gauges(dir_started())
        assert gauges.values().state == "recovering"
        gauges(RunFinished(exit_code=exit_code, **at(9)))
        values = gauges.values(5000.0)
        assert (values.state, values.exit_code, values.elapsed_seconds) == (state, exit_code, 9.0)

    def test_last_progress_is_that_of_work_not_of_words(self):
        gauges = after(*STARTED, log_started())
        assert gauges.values().last_progress_ms is None
        gauges(scanned(1, **at(3)))
        gauges(Remark(text="still here", **at(8)))
        gauges(corruption(**at(9)))
        assert gauges.values().last_progress_ms == START_MS + 3000
        gauges(log_finished(**at(11)))
        assert gauges.values().last_progress_ms == START_MS + 11_000
        gauges(LogDirHandedOver(log_dir=A, handoff="none", wrote_marker=False, **at(12)))
        assert gauges.values().last_progress_ms == START_MS + 12_000

    def test_own_figures_stay_after_the_end(self):
        values = after(*one_of_each()).values()
        a, b = values.log_dirs
        assert (a.recovered_bytes, a.truncated_bytes, a.truncated_batches) == (423, 477 + 71, 4 + 1)
        assert a.partitions == {"truncated": 1, "refused": 1}
        assert (a.remaining_bytes, a.is_finished, b.is_offline) == (0, True, True)
        assert values.exit_code == 4
        assert values.last_progress_ms == START_MS + 800

    def test_threads_tell_what_they_have_in_hand(self):
        stream = [*STARTED, log_started("t-0"), log_started("t-1", thread_num=1), log_finished("t-0")]
        assert values_of(*stream).threads == {1: "t-1"}

    def test_dirs_are_in_the_order_configured(self):
        values = after(run_started(), dir_started(B), dir_started(A)).values()
        assert [values.log_dir for values in values.log_dirs] == [A, B]


@st.composite
def runs(draw):
    """A run over two dirs: any sizes, cuts, refusals; the events of the dirs interleave at random."""
    plans = {}
    for log_dir in (A, B):
        sizes = st.lists(st.integers(0, 5000), max_size=4)
        logs = draw(st.lists(st.tuples(sizes, st.integers(0, 4), st.booleans()), max_size=4))
        plans[log_dir] = [_log_events(log_dir, i, *log) for i, log in enumerate(logs)], logs
    stream = [run_started()]
    for log_dir, (_, logs) in plans.items():
        segments = [size for sizes, _, _ in logs for size in sizes]
        stream.append(
            dir_started(log_dir, log_count=len(logs), segment_count=len(segments), bytes_total=sum(segments))
        )
    lanes = [
        [event for log in logs for event in log] + [LogDirFinished(log_dir=log_dir, duration_ms=1, **at(0))]
        for log_dir, (logs, _) in plans.items()
    ]
    while lanes:
        lane = draw(st.sampled_from(lanes))
        stream.append(lane.pop(0))
        lanes = [lane for lane in lanes if lane]
    return stream


def _log_events(log_dir, number, sizes, cut_at, is_refused):
    log = {"log_dir": log_dir, "partition": f"t-{number}"}
    yield log_started(**log, unflushed_segment_count=len(sizes), recover_bytes=sum(sizes))
    cut_bytes = 0
    for x, size in enumerate([] if is_refused else sizes):
        yield segment_started(**log, ordinal=x, count=len(sizes), size_bytes=size)
        yield scanned(size, **log)
        is_cut = x == cut_at
        cut_bytes = sum(sizes[x:]) if is_cut else 0
        remaining = 0 if is_cut else len(sizes) - x - 1
        yield segment_recovered(remaining, **log, size_bytes=size, valid_bytes=0 if is_cut else size)
        if is_cut:
            break
    status = "refused" if is_refused else "truncated" if cut_bytes else "recovered"
    yield log_finished(**log, status=status, truncated_bytes=cut_bytes)


@given(runs())
def test_any_run_ends_at_0_and_never_passes_it(stream):
    gauges = Gauges()
    remaining_bytes = {}
    for event in stream:
        gauges(event)
        for values in gauges.values().log_dirs:
            if values.remaining_logs is None:
                continue
            assert 0 <= values.remaining_logs <= values.log_count
            assert all(remaining >= 0 for remaining in values.remaining_segments)
            assert 0 <= values.finished_segments <= values.segment_count
            assert 0 <= values.remaining_bytes <= remaining_bytes.get(values.log_dir, values.bytes_total)
            remaining_bytes[values.log_dir] = values.remaining_bytes
    for values in gauges.values().log_dirs:
        assert (values.remaining_logs, values.remaining_segments, values.remaining_bytes) == (0, (0, 0), 0)
        assert values.finished_segments == values.segment_count
        assert values.is_finished
    gauges(RunFinished(exit_code=0, **at(1)))
    assert all(values.remaining_logs is None for values in gauges.values().log_dirs)


@given(runs())
def test_a_replay_gives_the_same_values_at_every_step(stream):
    first, second = Gauges(), Gauges()
    for event in stream:
        first(event)
        second(event)
        assert first.values(2000.0) == second.values(2000.0)


@given(runs())
def test_bytes_reach_0_with_the_last_log_not_only_with_the_dir(stream):
    """What a log leaves unread comes off when it is finished: the bar must not hang and then jump."""
    gauges = after(*(event for event in stream if not isinstance(event, LogDirFinished)))
    for values in gauges.values().log_dirs:
        assert values.remaining_bytes == 0
        assert values.remaining_logs == 0


class TestChecks:
    """Commands that recover nothing: the same figures, and words of their own for what they do."""

    @pytest.mark.parametrize(
        ("command", "state"),
        [
            ("verify", "verifying"),
            ("archive verify", "verifying"),
            ("archive recover", "recovering"),
            ("archive copy", "copying"),
        ],
    )
    def test_the_state_is_what_the_command_does(self, command, state):
        assert after(*checking(command)[:5]).values().state == state

    def test_segments_of_tasks_in_hand_fall(self):
        assert values_of(*checking()[:4]).remaining_segments == (2, 0)

    def test_logs_are_counted_by_whether_anything_was_found(self):
        values = values_of(*checking())
        assert values.partitions == {"checked": 1, "damaged": 1}
        assert (values.finished_logs, values.finished_segments, values.recovered_bytes) == (2, 4, 0)
        assert after(*checking()).values().state == "complete"


class TestSamples:
    """Somebody else's recovery that is known by its gauges alone."""

    def test_gauges_are_as_they_were_sampled(self):
        values = values_of(*watching()[:5])
        assert (values.remaining_logs, values.remaining_segments) == (8, (2, 1))
        assert (values.log_count, values.finished_logs) == (10, 2)
        assert after(*watching()[:5]).values().last_progress_ms == START_MS + 2000

    def test_the_eta_goes_by_logs(self):
        values = values_of(*watching()[:9])
        assert values.remaining_logs == 4
        # A log in hand counts half for a thread with one of two segments left, and that of the other not at all.
        assert 3.9 <= values.eta_seconds <= 4.3

    def test_a_log_in_hand_counts_by_its_segments(self):
        halves = [sampled(10 - (n // 2), (1 + (n + 1) % 2,), **at(n)) for n in range(8)]
        slow = [sampled(10 - (n // 2), (1,), **at(n)) for n in range(8)]
        by_segments, by_logs = (values_of(*watching()[:2], *stream) for stream in (halves, slow))
        assert by_segments.remaining_logs == by_logs.remaining_logs == 7
        assert by_segments.eta_seconds == pytest.approx(6.5 * 2, rel=0.01)
        assert by_logs.eta_seconds == pytest.approx(7 * 7 / 3, rel=0.01)

    def test_they_end_at_0_and_are_gone(self):
        values = values_of(*watching()[:-1])
        assert (values.remaining_logs, values.remaining_segments, values.is_finished) == (0, (0, 0), True)
        values = values_of(*watching())
        assert (values.remaining_logs, values.remaining_segments, values.finished_logs) == (None, (), 10)

    def test_bytes_come_from_a_run_of_this_tool(self):
        figures = {
            "unrecovered_segments": 3,
            "recovered_bytes": 60,
            "truncated_bytes": 7,
            "truncated_batches": 1,
        }
        stream = [
            sampled(2, (3, 0), remaining_bytes=900, scanned_bytes=100, **figures),
            sampled(2, (3, 0), remaining_bytes=700, scanned_bytes=300, **figures, **at(2)),
        ]
        values = values_of(*STARTED, *stream)
        assert (values.remaining_bytes, values.scanned_bytes, values.recovered_bytes) == (700, 300, 60)
        assert (values.finished_segments, values.truncated_bytes, values.truncated_batches) == (1, 7, 1)
        assert values.bytes_per_second == 100  # what was scanned before it was watched does not count
        assert after(*STARTED, *stream).values().bytes_per_second == 100
