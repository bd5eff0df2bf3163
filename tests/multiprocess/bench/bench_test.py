"""What allrail-bench prints and writes. No test depends on how fast anything is.

SCRIPT ALLRAIL_RUN ALLRAIL_BENCH BEHAVIOUR
"""

import json
import os
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launcher"))

from harness import BEHAVIOUR, PROBE, RUN, environment, expect, finish, job, run, start
from terminal_cases import Terminal

SIZES = [8, 4096, 65536, 1 << 20]


def bench(ranks, nodes, *words, **settings):
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
            env=environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2", **settings),
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


def test_wrong_options_with_rank_0_late():
    """Rank 0 says what is wrong, once, although the others knew it before."""
    late = ("sh", "-c", 'if [ "$PMIX_RANK" = 0 ]; then sleep 1; fi; exec "$@"', "sh")
    words = ("allgather", "--sizes", "many")
    result = run([RUN, "-n", "3", *late, PROBE, *words], limit=60, env=environment())
    expect((result.err + result.out).count("many") == 1, "it is not said, or not once", result)
    expect("rank 0 " in result.err, "the launcher does not name who said it", result)


def test_barrier():
    """One row without bytes, of calls and of plans."""
    for words in ((), ("--mode", "streaming"), ("--overlap",), ("--skew", "1ms")):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "results.json")
            words = ("barrier", "--iterations", "20", "--json", file, *words)
            settings = environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2")
            result = job(3, *words, options=["--nodes", "2+1"], limit=100, env=settings)
            expect(result.code == 0, str(words), result)
            with open(file, encoding="utf-8") as stream:
                (row,) = json.load(stream)["results"]
        what = (row["collective"], row["algorithm"], row["bytes_per_rank"], row["wrong_bytes"])
        expect(what == ("barrier", "smp-dissemination", 0, None), str(row), result)
        expect(row["time_us"]["p50"] > 0 and "no bytes to check" in result.out, str(row), result)
    result = job(2, "barrier", "--algorithm", "ring", limit=60, env=environment())
    expect(result.code not in (0, None), "an algorithm of a barrier is taken", result)
    expect("--algorithm" in result.err + result.out, "it does not name what is wrong", result)


def test_memory_of_allgathers():
    """Ranks of a node receive the same of an allgather only."""
    for what in (("gather",), ("alltoall",), ("tune", "/nowhere/t.json")):
        result = job(2, *what, "--memory", "node", limit=60, env=environment())
        expect(result.code not in (0, None), "%s is taken" % (what,), result)
        expect("--memory" in result.err + result.out, "it does not name what is wrong", result)


def test_no_overlap():
    result, document = bench(2, "2", "--sizes", "8,64K", "--iterations", "3")
    expect([row["overlap"] for row in document["results"]] == [None, None], "overlap", result)
    expect("compute us" not in result.out, "columns of --overlap", result)
    expect([row["skew"] for row in document["results"]] == [None, None], "skew", result)
    expect("last in us" not in result.out, "columns of --skew", result)


# ---- progress ----


# A rank that comes late makes the start of a job take more than two seconds.
LATE = ("sh", "-c", 'if [ "$PMIX_RANK" = 1 ]; then sleep 2.1; fi; exec "$@"', "sh")
SLOW_BENCH = [RUN, "-n", "2", "--nodes", "2", *LATE, PROBE]


def test_progress():
    """Of a run of more than two seconds, on a terminal only."""
    command = [*SLOW_BENCH, "allgather", "--sizes", "8,64"]
    command += ["--skew", "1s", "--iterations", "2", "--warmup", "0"]
    began = time.monotonic()
    piped = start(command)
    terminal = Terminal(command)
    out = terminal.finish()
    result = finish(piped, began)
    expect(result.code == 0 and result.err == "", "nothing without a terminal", result)
    expect(terminal.process.returncode == 0, terminal.text)
    said = re.findall(r"(\d of 2) rows done; now allgather of (\S+) bytes by auto", terminal.text)
    expect({("0 of 2", "8"), ("1 of 2", "64")} <= set(said), "rows: %r" % terminal.text)
    calls = re.findall(r"bytes by auto: (\d of 2) calls", terminal.text)
    expect(set(calls) == {"1 of 2"}, "calls of a row: %r" % terminal.text)
    expect("\n" not in terminal.text, "no line of its own: %r" % terminal.text)
    expect(terminal.text.endswith("\r\033[K"), "gone in the end: %r" % terminal.text)
    expect(len(out.splitlines()) == 6 and "\r" not in out, "standard output: " + repr(out))


def test_progress_of_put():
    terminal = Terminal([*SLOW_BENCH, "put", "--sizes", "8,64", "--iterations", "20"])
    out = terminal.finish()
    expect(terminal.process.returncode == 0, terminal.text)
    expect(len(out.splitlines()) == 6 and "\r" not in out, "standard output: " + repr(out))
    expect("0 of 4 rows done; now put of 8 bytes, " in terminal.text, repr(terminal.text))
    expect(terminal.text.endswith("\r\033[K"), "gone in the end: %r" % terminal.text)


# ---- counters of rails ----

COUNTERS = re.compile(
    r" (\S+) sent (\d+) bytes in (\d+) chunks, received (\d+) in (\d+), replays (\d+),"
    r" fences (\d+), duplicates (\d+), reconnects (\d+), window (\d+)"
)
COUNTED = ("bytes_sent", "chunks_sent", "bytes_received", "chunks_received")
COUNTED += ("replays", "fences", "duplicates", "reconnects", "window_bytes")


def summaries(result):
    """By rank and rail what the summary line of every rank says."""
    found = {}
    for rank, rails in re.findall(r"allrail rank (\d+) summary:(.*)", result.err + result.out):
        expect(rank not in found, "rank %s has two summaries" % rank, result)
        found[rank] = {
            name: dict(zip(COUNTED, map(int, numbers)))
            for name, *numbers in COUNTERS.findall(rails)
        }
    return [found[rank] for rank in sorted(found)]


def test_counters():
    """The file and the summary count the same, and what one rank sends another one receives."""
    for ranks, nodes, per_node in ((3, "3", 1), (4, "2", 2)):
        words = ("--sizes", "64,256K", "--iterations", "4", "--warmup", "1")
        result, document = bench(ranks, nodes, *words, ALLRAIL_LOG="summary")
        of_ranks = summaries(result)
        expect(len(of_ranks) == ranks, "a summary of every rank", result)
        counted = {
            rail["name"]: {name: rail[name] for name in COUNTED}
            for rail in document["rail_counters_of_rank_0"]
        }
        expect(set(counted) == {"127.0.0.1", "127.0.0.2"}, str(counted), result)
        expect(counted == of_ranks[0], "%s, the summary %s" % (counted, of_ranks[0]), result)
        for rail in counted:
            for sent, received in (COUNTED[0::2][:2], COUNTED[1::2][:2]):
                sums = [sum(one[rail][name] for one in of_ranks) for name in (sent, received)]
                expect(sums[0] == sums[1], "%s of %s: %s" % (sent, rail, sums), result)
        # Warm-up, timed calls and two that are checked, of each what the other nodes contribute.
        least = (1 + 4 + 2) * (64 + (256 << 10)) * (ranks - per_node)
        total = sum(rail["bytes_received"] for one in of_ranks[:per_node] for rail in one.values())
        expect(least <= total < 2 * least, "%d bytes came to node 0, not %d" % (total, least))
    result, document = bench(2, "1", "--sizes", "64", "--iterations", "4", ALLRAIL_LOG="summary")
    expect(document["rail_counters_of_rank_0"] == [], "rails of one node", result)
    expect(result.err.count("summary: one node, no rails") == 2, "no rails", result)


# ---- memory, algorithms, wrong bytes ----


def test_memory():
    """What the job takes on a node, beside what was asked for; less where the setting says so."""
    segments = []
    for setting in ("1M", "4M"):
        words = ("--sizes", "64", "--iterations", "4")
        result, document = bench(4, "2", *words, ALLRAIL_NODE_MEMORY=setting)
        context = document["context"]
        segment, slots = context["segment_bytes_per_node"], context["slot_bytes_per_node"]
        mebi = int(setting[:-1]) << 20
        expect(0.9 * mebi <= slots < segment <= mebi, str(context), result)
        line = "# memory per node: a segment of %d bytes, of which calls have " % segment
        expect(result.out.count(line) == 1, "no line of memory", result)
        segments.append(segment)
    expect(segments[0] < segments[1], str(segments))


def test_leader_policy():
    """The report names the one that was asked for; another word is an error that lists them."""
    for policy in ("socket", "near", "packed"):
        words = ("--sizes", "64", "--iterations", "2", "--leader-policy", policy)
        result, document = bench(4, "2", *words, ALLRAIL_LEADER_POLICY="socket")
        expect(document["context"]["leader_policy"] == policy, policy, result)
    words = ("--sizes", "64", "--leader-policy", "far")
    result = job(2, "allgather", *words, env=environment())
    expect(result.code not in (0, None), "far is taken", result)
    expect(all(word in result.err for word in ("far", "near", "packed")), "far", result)


def test_list():
    """Every algorithm with its collective and a sentence, and each of them runs by its name."""
    result = run([PROBE, "--list"], env=environment())
    expect(result.code == 0, "--list", result)
    listed = {}
    for line in result.out.splitlines():
        collective, name, level, text = line.split(None, 3)
        expect(level in ("nodes", "ranks") and len(text) > 10, line, result)
        listed.setdefault(collective, set()).add(name)
    collectives = {"allgather", "alltoall", "barrier", "broadcast", "gather", "scatter"}
    expect(set(listed) <= collectives and len(listed) >= 5, str(listed), result)
    for collective in sorted(set(listed) - {"barrier"}):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "results.json")
            words = ("--algorithm", "all", "--sizes", "64", "--iterations", "1", "--json", file)
            ran = job(4, collective, *words, options=["--nodes", "2"], env=environment())
            expect(ran.code == 0, collective, ran)
            with open(file, encoding="utf-8") as stream:
                names = {row["algorithm"] for row in json.load(stream)["results"]}
        expect(names == listed[collective], "%s is not %s" % (names, listed[collective]), ran)


def test_wrong_bytes():
    """One wrong byte on one rank: the row counts it and the program fails on all ranks."""
    program = os.path.join(
        os.path.dirname(PROBE), "..", "tests", "multiprocess", "bench", "bench-with-wrong-bytes"
    )
    rails = environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2")
    for odd in (None, "1"):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "results.json")
            # So much does not come at once: payloads are read to where they belong.
            words = ("allgather", "--sizes", "64,4M", "--iterations", "2", "--json", file)
            env = {**rails, **({"WRONG_BYTE_RANK": odd} if odd else {})}
            options = ("-n", "2", "--nodes", "2", "--keep-going")
            result = run([RUN, *options, program, *words], env=env, limit=60)
            with open(file, encoding="utf-8") as stream:
                wrong = [row["wrong_bytes"] for row in json.load(stream)["results"]]
        expect(result.code == (1 if odd else 0), "exit code, rank %s" % odd, result)
        failed = result.err.count("exited with code 1")
        expect(failed == (2 if odd else 0), "%d ranks fail, rank %s" % (failed, odd), result)
        expect(wrong[0] == 0 and (wrong[1] > 0) == (odd is not None), str(wrong), result)
        column = [line.split()[-1] for line in result.out.splitlines() if line[:1] == " "]
        expect(column == ["wrong", *map(str, wrong)], "%s, %s" % (column, wrong), result)


# ---- ranks that come late ----

WORD = (1 << 64) - 1


def mix(z):
    z = (z + 0x9E3779B97F4A7C15) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def delay_us(seed, rank, call, most_us):
    """What perf/arrivals.cpp draws, said once more."""
    drawn = mix((mix((mix(seed) + rank) & WORD) + call) & WORD)
    return (drawn >> 11) * 2.0**-53 * most_us


def check_skew(ranks, nodes, most, seed, *words, calls=5):
    """However slow this machine is: nobody is early, and the last arrival is what counts."""
    text, most_us = most
    options = ["--skew", text, "--sizes", "8,64K", "--iterations", str(calls)]
    if seed != 1:
        options += ["--seed", str(seed)]
    result, document = bench(ranks, nodes, *options, *words)
    rows = document["results"]
    expect([row["bytes_per_rank"] for row in rows] == [8, 65536], "sizes", result)
    latest = [
        max(delay_us(seed, rank, call, most_us) for rank in range(ranks)) for call in range(calls)
    ]
    for row in rows:
        skew = row["skew"]
        expect(row["wrong_bytes"] == 0 and row["overlap"] is None, "row: %s" % row, result)
        expect(row["iterations"] == calls and row["mode"] == "isolated", "row: %s" % row, result)
        keys = {"most_us", "seed", "last_arrival_us", "from_last_us"}
        expect(set(skew) == keys, str(skew), result)
        expect(skew["most_us"] == most_us and skew["seed"] == seed, str(skew), result)
        # Times are kept to a nanosecond.
        due = sorted(latest)[(calls - 1) // 2] - 0.002
        expect(skew["last_arrival_us"] >= due, "%s is before %s" % (skew, due), result)
        after, own = skew["from_last_us"], row["time_us"]
        ordered = 0 <= after["min"] <= after["p50"] <= after["p99"] <= after["max"]
        expect(ordered and after["min"] <= after["avg"] <= after["max"], str(skew), result)
        # Whoever ends last arrived with the last rank or before it.
        expect(after["max"] <= own["max"] + 0.002, "%s, own %s" % (skew, own), result)
    table = [line for line in result.out.splitlines() if not line.startswith("#")]
    expect(len(table) == 1 + len(rows), "table", result)
    expect("last in us" in table[0] and "own us" in table[0], "header of the table", result)
    for line, row in zip(table[1:], rows):
        shown = [row["time_us"]["p50"], row["skew"]["last_arrival_us"]]
        shown += [row["skew"]["from_last_us"][name] for name in ("min", "avg", "p50", "p99", "max")]
        expect(line.split()[-8:] == ["%.2f" % time for time in shown] + ["0"], line, result)


def test_skew():
    check_skew(2, "1", ("20ms", 20000), 1)
    check_skew(4, "2+1+1", ("1.5ms", 1500), 7)
    check_skew(3, "3", ("0us", 0), 1, "--memory", "buffer")
    # Of one call every time is known: the last rank's end is the sum, and everybody ended by then.
    _, document = bench(3, "2+1", "--skew", "50ms", "--sizes", "64", "--iterations", "1")
    row = document["results"][0]
    skew = row["skew"]
    end = skew["last_arrival_us"] + skew["from_last_us"]["max"]
    earliest = min(delay_us(1, rank, 0, 50000) for rank in range(3))
    expect(row["time_us"]["max"] <= end - earliest + 0.002, str(row))
    # Without a number of calls there are fewer of them, the longer ranks make each other wait.
    _, document = bench(2, "1", "--skew", "50ms", "--sizes", "8")
    expect(document["results"][0]["iterations"] == 20, str(document["results"]))


def test_skew_finds_wrong_options():
    for words, said in (
        (("--skew", "20"), "'20' is no time"),
        (("--skew", "-1us"), "'-1us' is no time"),
        (("--skew", "fast"), "'fast' is no time"),
        (("--skew", "11s"), "10s"),
        (("--skew", "1ms", "--mode", "streaming"), "--mode"),
        (("--skew", "1ms", "--overlap"), "--overlap"),
        (("--seed", "3"), "--skew"),
        (("--skew", "1ms", "--seed", "x"), "--seed"),
    ):
        result = job(2, "allgather", *words, limit=60, env=environment())
        expect(result.code not in (0, None), "%s is taken" % (words,), result)
        expect((result.err + result.out).count(said) == 1, "it is not said, or not once", result)
    for words in (("put",), ("fit",), ("tune", "t.json")):
        result = job(2, *words, "--skew", "1ms", limit=60, env=environment())
        expect(result.code not in (0, None), "%s is taken" % (words,), result)
        expect("not for " + words[0] in result.err, "it does not name what is wrong", result)


def test_wrong_numbers():
    """What only the job shows to be wrong is said before anything is measured."""
    with tempfile.TemporaryDirectory() as folder:
        missing = os.path.join(folder, "none", "results.json")
        for words, said in (
            (("allgather", "--rail-rates", "100"), "has 1 rates, and a node of this job has 2"),
            (("allgather", "--json", missing), "cannot write " + missing),
            (("put", "--json", missing), "cannot write " + missing),
            (("fit", "--json", missing), "cannot write " + missing),
            (("tune", missing), "cannot write " + missing),
            (("alltoall", "--sizes", "4611686018427387904"), "--sizes: 4611686018427387904 bytes"),
            (("put", "--peer", "1"), "--peer 1 is on the node of rank 0"),
        ):
            settings = environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2")
            result = job(4, *words, options=["--nodes", "2"], limit=60, env=settings)
            expect(result.code not in (0, None), "%s is taken" % (words,), result)
            expect(said in result.err, "%s: it does not say %r" % (words, said), result)
            expect("min us" not in result.out, "%s: something is measured" % (words,), result)
        file = os.path.join(folder, "results.json")
        words = ("allgather", "--json", file, "--rail-rates", "100")
        job(4, *words, options=["--nodes", "2"], limit=60, env=settings)
        expect(not os.path.exists(file), "an empty file is left")


def test_put():
    """A row per rail and one over all, with half the round trips and what goes one way and both."""
    words = ("put", "--sizes", "8,64K", "--iterations", "40", "--peer", "2")
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "puts.json")
        result = job(
            4, *words, "--json", file, options=["--nodes", "2"], limit=60, env=environment()
        )
        expect(result.code == 0, "it fails", result)
        with open(file, encoding="utf-8") as stream:
            document = json.load(stream)
    head = "bytes rail latency us average us one way MB/s both ways MB/s"
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    expect(head in lines, "the head of the table is another", result)
    rows = [line.split() for line in lines if line.startswith(("8 ", "64K "))]
    expect([row[0] for row in rows] == ["8"] * 2 + ["64K"] * 2, "rows are missing", result)
    expect(rows[1][1] == rows[3][1] == "striped", "no row over all rails", result)
    for row in rows:
        expect(len(row) == 6 and all(float(word) > 0 for word in row[2:]), str(row), result)
    check_puts(rows, document)
    words = ("put", "--sizes", "8", "--iterations", "1", "--json", "/nowhere/puts.json")
    result = job(2, *words, options=["--nodes", "2"], limit=60, env=environment())
    expect(result.code not in (0, None) and "/nowhere/puts.json" in result.err, "no file", result)


def check_puts(rows, document):
    """The file says what the table does."""
    where = {"collective": "put", "ranks": 4, "nodes": 2, "rails": 1, "peer": 2, "iterations": 40}
    numbers = ("latency_us", "average_us", "one_way_MBps", "both_ways_MBps")
    results = document["results"]
    expect([one["bytes"] for one in results] == [8, 8, 65536, 65536], str(results))
    for row, one in zip(rows, results):
        expect(one["rail"] == row[1] and where.items() <= one.items(), str(one))
        for word, name in zip(row[2:], numbers):
            expect(abs(one[name] - float(word)) <= 0.006 + 1e-5 * one[name], str(one))
    expect("allrail-bench put" in document["context"]["command"], str(document["context"]))
    sent = sum(rail["bytes_sent"] for rail in document["rail_counters_of_rank_0"])
    expect(sent > 65536, "counters: %s" % document["rail_counters_of_rank_0"])


def test_command_line_of_any_bytes():
    """A name that is no text costs no results: the files that hold it are text all the same."""
    env = environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2")
    for words in (("allgather", "--sizes", "8", "--iterations", "1"), ("fit",)):
        with tempfile.TemporaryDirectory() as folder:
            # The name of a program is part of its command line, and nothing prints it.
            odd = os.path.join(folder, os.fsdecode(b"bench-\xff"))
            file = os.path.join(folder, "results.json")
            os.symlink(PROBE, odd)
            command = [RUN, "-n", "2", "--nodes", "2", odd, *words, "--json", file]
            result = run(command, env=env, limit=150)
            expect(result.code == 0, words[0], result)
            with open(file, encoding="utf-8") as stream:
                context = json.load(stream)["context"]
            said = context if words[0] == "fit" else context["command"]
            expect("bench-\ufffd " + words[0] in said, said, result)


if __name__ == "__main__":
    globals()["test_" + BEHAVIOUR]()
