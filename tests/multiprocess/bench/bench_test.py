"""What allrail-bench prints and writes. No test depends on how fast anything is.

SCRIPT ALLRAIL_RUN ALLRAIL_BENCH BEHAVIOUR
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launcher"))

from harness import BEHAVIOUR, environment, expect, job

SIZES = [8, 4096, 65536, 1 << 20]


def bench(ranks, nodes, *words):
    """The result, and the JSON file that it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "results.json")
        result = job(
            ranks,
            "allgather",
            "--json",
            file,
            *words,
            options=["--nodes", nodes],
            limit=150,
            env=environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2"),
        )
        expect(result.code == 0, "%d ranks on nodes %s: %s" % (ranks, nodes, words), result)
        with open(file, encoding="utf-8") as stream:
            return result, json.load(stream)


def check_overlap(ranks, nodes, *words):
    sizes = ",".join(str(size) for size in SIZES)
    options = ["--overlap", "--overlap-tests", "7", "--sizes", sizes, "--iterations", "3"]
    result, document = bench(ranks, nodes, *options, *words)
    rows = document["results"]
    expect([row["bytes_per_rank"] for row in rows] == SIZES, "sizes", result)
    for row in rows:
        overlap = row["overlap"]
        expect(row["wrong_bytes"] == 0, "wrong bytes: %s" % row, result)
        expect(row["iterations"] == 3 and row["mode"] == "isolated", "row: %s" % row, result)
        expect(set(overlap) == {"compute_us", "both_us", "tests", "percent"}, str(overlap), result)
        expect(overlap["tests"] == 7, str(overlap), result)
        alone, compute = row["time_us"]["p50"], overlap["compute_us"]
        expect(min(alone, compute, overlap["both_us"]) > 0, str(row), result)
        hidden = alone + compute - overlap["both_us"]
        percent = min(100, max(0, 100 * hidden / min(alone, compute)))
        expect(abs(overlap["percent"] - percent) < 0.01, "%s is not %s" % (overlap, percent))
    table = [line for line in result.out.splitlines() if not line.startswith("#")]
    expect(len(table) == 1 + len(SIZES), "table", result)
    expect("compute us" in table[0] and "both us" in table[0], "header of the table", result)
    for line in table[1:]:
        words = line.split()
        expect(words[-2].endswith("%") and words[-1] == "0", "line: " + line, result)


def test_overlap():
    check_overlap(2, "1")
    check_overlap(4, "2+1+1")
    check_overlap(2, "2", "--algorithm", "ring", "--memory", "buffer")


def test_overlap_in_place():
    check_overlap(2, "2", "--in-place")
    check_overlap(3, "2+1", "--memory", "node")


def test_overlap_finds_wrong_options():
    for words, said in (
        (("--overlap", "--mode", "streaming"), "--mode"),
        (("--overlap-tests", "3"), "--overlap"),
        (("--overlap", "--overlap-tests", "0"), "--overlap-tests"),
    ):
        result = job(2, "allgather", *words, limit=60, env=environment())
        expect(result.code not in (0, None), "%s is taken" % (words,), result)
        expect(said in result.err + result.out, "it does not name what is wrong", result)


def test_no_overlap():
    result, document = bench(2, "2", "--sizes", "8,64K", "--iterations", "3")
    expect([row["overlap"] for row in document["results"]] == [None, None], "overlap", result)
    expect("compute us" not in result.out, "columns of --overlap", result)


if __name__ == "__main__":
    globals()["test_" + BEHAVIOUR]()
