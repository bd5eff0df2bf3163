"""What allrail-bench says of every collective: roots, rates, late ranks, results in place.

SCRIPT ALLRAIL_RUN ALLRAIL_BENCH BEHAVIOUR
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launcher"))

from harness import BEHAVIOUR, environment, expect, job

COLLECTIVES = ("allgather", "gather", "scatter", "broadcast", "alltoall")
ROOTED = ("gather", "scatter", "broadcast")
RATES_MBIT = (500, 250)
BYTES_PER_US = sum(RATES_MBIT) / 8


def rows_of(collective, nodes, *words, sizes=(8, 20000), calls=4):
    """The rows of the JSON file, after a look at what all of them must say."""
    ranks = sum(nodes)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "results.json")
        words += ("--sizes", ",".join(str(size) for size in sizes))
        words += ("--iterations", str(calls), "--json", file)
        layout = "+".join(str(count) for count in nodes) if len(nodes) > 1 else "1"
        result = job(
            ranks,
            collective,
            *words,
            options=["--nodes", layout],
            limit=150,
            env=environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2"),
        )
        what = "%s on nodes %s: %s" % (collective, layout, " ".join(words))
        expect(result.code == 0, what, result)
        with open(file, encoding="utf-8") as stream:
            rows = json.load(stream)["results"]
    # By all algorithms, sizes of one follow those of another.
    expect({row["bytes_per_rank"] for row in rows} == set(sizes), what, result)
    for row in rows:
        expect(row["collective"] == collective and row["ranks"] == ranks, what, result)
        expect(row["wrong_bytes"] == 0, "wrong bytes, " + what, result)
        expect((row["blocks"] is None) == (collective in COLLECTIVES), "blocks, " + what, result)
    return rows


def busiest_bytes(collective, nodes, root, size):
    """What the rails of one node cannot do without, by a list of who sends what to whom."""
    node_of = [node for node, count in enumerate(nodes) for _ in range(count)]
    ranks = range(len(node_of))
    if collective == "broadcast":
        return size
    pairs = {
        "allgather": [(one, node) for one in ranks for node in range(len(nodes))],
        "alltoall": [(one, node_of[other]) for one in ranks for other in ranks],
        "gather": [(one, node_of[root]) for one in ranks],
        "scatter": [(root, node_of[one]) for one in ranks],
    }[collective]
    arriving, leaving = [0] * len(nodes), [0] * len(nodes)
    for sender, node in pairs:
        if node_of[sender] != node:
            arriving[node] += size
            # A block of an allgather leaves its node once at least, whoever passes it on.
            leaving[node_of[sender]] += 0 if collective == "allgather" else size
    return max(arriving + leaving)


def check_limits(collective, nodes, root):
    words = ("--rail-rates", ",".join(str(rate) for rate in RATES_MBIT))
    if collective in ROOTED:
        words += ("--root", str(root))
    for row in rows_of(collective, nodes, *words):
        must_pass = busiest_bytes(collective, nodes, root, row["bytes_per_rank"])
        which = "p50" if collective == "allgather" else "p50_slowest_rank"
        percent = 100 * must_pass / BYTES_PER_US / row["time_us"][which]
        close = abs(row["rail_limit_percent"] - percent) <= 0.001 * percent
        expect(close, "%s of %s, root %d: not %s" % (row, nodes, root, percent))


def test_limits():
    """The share of the limit is of the busiest node, whichever rank 0 and the root are on."""
    for collective in COLLECTIVES:
        check_limits(collective, (1, 3), 2)
        check_limits(collective, (3, 1), 0)
        check_limits(collective, (2, 1, 1), 3)


def test_no_limits():
    """Without rates or without rails there is none."""
    for words in ((), ("--rail-rates", "500,250")):
        nodes = (3,) if words else (2, 1)
        for row in rows_of("broadcast", nodes, *words):
            expect(row["rail_limit_percent"] is None, "%s on %s" % (row, nodes))


def test_roots_and_results_in_place():
    """Every rank as the root, from and into the block that the other buffer has of it."""
    for collective in COLLECTIVES:
        for root in range(3) if collective in ROOTED else (0,):
            words = ("--mode", "streaming")
            if collective != "broadcast":  # which has one buffer
                words += ("--in-place",)
            if collective in ROOTED:
                words += ("--root", str(root))
            for row in rows_of(collective, (2, 1), *words):
                expect(row["mode"] == "streaming" and row["skew"] is None, str(row))


def test_late_ranks():
    """With --skew the last rank to come is late by what it drew, and no time is negative."""
    for collective in COLLECTIVES:
        for row in rows_of(collective, (2, 1), "--skew", "2ms", "--seed", "5"):
            skew = row["skew"]
            expect(skew["most_us"] == 2000 and skew["seed"] == 5, str(row))
            after = skew["from_last_us"]
            expect(0 < skew["last_arrival_us"] and 0 <= after["min"] <= after["max"], str(row))


def test_no_such_root():
    """Every rank would be told so; it is said once, with the ranks that there are."""
    for collective in ROOTED:
        result = job(2, collective, "--root", "2", limit=60, env=environment())
        expect(result.code not in (0, None), collective + " has a root that is no rank", result)
        expect("root" in result.err and "2" in result.err, "it does not say why", result)


if __name__ == "__main__":
    globals()["test_" + BEHAVIOUR]()
