"""The twin of Kafka's LeaderEpochFileCache; names as in LeaderEpochFileCacheTest where they fit."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.load.leader_epochs import LeaderEpochs


class TestFromTheFile:
    def test_entries_in_order_are_kept(self):
        epochs = LeaderEpochs([(0, 0), (3, 10), (4, 20)])
        assert epochs.entries == [(0, 0), (3, 10), (4, 20)]
        assert epochs.latest_epoch == 4

    def test_an_empty_file_has_no_latest_epoch(self):
        assert LeaderEpochs().latest_epoch is None
        assert LeaderEpochs().entries == []

    def test_an_earlier_entry_with_a_later_start_drops_out_in_memory_only(self):
        epochs = LeaderEpochs([(0, 0), (1, 50), (2, 30)])
        assert epochs.entries == [(0, 0), (2, 30)]
        assert not epochs.is_changed

    def test_an_entry_with_the_same_start_replaces_the_one_before(self):
        assert LeaderEpochs([(0, 0), (1, 0), (2, 0)]).entries == [(2, 0)]

    def test_a_lower_epoch_behind_drops_the_higher_ones(self):
        assert LeaderEpochs([(0, 0), (5, 10), (6, 20), (3, 30)]).entries == [(0, 0), (3, 30)]

    def test_the_first_start_of_an_epoch_counts(self):
        assert LeaderEpochs([(2, 10), (2, 15)]).entries == [(2, 10)]

    def test_an_earlier_start_of_the_latest_epoch_counts_more(self):
        assert LeaderEpochs([(1, 5), (2, 10), (2, 7)]).entries == [(1, 5), (2, 7)]


class TestObserve:
    def test_a_higher_epoch_is_assigned(self):
        epochs = LeaderEpochs([(0, 0)])
        epochs.observe(2, 7)
        assert epochs.entries == [(0, 0), (2, 7)]
        assert epochs.is_changed

    def test_the_same_or_a_lower_epoch_is_passed_over(self):
        epochs = LeaderEpochs([(0, 0), (2, 7)])
        epochs.observe(2, 3)
        epochs.observe(1, 9)
        assert epochs.entries == [(0, 0), (2, 7)]
        assert not epochs.is_changed

    def test_the_first_epoch_of_a_log_without_any(self):
        epochs = LeaderEpochs()
        epochs.observe(0, 12)
        assert epochs.entries == [(0, 12)]

    def test_a_higher_epoch_at_an_earlier_offset_drops_those_behind(self):
        epochs = LeaderEpochs([(0, 0), (1, 10), (2, 20)])
        epochs.observe(3, 10)
        assert epochs.entries == [(0, 0), (3, 10)]


class TestTruncate:
    def test_from_the_end_drops_what_starts_at_or_behind(self):
        epochs = LeaderEpochs([(2, 6), (3, 8), (4, 11)])
        epochs.truncate_from_end(8)
        assert epochs.entries == [(2, 6)]
        assert epochs.is_changed

    def test_from_the_end_behind_all_is_no_change(self):
        epochs = LeaderEpochs([(2, 6), (3, 8)])
        epochs.truncate_from_end(9)
        assert epochs.entries == [(2, 6), (3, 8)]
        assert not epochs.is_changed

    def test_from_the_end_at_zero_drops_all(self):
        epochs = LeaderEpochs([(2, 0)])
        epochs.truncate_from_end(0)
        assert epochs.entries == []
        assert epochs.is_changed

    def test_from_the_end_before_zero_is_ignored(self):
        epochs = LeaderEpochs([(2, 0)])
        epochs.truncate_from_end(-1)
        assert epochs.entries == [(2, 0)]

    def test_from_the_start_moves_the_last_one_before(self):
        epochs = LeaderEpochs([(2, 6), (3, 8), (4, 11)])
        epochs.truncate_from_start(9)
        assert epochs.entries == [(3, 9), (4, 11)]
        assert epochs.is_changed

    def test_from_the_start_exactly_at_an_entry_rewrites_the_file(self):
        epochs = LeaderEpochs([(2, 6), (3, 8)])
        epochs.truncate_from_start(6)
        assert epochs.entries == [(2, 6), (3, 8)]
        assert epochs.is_changed

    def test_from_the_start_before_all_is_no_change(self):
        epochs = LeaderEpochs([(2, 6), (3, 8)])
        epochs.truncate_from_start(5)
        assert epochs.entries == [(2, 6), (3, 8)]
        assert not epochs.is_changed

    def test_from_the_start_behind_all_keeps_the_latest(self):
        epochs = LeaderEpochs([(2, 6), (3, 8)])
        epochs.truncate_from_start(100)
        assert epochs.entries == [(3, 100)]

    def test_clear_asks_for_an_empty_file(self):
        epochs = LeaderEpochs([(2, 6)])
        epochs.clear()
        assert epochs.entries == []
        assert epochs.is_changed


QUICK = settings(derandomize=True)
PAIRS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)))


@QUICK
@given(PAIRS)
def test_epochs_and_their_starts_always_ascend(pairs):
    entries = LeaderEpochs(pairs).entries
    for (epoch, start), (next_epoch, next_start) in itertools.pairwise(entries):
        assert epoch < next_epoch
        assert start < next_start


@QUICK
@given(PAIRS)
def test_what_was_kept_is_kept_again(pairs):
    entries = LeaderEpochs(pairs).entries
    assert LeaderEpochs(entries).entries == entries


@QUICK
@given(PAIRS, st.integers(0, 100))
def test_truncating_twice_is_truncating_once(pairs, offset):
    epochs = LeaderEpochs(pairs)
    for truncate in (epochs.truncate_from_end, epochs.truncate_from_start):
        truncate(offset)
        entries = epochs.entries
        truncate(offset)
        assert epochs.entries == entries
