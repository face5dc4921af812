import json
import random
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segfmt.java_hash_map import (
    TREEIFY_THRESHOLD,
    JavaLongMap,
    computed_hash_map_order,
    java_hash_map_order,
    long_hash,
)
from segfmt.producer_snapshot import read_producer_snapshot
from tests.brokers.jars import oracle_classes
from tests.damage.mutilations.producers import crowded_ids
from tests.segfmt.golden_files import golden

HISTORIES = json.loads(golden("java-hash-map.json"))
COLLIDING = st.integers(0, 60).map(lambda high: high << 32 | high ^ 5)  # one hash for all
LONG = st.integers(-(2**63), 2**63 - 1)


def follow(java_map, step):
    """Do a step of a history: "p5" puts 5, "c5" computes it if it is absent."""
    if step[0] == "p":
        java_map[int(step[1:])] = 0
    else:
        java_map.compute_if_absent(int(step[1:]), 0)


@pytest.mark.parametrize("history", HISTORIES, ids=range(len(HISTORIES)))
def test_order_is_that_of_java(history):
    """Trees and their splits, put and computeIfAbsent: against java.util.HashMap itself."""
    java_map = JavaLongMap()
    for step in history:
        if isinstance(step, list):
            assert java_map.keys() == step
        else:
            follow(java_map, step)


def test_histories_reach_trees():
    """The golden file would prove little if no bucket in it ever became a tree."""
    collisions = 0
    for history in HISTORIES:
        hashes = [long_hash(key) for key in {int(step[1:]) for step in history if isinstance(step, str)}]
        collisions += max(hashes.count(one) for one in set(hashes)) > 8
    assert collisions >= 3


def orders_of_java(histories):
    """The orders in which java.util.HashMap iterates after each of *histories*, lists of steps."""
    done = subprocess.run(
        ["java", "-cp", str(oracle_classes()), "HashMapOrders"],
        input="".join(" ".join(steps) + "\n" for steps in histories),
        capture_output=True,
        text=True,
        check=True,
    )
    return [[int(key) for key in line.split()] for line in done.stdout.splitlines()]


@pytest.mark.java
def test_computed_order_is_that_of_java():
    """Also where the eighth key of a bucket makes a tree, and where the last key is one too many for the table."""
    rng = random.Random(7)
    lists = [crowded_ids(rng, rng.choice([1, 8, 9, 13, 14, 25, 26, 49, 50, 100, 300])) for _ in range(1500)]
    lists = [keys[: rng.choice([13, 25, 49, 97, 1000])] for keys in lists]
    cases = [(keys, is_followed) for keys in lists for is_followed in (False, True)]
    histories = [[f"c{key}" for key in keys] + [f"c{keys[-1]}"] * is_followed for keys, is_followed in cases]
    orders = orders_of_java(histories)
    trees = 0
    for (keys, is_followed), order in zip(cases, orders, strict=True):
        places = computed_hash_map_order(np.array(keys, dtype=np.int64), is_followed=is_followed)
        assert [keys[place] for place in places] == order, (keys, is_followed)
        hashes = [long_hash(key) for key in keys]
        trees += max(map(hashes.count, hashes)) > TREEIFY_THRESHOLD
    differing = sum(one != other for one, other in zip(orders[::2], orders[1::2], strict=True))
    assert trees > 100
    assert differing > 10


@pytest.mark.java
def test_order_of_any_mixture_is_that_of_java():
    rng = random.Random(8)
    histories = []
    for _ in range(500):
        keys = crowded_ids(rng, rng.choice([9, 20, 60, 150]))
        histories.append([f"{rng.choice('ccp')}{rng.choice(keys)}" for _ in range(2 * len(keys))])
    for steps, order in zip(histories, orders_of_java(histories), strict=True):
        java_map = JavaLongMap()
        for step in steps:
            follow(java_map, step)
        assert java_map.keys() == order, steps


@pytest.mark.parametrize("name", ["many-producers.snapshot", "transactions.snapshot", "few.snapshot"])
def test_real_snapshot_is_in_the_order_of_a_hash_map(name):
    keys = read_producer_snapshot(golden(name))["producer_id"].astype(np.int64)
    assert java_hash_map_order(keys).tolist() == list(range(len(keys)))


def test_real_snapshot_of_many_producers_is_in_no_simpler_order():
    keys = read_producer_snapshot(golden("many-producers.snapshot"))["producer_id"].tolist()
    assert keys != sorted(keys)


@settings(max_examples=60)
@given(st.lists(LONG | COLLIDING | st.integers(0, 40).map(lambda k: k * 4096), unique=True, max_size=200))
def test_order_of_all_at_once_is_that_of_one_by_one(keys):
    java_map = JavaLongMap()
    for key in keys:
        java_map[key] = None
    order = java_hash_map_order(np.array(keys, dtype=np.int64))
    assert [keys[place] for place in order] == java_map.keys()


@pytest.mark.parametrize("count", [1, 47, 48, 49, 50, 96, 97, 98])
def test_a_tree_that_a_greater_table_takes_apart_leaves_its_order(count):
    """Its halves have no more than eight keys each: nothing shows that there was a tree."""
    crowd, others = [number * 64 + 3 for number in range(16)], [key for key in range(100) if key % 64 != 3]
    rng = random.Random(count)
    for _ in range(50):
        keys = [*crowd, *others[: max(0, count - len(crowd))]][:count]
        rng.shuffle(keys)
        java_map = JavaLongMap()
        for key in keys:
            java_map[key] = None
        order = java_hash_map_order(np.array(keys, dtype=np.int64))
        assert [keys[place] for place in order] == java_map.keys(), keys


@pytest.mark.java
def test_order_of_all_at_once_is_that_of_java():
    rng = random.Random(9)
    sizes = [9, 13, 25, 48, 49, 50, 60, 97, 98, 200, 400]
    lists = [crowded_ids(rng, rng.choice(sizes))[: rng.choice(sizes)] for _ in range(1500)]
    orders = orders_of_java([[f"p{key}" for key in keys] for keys in lists])
    for keys, order in zip(lists, orders, strict=True):
        places = java_hash_map_order(np.array(keys, dtype=np.int64))
        assert [keys[place] for place in places] == order, keys


@pytest.mark.parametrize("count", [0, 1, 12, 13, 48, 49, 50, 97, 5000])
def test_order_of_small_numbers_is_ascending(count):
    keys = np.random.default_rng(count).permutation(count).astype(np.int64)
    assert keys[java_hash_map_order(keys)].tolist() == list(range(count))


def test_capacity_doubles_beyond_three_quarters():
    java_map = JavaLongMap()
    assert java_map.capacity == 0
    sizes = []
    for key in range(50):
        java_map[key] = key
        sizes.append(java_map.capacity)
    assert (sizes[0], sizes[11], sizes[12], sizes[23], sizes[24], sizes[48]) == (16, 16, 32, 32, 64, 128)


def test_ninth_key_of_a_bucket_doubles_a_small_table():
    java_map = JavaLongMap()
    for key in range(9):
        java_map[key * 1024] = key
    assert java_map.capacity == 32


def test_map_keeps_values():
    java_map = JavaLongMap()
    for key in (5, 21, 37):
        java_map[key] = str(key)
    java_map[5] = "again"
    assert java_map.items() == [(5, "again"), (21, "21"), (37, "37")]
    assert (java_map[21], java_map.get(6), 37 in java_map, list(java_map)) == ("21", None, True, [5, 21, 37])


@given(st.lists(LONG))
def test_map_agrees_with_dict(keys):
    java_map, plain = JavaLongMap(), {}
    for number, key in enumerate(keys):
        java_map[key] = plain[key] = number
    assert dict(java_map.items()) == plain
