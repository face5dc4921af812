"""What a new release of Kafka does differently: the first thing to ask of it, and its answer in cases and classes.

    python -m tests.releases 4.3.1 4.4.0 [--cases 2000] [--seed 0] [--json FILE]

The LogManager of each version loads the same damaged log dirs, all edge cases by hand first, then cases by seed, and
what they leave is compared file by file. Then the classes that docs/reference/recovery-rules.md names are compared
between the jars: their members and their code, by javap. Exit code 1 where anything differs; CONTRIBUTING.md says what
comes next.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tests import ROOT
from tests.brokers import Oracle, kafka_jars
from tests.damage.campaign import Campaign, case_names, memory_folder
from tests.damage.edge_cases import CASES
from tests.damage.release_rules import DAMAGES
from tests.logs.edge_log import make_log, make_pristine, sample_of
from tests.logs.samples import Sample, differences, tree_of, write_tree

RULES = ROOT / "docs/reference/recovery-rules.md"
_NAMED = re.compile(r"`([A-Z]\w+)(?:\.\w+)?`")
_CONSTANT = re.compile(r"#\d+")
_PACKAGES = re.compile(r"\b(?:[a-z]\w*[./])+(?=[A-Z])")
"""Of a class name: a class that has moved is not another one for those that use it."""


class Difference(NamedTuple):
    """One case that two versions end differently."""

    case: str
    damages: tuple[str, ...]
    how: tuple[str, ...]


def different_cases(
    older: Oracle, newer: Oracle, campaign: Campaign, names: list[str]
) -> Iterator[Difference]:
    """Yield the cases of *names* after which the log dirs, or what becomes of the broker, are not the same."""
    for name in names:
        with campaign.folder() as work:
            sample, victim, damages = campaign.damaged(name, work)
            before = {log_dir.name: tree_of(log_dir) for log_dir in victim.log_dirs}
            if how := _how_different(older, newer, sample, before, work):
                yield Difference(name, tuple(damages), how)


def different_rules(older: Oracle, newer: Oracle, root: Path) -> Iterator[Difference]:
    """Yield the same of all edge cases, and of the damage on which releases are known to differ."""
    pristine = make_pristine(older, root / "pristine" / "d")
    cases = [(str(edge), edge.state, edge.damage, edge.configs) for edge in CASES]
    cases += [(f"{name}-{state}", state, damage, {}) for name, damage in DAMAGES.items() for state in "CFU"]
    for name, state, damage, configs in cases:
        log = make_log(pristine, root / "case" / "d", state)
        damage(log)
        before = {log.log_dir.name: tree_of(log.log_dir)}
        sample = sample_of(log, topic_configs={"t": configs})
        if how := _how_different(older, newer, sample, before, root / "case"):
            yield Difference(name, (), how)
        shutil.rmtree(root / "case")


def _how_different(
    older: Oracle, newer: Oracle, sample: Sample, before: dict[str, dict[str, bytes]], work: Path
) -> tuple[str, ...]:
    outcomes, trees = zip(
        *(_loaded(oracle, sample, before, work / oracle.release) for oracle in (older, newer)), strict=True
    )
    if outcomes[0] != outcomes[1]:
        return (
            f"{outcomes[0]}, then {outcomes[1]}",
        )  # of a broker that halts the tree is a matter of threads
    if outcomes[0] != "loaded":
        return ()
    return tuple(
        f"{log_dir}/{line}"
        for log_dir in before
        for line in differences(trees[0][log_dir], trees[1][log_dir])
    )


def _loaded(
    oracle: Oracle, sample: Sample, trees: dict[str, dict[str, bytes]], place: Path
) -> tuple[str, dict[str, dict[str, bytes]]]:
    for name, tree in trees.items():
        write_tree(tree, place / name)
    outcome = oracle.load(
        [place / name for name in trees],
        now_ms=sample.now_ms,
        properties=sample.properties,
        topic_configs=sample.topic_configs,
        may_hang=any(path.endswith("|") for tree in trees.values() for path in tree),
    )
    left = {name: tree_of(place / name) for name in trees}
    shutil.rmtree(place)
    return outcome.outcome, left


def changed_classes(older: str, newer: str) -> dict[str, str]:
    """How the classes that the rules name differ between two versions, by simple name; without those that do not."""
    names = sorted(set(_NAMED.findall(RULES.read_text(encoding="utf-8"))))
    found = [_classes(version, names) for version in (older, newer)]
    codes = [_disassembled(version, places) for version, places in zip((older, newer), found, strict=True)]
    changed = {}
    for name in names:
        places = [each.get(name) for each in found]
        if places == [None, None]:
            continue  # not a class of Kafka
        if None in places:
            changed[name] = f"only in {older if places[1] is None else newer}"
            continue
        is_moved = places[0] != places[1]
        if codes[0][name] != codes[1][name]:
            changed[name] = "changed, and moved" if is_moved else "changed"
        elif is_moved:
            changed[name] = f"moved from {places[0]} to {places[1]}"
    return changed


def _classes(version: str, names: list[str]) -> dict[str, str]:
    """The full names of classes by simple name; of several the one with the most code."""
    wanted, found = set(names), dict[str, tuple[int, str]]()
    for jar in sorted(kafka_jars(version).glob(f"kafka*-{version}.jar")):
        for entry in zipfile.ZipFile(jar).infolist():
            place = entry.filename.removesuffix(".class")
            simple = place.rpartition("/")[2]
            if place != entry.filename and simple in wanted:
                found[simple] = max(found.get(simple, (0, "")), (entry.file_size, place.replace("/", ".")))
    return {simple: place for simple, (_, place) in found.items()}


def _disassembled(version: str, places: Mapping[str, str]) -> dict[str, list[str]]:
    """The members and code of classes by simple name, without numbers of constants and names of packages."""
    command = ["javap", "-p", "-c", "-cp", f"{kafka_jars(version)}/*", *places.values()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    classes = re.split(r"^Compiled from .*\n", shown, flags=re.MULTILINE)[1:]
    return {
        name: [_PACKAGES.sub("", _CONSTANT.sub("#", line)).strip() for line in code.splitlines()]
        for name, code in zip(places, classes, strict=True)
    }


def main() -> int:
    """Compare two versions, and print what differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.releases", description=main.__doc__)
    parser.add_argument("older")
    parser.add_argument("newer")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that differs")
    arguments = parser.parse_args()
    names = [
        name for name in case_names(None, arguments.seed, arguments.cases) if not name.startswith("whole")
    ]
    found = []
    with (
        memory_folder() as root,
        Oracle(version=arguments.older) as older,
        Oracle(version=arguments.newer) as newer,
    ):
        campaign = Campaign(older, root)
        for difference in chain(
            different_rules(older, newer, root), different_cases(older, newer, campaign, names)
        ):
            found.append(difference)
            print(
                "\n    ".join([f"{difference.case}:", *difference.damages, *difference.how[:8]]), flush=True
            )
    classes = changed_classes(arguments.older, arguments.newer)
    for name, how in classes.items():
        print(f"{name}: {how}")
    count = len(names) + len(CASES) + 3 * len(DAMAGES)
    print(f"{len(found)} of {count} cases differ, and {len(classes)} classes that the rules name")
    if arguments.json:
        document = {"cases": count, "different": [one._asdict() for one in found], "classes": classes}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if found or classes else 0


if __name__ == "__main__":
    sys.exit(main())
