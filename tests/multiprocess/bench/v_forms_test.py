"""What allrail-bench says of allgatherv, gatherv, scatterv and alltoallv, whose blocks differ.

SCRIPT ALLRAIL_RUN ALLRAIL_BENCH BEHAVIOUR
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launcher"))

from every_collective_test import BYTES_PER_US, RATES_MBIT, rows_of
from harness import BEHAVIOUR, PROBE, RUN, environment, expect, run

V_FORMS = ("allgatherv", "gatherv", "scatterv", "alltoallv")
ROOTED = ("gatherv", "scatterv")
SHAPES = ("even", "ramp", "single")


def blocks_of(shape, mean, ranks, root=0):
    """What docs/benchmarks.md says of them, said once more."""
    if shape == "even":
        return [mean] * ranks
    if shape == "single":
        owner = (root + ranks // 2) % ranks
        return [ranks * mean if rank == owner else 0 for rank in range(ranks)]
    ends = [mean * rank * rank // ranks for rank in range(ranks + 1)]
    return [ends[rank + 1] - ends[rank] for rank in range(ranks)]


def rail_bytes(collective, shape, nodes, root, mean):
    """By a list of who sends how much to which node: what the busiest node's rails must carry."""
    node_of = [node for node, count in enumerate(nodes) for _ in range(count)]
    ranks = range(len(node_of))
    sizes = blocks_of(shape, mean, len(node_of), root)
    sent = {
        "allgatherv": [(node_of[one], node, sizes[one]) for one in ranks for node in set(node_of)],
        "gatherv": [(node_of[one], node_of[root], sizes[one]) for one in ranks],
        "scatterv": [(node_of[root], node_of[one], sizes[one]) for one in ranks],
        "alltoallv": [
            (node_of[one], node_of[other], sizes[(one + other) % len(node_of)])
            for one in ranks
            for other in ranks
        ],
    }[collective]
    arriving, leaving = [0] * len(nodes), [0] * len(nodes)
    for sender, receiver, size in sent:
        if sender != receiver:
            arriving[receiver] += size
            # A block of an allgather leaves its node once at least, whoever passes it on.
            leaving[sender] += 0 if collective == "allgatherv" else size
    return max(arriving + leaving)


def bus_share(collective, shape, ranks, root, mean):
    """Of the total, what the busiest rank takes from others or gives them."""
    sizes = blocks_of(shape, mean, ranks, root)
    own = {
        "allgatherv": min(sizes),
        "alltoallv": min(sizes[2 * rank % ranks] for rank in range(ranks)),
    }.get(collective, sizes[root])
    return 1 - own / sum(sizes)


def check_figures(collective, shape, nodes, root):
    words = ("--blocks", shape, "--rail-rates", ",".join(str(rate) for rate in RATES_MBIT))
    if collective in ROOTED:
        words += ("--root", str(root))
    else:
        root = 0
    ranks = sum(nodes)
    for row in rows_of(collective, nodes, *words, sizes=(10, 20001)):
        mean = row["bytes_per_rank"]
        what = "%s of %s, root %d: " % (row, nodes, root)
        expect(row["blocks"] == shape and row["bytes_total"] == ranks * mean, what)
        share = bus_share(collective, shape, ranks, root, mean)
        bus = row["algbw_GBps"] * share
        expect(abs(row["busbw_GBps"] - bus) <= 1e-6 * row["algbw_GBps"], what + str(bus))
        must_pass = rail_bytes(collective, shape, nodes, root, mean)
        if must_pass == 0:
            expect(row["rail_limit_percent"] is None, what + "there is no limit")
            continue
        ends_alike = collective == "allgatherv" and shape == "even"
        which = "p50" if ends_alike else "p50_slowest_rank"
        percent = 100 * must_pass / BYTES_PER_US / row["time_us"][which]
        close = abs(row["rail_limit_percent"] - percent) <= 0.001 * percent
        expect(close, what + "not %s" % percent)


def test_figures_of_v_forms():
    """Totals, bus bandwidth and the share of the limit are of the blocks that were sent."""
    for collective in V_FORMS:
        for shape in SHAPES:
            check_figures(collective, shape, (1, 3), 2)
            # The root's node has the single block, so that no byte has to cross.
            check_figures(collective, shape, (3, 1), 0)
        check_figures(collective, "ramp", (2, 1, 1), 3)


def test_v_forms_in_place():
    """From every root, from and into the block that the other buffer has of it, with empty ones."""
    for collective in V_FORMS:
        for root in range(3) if collective in ROOTED else (0,):
            words = ("--mode", "streaming", "--in-place")
            if collective in ROOTED:
                words += ("--root", str(root))
            for shape in SHAPES:
                words_of_shape = (*words, "--blocks", shape)
                for row in rows_of(collective, (2, 1), *words_of_shape, sizes=(0, 1, 20001)):
                    expect(row["mode"] == "streaming" and row["skew"] is None, str(row))


def test_v_forms_as_even_forms():
    """Plans, late ranks, other memory, every algorithm: a ramp unless something else is said."""
    for collective in V_FORMS:
        for words in (("--overlap",), ("--skew", "1ms"), ("--memory", "buffer")):
            for row in rows_of(collective, (2, 1), *words, sizes=(1, 20001)):
                expect(row["blocks"] == "ramp", str(row))
                expect((row["overlap"] is None) == (words[0] != "--overlap"), str(row))
                expect((row["skew"] is None) == (words[0] != "--skew"), str(row))
        rows = rows_of(collective, (2, 1), "--algorithm", "all", sizes=(1, 20001))
        names = {row["algorithm"] for row in rows}
        even = rows_of(collective[:-1], (2, 1), "--algorithm", "all", sizes=(1,))
        expect(names == {row["algorithm"] for row in even}, "%s: %s" % (collective, names))
    rows_of("allgatherv", (2, 1), "--memory", "node", sizes=(0, 1, 20001))


def test_choice_of_v_forms():
    """It goes by the largest block. That of an alltoallv does not follow the pace of the rails,
    which on some machines becomes known in so many calls."""
    for shape, mean, expected in (
        ("even", 260, "smp-recursive-doubling"),  # as up to 1 KiB
        ("single", 260, "smp-direct"),  # of 1040 bytes
        ("even", 2048, "smp-direct"),
    ):
        (row,) = rows_of("alltoallv", (1, 1, 1, 1), "--blocks", shape, sizes=(mean,), calls=400)
        expect(row["algorithm"] == expected, str(row))


def test_wrong_bytes_of_v_forms():
    """One wrong byte of a large block is found, whoever has it."""
    program = os.path.join(
        os.path.dirname(PROBE), "..", "tests", "multiprocess", "bench", "bench-with-wrong-bytes"
    )
    rails = environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2")
    for collective, root in (("allgatherv", 0), ("gatherv", 1), ("scatterv", 0), ("alltoallv", 0)):
        for odd in (None, "1"):
            with tempfile.TemporaryDirectory() as folder:
                file = os.path.join(folder, "results.json")
                words = [collective, "--sizes", "64,8M", "--iterations", "2", "--json", file]
                if collective in ROOTED:
                    words += ["--root", str(root)]
                env = {**rails, **({"WRONG_BYTE_RANK": odd} if odd else {})}
                options = ("-n", "2", "--nodes", "2", "--keep-going")
                result = run([RUN, *options, program, *words], env=env, limit=60)
                with open(file, encoding="utf-8") as stream:
                    wrong = [row["wrong_bytes"] for row in json.load(stream)["results"]]
            expect(result.code == (1 if odd else 0), "%s, rank %s" % (collective, odd), result)
            found = wrong[0] == 0 and (wrong[1] > 0) == (odd is not None)
            expect(found, "%s: %s" % (collective, wrong), result)


if __name__ == "__main__":
    globals()["test_" + BEHAVIOUR]()
