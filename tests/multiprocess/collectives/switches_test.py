"""Gathers and scatters over leaf switches: the map from a file, every root, and maps that fail."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile

from bad_input_test import check_start
from support import LONG, PROBE, RUN, check_clean, environment, expect, files, job, main

INFO = os.path.join(os.path.dirname(RUN), "..", "..", "perf", "allrail-info")
HOST = socket.gethostname()


@contextlib.contextmanager
def folder():
    """With functions to fill it: a file of text, a program."""
    with tempfile.TemporaryDirectory() as path:
        check_clean.before = files() | check_clean.before  # it goes when its test is done

        def write(name, text, mode=0o644):
            full = os.path.join(path, name)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(full, mode)
            return full

        yield path, write


def switch_map(leaf_of, chassis_of=None):
    """JSON that hangs virtual node i of this host on switch leaf_of[i]."""
    switches = []
    for leaf in sorted(set(leaf_of)):
        nodes = [node for node, one in enumerate(leaf_of) if one == leaf]
        entry = {"name": "leaf%d" % leaf, "hosts": ["%s#%d" % (HOST, node) for node in nodes]}
        if chassis_of:
            entry["chassis"] = "rack%d" % chassis_of[leaf]
        switches.append(entry)
    return json.dumps({"switches": switches}, indent=1)


def grid(ranks, nodes, text, every=1, env=None, **words):
    """All calls by topology, with every rank as the root of plain calls, too."""
    with folder() as (_, write):
        values = {"algorithms": "topology,topology-direct", "every": 1 if LONG else every, **words}
        result = job(
            ranks,
            nodes,
            "rooted-grid",
            *("%s=%s" % pair for pair in values.items()),
            env={"ALLRAIL_SWITCH_MAP": write("map.json", text), **(env or {})},
        )
    what = "%d ranks on nodes %s, %s" % (ranks, nodes, text)
    expect(result.code == 0 and "rooted-grid done" in result.out, what, result)
    expect("by %d roots" % ranks in result.out, "%s: every root" % what, result)
    return result


def test_switches_every_root():
    for ranks, nodes, leaf_of in (
        (4, "4", (0, 1, 0, 1)),
        (6, "3+1+2", (0, 1, 0)),
        (6, "cyclic:3", (0, 1, 2)),
        (8, "cyclic:5", (0, 0, 1, 2, 1)),
        (5, "5", (0, 0, 0, 0, 0)),
    ):
        result = grid(ranks, nodes, switch_map(leaf_of))
        expect("switch" not in result.err, "nothing to warn of", result)


def test_switches_chassis():
    for ranks, nodes, leaf_of, chassis_of in (
        (7, "7", (0, 1, 2, 0, 1, 2, 2), (0, 0, 1)),
        (8, "4", (0, 1, 2, 3), (0, 1, 0, 1)),
    ):
        grid(ranks, nodes, switch_map(leaf_of, chassis_of))


def test_switches_in_slices():
    grid(
        6,
        "6",
        switch_map((0, 0, 1, 1, 2, 2)),
        env={"ALLRAIL_NODE_MEMORY": "1M"},
        sizes="100000,700001",
    )


def test_switches_unknown_host():
    """One warning, and the calls are right by the flat form."""
    for leaf_of in ((0, 1, 0), ()):
        result = grid(8, "cyclic:4", switch_map(leaf_of), every=3)
        warnings = [line for line in result.err.splitlines() if "leaf switches" in line]
        unknown = 4 - len(leaf_of)
        expect(
            len(warnings) == 1
            and "of %d of 4 nodes" % unknown in warnings[0]
            and "%s#%d" % (HOST, len(leaf_of)) in warnings[0],
            "one warning that names a node: %s" % warnings,
            result,
        )
    # Set on one rank only, which is the first of the first node.
    with folder() as (_, write):
        path = write("map.json", switch_map((0, 1)))
        script = 'if [ "$PMIX_RANK" != 0 ]; then unset ALLRAIL_SWITCH_MAP; fi; exec "$@"'
        result = job(
            4,
            "2",
            "rooted-grid",
            "algorithms=topology",
            env={"ALLRAIL_SWITCH_MAP": path},
            wrapper=("sh", "-c", script, "sh"),
        )
    expect(result.code == 0 and "is set there" in result.err, "set on one node", result)


def splits(ranks, nodes, columns, text, env=None):
    """The parts of each rank whose small calls go by topology, and what was warned of."""
    with folder() as (_, write):
        result = job(
            ranks,
            nodes,
            "split-switches",
            "columns=%d" % columns,
            env=env or {"ALLRAIL_SWITCH_MAP": write("map.json", text)},
        )
    what = "%d ranks on nodes %s, %s" % (ranks, nodes, text)
    expect(result.code == 0 and "split-switches done" in result.out, what, result)
    found = re.findall(r"^rank (\d+) by topology:(.*)$", result.out, re.MULTILINE)
    parts = {int(rank): [one.strip() for one in of.split(",")[:-1]] for rank, of in found}
    expect(set(parts) == set(range(ranks)), "every rank says it: %s" % parts, result)
    return parts, [line for line in result.err.splitlines() if "leaf switches" in line]


def test_switches_of_splits():
    """The map is read once; communicators that are split off hand it on, also to their own."""
    whole, some = ["reversed", "shuffled"], ["without some"]
    for ranks, nodes, columns, leaf_of, chassis_of, rows, others in (
        # A row has two nodes on either switch, as ranks 1, 2, 4, 5 and 7 have together.
        (8, "8", 4, (0, 0, 1, 1, 0, 0, 1, 1), None, (0, 4), some),
        # Only the row of the nodes on switches 2 and 3 has switches to go by.
        (8, "8", 4, (1, 0, 1, 1, 2, 3, 2, 3), (0, 0, 1, 1), (4,), []),
        # Nodes of two ranks, in a row of every node.
        (8, "cyclic:4", 4, (0, 1, 0, 1), (0, 1), (0, 4), some),
    ):
        parts, warnings = splits(ranks, nodes, columns, switch_map(leaf_of, chassis_of))
        for rank, names in parts.items():
            row = ["row"] if rank - rank % columns in rows else []
            mine = others if rank % 3 != 0 else []
            expect(names == row + whole + mine, "rank %d on %s: %s" % (rank, leaf_of, names))
        expect(not warnings, "nothing to warn of: %s" % warnings)
    # Who knows nothing hands nothing on, and the job has said so already.
    parts, warnings = splits(4, "4", 4, switch_map((0, 1, 0)))
    expect(not any(parts.values()) and len(warnings) == 1, "%s, %s" % (parts, warnings))


def test_switches_from_the_launcher():
    """A launcher that knows the fabric says where each rank hangs; no map is needed then."""
    module = os.path.join(os.path.dirname(PROBE), "switch-peers.so")
    for ranks, nodes, leaf_of, node_of in (
        (8, "8", (0, 0, 1, 1, 0, 0, 1, 1), range(8)),
        (8, "cyclic:4", (0, 1, 0, 1), [rank % 4 for rank in range(8)]),
    ):
        names = ",".join("leaf%d" % leaf_of[node] for node in node_of)
        told, warnings = splits(
            ranks, nodes, 4, names, {"LD_PRELOAD": module, "TEST_SWITCHES": names}
        )
        expect(not warnings, "nothing to warn of: %s" % warnings)
        by_map, _ = splits(ranks, nodes, 4, switch_map(leaf_of))
        expect(any(told.values()) and told == by_map, "told %s, by a map %s" % (told, by_map))
        # The last rank is told nothing: that matters where no other one of its node is.
        some = names[: names.rindex(",")]
        told, warnings = splits(
            ranks, nodes, 4, some, {"LD_PRELOAD": module, "TEST_SWITCHES": some}
        )
        alone = len(set(node_of)) == ranks
        expect(told == by_map or alone and not any(told.values()), "without one: %s" % told)
        expect(len(warnings) == alone, "warnings: %s" % warnings)


def test_switches_bad_file():
    """An error on every rank that says where."""
    with folder() as (path, write):
        for text, words in (
            ('{"switches": [\n  {"name": }]}', ("line 2", "column")),
            ('{"switches": [{"name": "a", "hosts": [7]}]}', ("switches[0].hosts[0]",)),
            ("#\n#\nnonsense\n", ("line 3", "nonsense")),
            ("# a listing of nothing\n", ("line 1", "no host")),
            ("", ("empty",)),
        ):
            name = write("map", text)
            for nodes in ("3", None):
                check_start(
                    "bad-configuration",
                    ("ALLRAIL_SWITCH_MAP", name, *words),
                    nodes=nodes,
                    env={"ALLRAIL_SWITCH_MAP": name},
                )
        missing = os.path.join(path, "missing")
        check_start(
            "bad-configuration", (missing, "cannot be read"), env={"ALLRAIL_SWITCH_MAP": missing}
        )


LISTING = """vendid=0x2c9
devid=0x1003
caguid=0x1
Ca	2 "H-0000000000000001"		# "%s HCA-1"
[1](11) 	"S-00000000000000aa"[1]		# lid 4 lmc 0 "leaf0" lid 2 4xFDR
"""


def test_switches_live():
    """The program is run where there is one, and what it does wrong is one warning."""
    with folder() as (path, write):
        write("listing", LISTING % HOST)
        for script, code, warning in (
            ("cat %s/listing" % path, 0, None),
            ("exit 1", 0, "exit code 1"),
            ("echo nonsense", 0, "line 1"),
        ):
            write("ibnetdiscover", "#!/bin/sh\necho run >>%s/runs\n%s\n" % (path, script), 0o755)
            result = job(
                4,
                "2",
                "rooted-grid",
                "algorithms=topology",
                "every=5",
                env={
                    "ALLRAIL_SWITCH_MAP": "ibnetdiscover",
                    "PATH": path + ":" + os.environ["PATH"],
                },
            )
            expect(result.code == code, "the job runs: " + script, result)
            warnings = [line for line in result.err.splitlines() if "leaf switches" in line]
            expect(len(warnings) == (1 if warning else 0), "warnings: %s" % warnings, result)
            expect(not warning or warning in warnings[0], "says why: %s" % warnings, result)
        with open(os.path.join(path, "runs"), encoding="utf-8") as runs:
            count = len(runs.readlines())
        expect(count == 3 * 2, "it ran once per node and job, not %d times" % count, result)


def info(ranks, nodes, path, *words):
    return subprocess.run(
        [RUN, "-n", str(ranks), "--nodes", nodes, INFO, *words],
        env=environment(ALLRAIL_RAILS="127.0.0.1", ALLRAIL_SWITCH_MAP=path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    ).stdout.decode()


def test_switches_shown():
    with folder() as (_, write):
        path = write("map.json", switch_map((0, 1, 0, 1), (3, 4)))
        text = info(5, "5", write("short.json", switch_map((0, 1))))
        if "Leaf switches: not known" not in text:
            raise AssertionError("an unknown host:\n" + text)
        text = info(4, "4", path)
        found = re.findall(r"^  (leaf\d), chassis (rack\d): nodes (.*)$", text, re.MULTILINE)
        if found != [("leaf0", "rack3", "0 2"), ("leaf1", "rack4", "1 3")]:
            raise AssertionError("switches %s:\n%s" % (found, text))
        text = info(4, "4", path, "explain", "gather", "64")
        if "choice: topology" not in text or "several leaf switches" not in text:
            raise AssertionError("the choice of a job:\n" + text)
    for words, choice in (
        (("--leaves", "0,0,1,1"), "choice: topology with"),
        (("--leaves", "0,0,0,1"), "choice: smp-direct with"),
        ((), "choice: smp-direct with"),
        (("--algorithm", "topology"), "no two leaf switches are known, so it is as smp-binomial"),
        (("--leaves", "0,0,1"), "the leaf switches of 3 nodes are given, and there are 4 nodes"),
        (("--leaves", "0,0,1,x"), "'x' is no number of a switch"),
    ):
        result = subprocess.run(
            [INFO, "explain", "gather", "64", "--ranks", "4", "--nodes", "4", *words],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
        )
        if choice not in result.stdout.decode():
            raise AssertionError("%s: %s" % (words, result.stdout.decode()))


if __name__ == "__main__":
    sys.exit(main(globals()))
