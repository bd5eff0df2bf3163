"""What allrail-bench prints and writes. No test depends on how fast anything is.

SCRIPT ALLRAIL_RUN ALLRAIL_BENCH BEHAVIOUR
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launcher"))

from harness import BEHAVIOUR, PROBE, RUN, environment, expect, job, run

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


def test_tune():
    """The rules are for this layout, and each is what was fastest, but for the margin."""
    info = os.path.join(os.path.dirname(PROBE), "allrail-info")
    rails = "127.0.0.1,127.0.0.2"
    # What is set must not be what is measured as the built-in choice, and does not stop tune.
    odd = {"ALLRAIL_ALGORITHM_BROADCAST": "chain", "ALLRAIL_TUNING_FILE": "/nowhere/t.json"}
    with tempfile.TemporaryDirectory() as folder:
        tuning, results = (os.path.join(folder, name) for name in ("tuning.json", "results.json"))
        words = ("--collectives", "broadcast,gather", "--sizes", "4K,16,256", "--iterations", "5")
        result = job(
            5,
            *("tune", tuning, *words, "--margin", "20", "--json", results),
            options=["--nodes", "2"],
            limit=150,
            env=environment(ALLRAIL_RAILS=rails, **odd),
        )
        expect(result.code == 0, "tune", result)
        with open(tuning, encoding="utf-8") as stream:
            rules = json.load(stream)["rules"]
        with open(results, encoding="utf-8") as stream:
            rows = json.load(stream)["results"]
        expect(set(rules) == {"broadcast", "gather"}, str(rules))
        for collective, of_collective in rules.items():
            check_rules(of_collective, [row for row in rows if row["collective"] == collective])
        for line, rule in rules_by_line(tuning):
            for size in rule["bytes"].values():
                collective = next(name for name in rules if rule in rules[name])
                explained = run(
                    [RUN, "-n", "5", "--nodes", "2", info, "explain", collective, str(size)],
                    env=environment(ALLRAIL_RAILS=rails, ALLRAIL_TUNING_FILE=tuning),
                )
                choice = "choice: %(algorithm)s with %(ports)d ports" % rule
                place = "%s:%d " % (tuning, line)
                expect(choice in explained.out and place in explained.out, place, explained)


def rules_by_line(path):
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if '"algorithm"' in line:
                yield number, json.loads(line.rstrip(",\n"))


def check_rules(rules, rows):
    expect({row["bytes_per_rank"] for row in rows} == {16, 256, 4096}, str(rows))
    expect(rules[0]["bytes"]["min"] == 0 and rules[-1]["bytes"]["max"] == 4096, str(rules))
    for rule, after in zip(rules, rules[1:]):
        expect(rule["bytes"]["max"] + 1 == after["bytes"]["min"], "%s, then %s" % (rule, after))
        expect(rule["bytes"]["max"] in (64, 1024), "the geometric mean: %s" % rule)
    times = {}
    for row in rows:
        key = row["bytes_per_rank"], row["algorithm"], row["ports"]
        time = row["time_us"]["p50_slowest_rank"]
        times[key] = min(time, times.get(key, time))
    for size in (16, 256, 4096):
        rule = next(one for one in rules if one["bytes"]["max"] >= size)
        where = {"ranks": 5, "nodes": 2, "ranks_per_node": {"min": 2, "max": 3}, "rails": 2}
        expect({name: rule[name] for name in where} == where, str(rule))
        fastest = min(time for (one, _, _), time in times.items() if one == size)
        mine = times[size, rule["algorithm"], rule["ports"]]
        expect(mine <= 1.2 * fastest * 1.0001, "%d: %s of %s" % (size, rule, times))


def test_tune_finds_wrong_options():
    for words, said in (
        (("tune",), "file to write"),
        (("allgather", "t.json"), "--json"),
        (("tune", "t.json", "--algorithm", "ring"), "--algorithm"),
        (("tune", "t.json", "--collectives", "reduce"), "reduce"),
    ):
        result = job(2, *words, limit=60, env=environment())
        expect(result.code not in (0, None), "%s is taken" % (words,), result)
        expect(said in result.err + result.out, "it does not name what is wrong", result)
    result = job(2, *("tune", "/nowhere/t.json", "--collectives", "gather", "--sizes", "8"),
                 "--iterations", "1", limit=60, env=environment())
    expect(result.code not in (0, None) and "/nowhere/t.json" in result.err, "no file", result)


if __name__ == "__main__":
    globals()["test_" + BEHAVIOUR]()
