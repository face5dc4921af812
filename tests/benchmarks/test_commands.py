"""Each command at a tiny size, without a broker: that it measures, and what its table and its JSON say."""

import json
import re
import sys

import pytest

from benchmarks import broker, checksums, log_dir_copy, memory, plots, startup, sweep, tiering, watching
from benchmarks.rounds import ratios

pytestmark = pytest.mark.long


def rows(printed):
    """The cells of all Markdown rows, by the first one."""
    cells = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in printed.splitlines()
        if "|" in line
    ]
    return {row[0]: row[1:] for row in cells}


@pytest.mark.long
def test_broker_presets_run_small_and_leave_nothing(tmp_path, capsys):
    options = [
        "--preset",
        "one-partition",
        "--data",
        "2MiB/4KiB",
        "--segments",
        "2",
        "--rounds",
        "1",
        "--no-broker",
    ]
    broker.main([*options, "--scratch", str(tmp_path / "scratch"), "--json", str(tmp_path / "out.json")])
    assert list((tmp_path / "scratch").iterdir()) == []
    document = json.loads((tmp_path / "out.json").read_text())
    result = document["results"]["2MiB/4KiB"]
    sides = {name: one["seconds"] for name, one in result["rounds"][0]["sides"].items()}
    assert list(sides) == ["mapped", "pread", "engine", "engine, threads 1", "process"]
    assert 0 < sides["engine"] < sides["process"]
    table = rows(capsys.readouterr().out)
    goal, median, _, verdict = table["engine: faster than engine, threads 1"]
    ratio = sides["engine, threads 1"] / sides["engine"]
    assert (goal, median, verdict) == ("1.80", f"{ratio:.2f}", "reached" if ratio >= 1.8 else "missed")
    assert table["engine"][0] == f"{sides['engine']:.3f} s"
    phases = {one["phase"]: one for one in result["rounds"][0]["sides"]["engine"]["phases"]}
    assert table["scan"] == [f"{phases['scan']['threadMs']:.0f} ms", f"{phases['scan']['cpuMs']:.0f} ms"]
    assert result["peak_anonymous_bytes"] > 20e6
    assert document["machine"]["cpu_path"]


def test_presets_give_way_to_options():
    options = broker.read_options(["--scratch", "x", "--preset", "clean", "--partitions", "50"])
    setup = broker.setup_of(options)
    assert (options.partitions, options.segments, options.data, setup.is_clean) == (
        50,
        1,
        ["200MiB/4KiB"],
        True,
    )
    assert (setup.heap, setup.with_broker, setup.is_cold, setup.cpu_paths) == ("4g", True, False, ())
    assert broker.setup_of(broker.read_options(["--scratch", "x", "--preset", "cold"])).is_cold


def test_every_goal_of_a_preset_is_measured():
    for name, preset in broker.PRESETS.items():
        options = broker.read_options(["--scratch", "x", "--preset", name])
        sides = ["cat", "cat, one a dir"] if options.cold else ["mapped", "pread"]
        sides += ["engine", "process"] + (
            [f"engine, threads {options.also_threads}"] if options.also_threads else []
        )
        sides += [] if options.no_broker else ["broker"]
        found = ratios({side: [1.0] for side in sides}, preset.goals)
        assert preset.goals == {ratio.key: ratio.goal for ratio in found if ratio.goal is not None}


def test_a_ratio_is_the_median_of_the_rounds_against_the_fastest_read():
    seconds = {
        "mapped": [1.0, 4.0, 3.0],
        "pread": [2.0, 2.0, 9.0],
        "engine": [2.0, 4.0, 3.0],
        "broker": [8.0, 4.0, 9.0],
    }
    found = {
        ratio.key: ratio for ratio in ratios(seconds | {"process": [8.0, 8.0, 8.0]}, {"engine/broker": 5})
    }
    assert (found["engine/plain read"].least, found["engine/plain read"].median) == (0.5, 0.5)
    assert found["engine/plain read"].most == 1.0
    assert (found["engine/broker"].median, found["engine/broker"].goal) == (3.0, 5)
    assert found["process/broker"].median == 1.0


PATH = checksums.cpu.choose().name.lower().replace("_", "-")
TINY_CHECKSUMS = f"--paths {PATH} --rounds 1 --quanta 1 --quantum-bytes 100000 --without rust".split()


def test_checksums_prints_a_row_of_each_size(tmp_path, capsys):
    checksums.main([*TINY_CHECKSUMS, "--without", "java", "--json", str(tmp_path / "out.json")])
    table = rows(capsys.readouterr().out)
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    for name, result in zip(["1 KiB", "64 KiB", "1 MiB"], results, strict=True):
        assert table[name] == [f"{result['median'][PATH]:.1f}", "", ""]


@pytest.mark.java
def test_checksums_agrees_with_java(tmp_path, capsys):
    checksums.main([*TINY_CHECKSUMS, "--json", str(tmp_path / "out.json")])
    table = rows(capsys.readouterr().out)
    for result in json.loads((tmp_path / "out.json").read_text())["results"]:
        ratio = result["ratio"][PATH]
        assert ratio == result["median"][PATH] / result["median"]["java"]
        verdict = "reached" if ratio >= checksums.GOAL else "missed"
        assert table[result["size"]][-2:] == [f"{PATH} {ratio:.2f}", verdict]


def test_checksums_does_not_time_what_is_wrong():
    right = checksums.our_side(checksums.cpu.choose())

    def wrong(*asked):
        seconds, total = right(*asked)
        return seconds, total + 1

    with pytest.raises(SystemExit, match="the checksums of 1024 bytes differ"):
        checksums.measure_size({"a": right, "b": wrong}, 1024, 2, rounds=1, quantum_bytes=4096, quanta=1)


def test_checksums_is_measured_by_the_better_of_the_others():
    assert checksums.ratios([{"us": 30.0, "rust": 60.0, "java": 40.0}], "us", ["rust", "java"]) == [0.5]


def test_checksums_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(checksums.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="no `cargo` on the PATH: install Rust"):
        checksums.main([])
    with pytest.raises(SystemExit, match="no `java` on the PATH"):
        checksums.main(["--without", "rust"])


def test_startup_compares_whole_processes(monkeypatch, tmp_path, capsys):
    assert startup.run_seconds("pass") > 0
    assert startup.run_seconds("help") > 0
    assert [startup.COMMANDS[name][1:] for name in ("pass", "numba")] == [
        ["-c", "pass"],
        ["-c", "import numba"],
    ]
    times = {"pass": 0.01, "numba": 0.2, "help": 0.09, "recover": 0.39}
    monkeypatch.setattr(startup, "run_seconds", times.__getitem__)
    startup.main(["--rounds", "2", "--json", str(tmp_path / "out.json")])
    table = rows(capsys.readouterr().out)
    assert table["recover / numba"] == ["at most 2", "1.95", "1.95 .. 1.95", "reached"]
    assert table["help / pass"] == ["at most 8", "9.00", "9.00 .. 9.00", "missed"]
    assert len(json.loads((tmp_path / "out.json").read_text())["rounds"]) == 2


def test_memory_holds_peaks_against_bounds(tmp_path, capsys):
    options = ["--case", "batch", "--scale", "0.001", "--json", str(tmp_path / "out.json")]
    memory.main(["--scratch", str(tmp_path / "scratch"), *options])
    assert list((tmp_path / "scratch").iterdir()) == []
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [one["case"] for one in results] == ["170 B batches", "65536 B batches"]
    for one in results:
        assert 20e6 < one["peak_bytes"] < one["bound_bytes"]
        assert one["live_producers"] > 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| batch")]
    assert [f"{results[0]['peak_bytes'] / 1e6:.0f} MB" in lines[0], "held" in lines[1]] == [True, True]


@pytest.mark.parametrize(
    ("peaks", "verdicts", "each", "code"),
    [
        ([100e6, 110e6, 280e6], ["held", "held", "held"], "1,010, 1,802", None),
        ([100e6, 110e6, 310e6], ["held", "held", "BROKEN"], "1,010, 2,102", 1),
        ([20e6, 40e6, 240e6], ["held", "held", "held"], "2,020, 2,202", 1),
    ],
)
def test_memory_fails_where_a_bound_is_broken(monkeypatch, tmp_path, capsys, peaks, verdicts, each, code):
    found = iter(peaks)

    def measured(case, scratch, rounds):
        producers = case.shape.producers
        return {
            **{
                "axis": case.axis,
                "case": case.name,
                "threads": 1,
                "log_bytes": 1,
                "live_producers": producers,
            },
            **{"peak_bytes": next(found), "bound_bytes": 300e6},
        }

    monkeypatch.setattr(memory, "measure", measured)
    options = ["--scratch", str(tmp_path), "--case", "producers"]
    if code is None:
        memory.main(options)
    else:
        with pytest.raises(SystemExit) as exit_:
            memory.main(options)
        assert exit_.value.code == code
    printed = capsys.readouterr().out
    assert re.findall(r"\| (held|BROKEN) \|", printed) == verdicts
    assert f"Bytes for each live producer: {each};" in printed


def test_memory_counts_the_producers_of_the_partitions_at_work():
    case = memory.cases()[0]
    shape = case.shape

    class Made:
        producer_count = 880

    assert (shape.partitions, shape.dirs, case.threads) == (8, 2, 1)
    assert memory.live_producers(case, Made()) == 220
    assert memory.bound_bytes(case, 220) == 250_000_000 + 2 * 32_000_000 + 220 * memory.PRODUCER_BYTES


def test_a_sweep_can_be_drawn(tmp_path, capsys):
    out = tmp_path / "out.json"
    options = ["--over", "threads", "--values", "1", "--bytes", "4MiB", "--rounds", "1", "--no-broker"]
    sweep.main(["--scratch", str(tmp_path / "scratch"), "--json", str(out), *options])
    document = json.loads(out.read_text())
    (point,) = document["sweeps"]["threads"]
    seconds = point["median_seconds"]
    assert rows(capsys.readouterr().out)["1"][2] == f"{point['log_bytes'] / seconds['engine'] / 1e9:.2f}"
    (chart,) = plots.charts(document)
    assert chart.lines["engine"] == [(1, point["log_bytes"] / seconds["engine"] / 1e9)]
    fastest = min(seconds["mapped"], seconds["pread"])
    assert chart.lines["plain read"] == [(1, point["log_bytes"] / fastest / 1e9)]
    assert (chart.up, chart.is_across_logarithmic) == ("GB/s", False)


def test_the_cost_of_partitions_is_told_and_drawn_by_partition(capsys):
    point = {
        "value": 100,
        "log_bytes": 5,
        "partitions": 100,
        "median_seconds": {"mapped": 1, "engine": 2, "broker": 3},
    }
    sweep.print_table("partitions", [point])
    assert rows(capsys.readouterr().out)["100"] == ["10.00", "20.00", "30.00"]
    (chart,) = plots.charts({"sweeps": {"partitions": [point]}})
    assert chart.lines == {"engine": [(100, 20.0)], "broker": [(100, 30.0)]}


def test_plots_say_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (tmp_path / "in.json").write_text(json.dumps({"sweeps": {"threads": []}}))
    with pytest.raises(SystemExit, match="matplotlib is needed: pip install"):
        plots.main([str(tmp_path / "in.json"), "--into", str(tmp_path)])


def test_watching_asks_while_the_runs_go_on(tmp_path, capsys):
    options = ["--bytes", "8MiB", "--runs", "40", "--rounds", "1", "--port", "19405"]
    watching.main([*options, "--scratch", str(tmp_path / "scratch"), "--json", str(tmp_path / "out.json")])
    assert not (tmp_path / "scratch").exists()
    (round_,) = json.loads((tmp_path / "out.json").read_text())["rounds"]
    assert sorted(round_) == sorted(watching.SIDES)
    assert round_["nobody"]["watching_cpu_seconds"] == round_["nobody"]["requests"] == 0
    assert 0 < round_["textfile"]["watching_cpu_seconds"] < round_["textfile"]["cpu_seconds"]
    for side in ("scrape", "page", "all"):
        assert 0 < round_[side]["watching_cpu_seconds"] < round_[side]["cpu_seconds"]
        assert round_[side]["requests"] > 0
    table = rows(capsys.readouterr().out)
    assert table["scrape"][6] == str(round_["scrape"]["requests"])


def test_a_copy_is_measured_beside_cp(tmp_path, capsys):
    options = ["--bytes", "4MiB", "--batch-bytes", "4KiB", "--rounds", "2", "--no-broker"]
    out = tmp_path / "out.json"
    code = log_dir_copy.main(["--scratch", str(tmp_path / "scratch"), *options, "--json", str(out)])
    assert list((tmp_path / "scratch").iterdir()) == []
    found = json.loads(out.read_text())
    assert found == json.loads(capsys.readouterr().out)
    rates = found["bytes_per_second"]
    first, second = (one / other for one, other in zip(rates["copy"], rates["cp"], strict=True))
    assert found["ratio"] == (first + second) / 2
    assert code == (0 if found["ratio"] >= log_dir_copy.GOAL else 1)
    assert found["peak_bytes"] > 20e6


def test_the_figures_of_tiered_storage_are_all_known_in_what_is_made_for_them(tmp_path, capsys):
    assert tiering.main(["--scratch", str(tmp_path), "--segments", "40", "--partitions", "2"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"metrics", "retention"}
    assert list(tmp_path.iterdir()) == []
