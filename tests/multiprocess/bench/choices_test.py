"""What choices follow from: rails, the cost model that allrail-bench fits, and what it tunes.

SCRIPT ALLRAIL_RUN ALLRAIL_BENCH BEHAVIOUR
"""

import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launcher"))

from harness import BEHAVIOUR, PROBE, RUN, environment, expect, job, run


def cost_of(text):
    """The time that explain prints by the cost model, and the file that it names."""
    found = re.search(r"time of the call by the cost model in (\S+): ([0-9.]+) us", text)
    return (found[1], float(found[2])) if found else (None, None)


def test_fit():
    """What is written is a whole model, and what explain says of a call is what follows from it."""
    info = os.path.join(os.path.dirname(PROBE), "allrail-info")
    environ = environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2", ALLRAIL_STRIPE_THRESHOLD="32K")
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.json")
        result = job(2, "fit", "--json", file, options=["--nodes", "2"], limit=150, env=environ)
        expect(result.code == 0 and file in result.out, "fit", result)
        with open(file, encoding="utf-8") as stream:
            model = json.load(stream)
        times = ("post_us", "arrival_us", "message_us", "latency_us", "hop_us")
        expect(all(0 <= model[name] < 1e9 for name in times), str(model))
        expect(model["flag_us"] > 0 and model["copy_MBps"] > 0, str(model))
        expect(len(model["rail_MBps"]) == 2 and min(model["rail_MBps"]) > 0, str(model))
        expect(model["stripe_bytes"] == 32768, str(model))
        expect("fit" in model["context"] and "2 nodes" in model["context"], str(model))

        def explained(size, path):
            words = ("explain", "allgather", str(size), "--ranks", "2", "--nodes", "2")
            answer = run([info, *words, "--algorithm", "direct", "--model", path], env=environ)
            expect(answer.code == 0, "explain", answer)
            named, cost_us = cost_of(answer.out)
            expect(named == path, "the model file is not named", answer)
            return cost_us

        # Neither size nor both ways at once are in the fit. The bounds are formulas of the model.
        small_us = sum(model[name] for name in times)
        for size in (8, 256 << 10):
            fastest_MBps = sum(model["rail_MBps"])  # striped; below the threshold one of them
            slowest_MBps = fastest_MBps if size > 32768 else min(model["rail_MBps"])
            copies_us = 4 * (size + 64) / model["copy_MBps"] + 8 * model["flag_us"]
            low = 0.99 * size / fastest_MBps
            high = 2 * (small_us + size / slowest_MBps + copies_us) + 1
            cost_us = explained(size, file)
            expect(low <= cost_us <= high, "%d: %s <= %s <= %s" % (size, low, cost_us, high))
        # And it is this file that counts: a millisecond more is a millisecond more.
        slow = os.path.join(folder, "slow.json")
        with open(slow, "w", encoding="utf-8") as stream:
            json.dump({**model, "latency_us": model["latency_us"] + 1000}, stream)
        more_us = explained(8, slow) - explained(8, file)
        expect(abs(more_us - 1000) < 1, "a slower rail costs %s us more" % more_us)


def test_fit_of_bound_ranks():
    """Two threads on one cpu tell nothing of what a flag takes between two."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.json")
        cpu = str(min(os.sched_getaffinity(0)))
        words = ["taskset", "--cpu-list", cpu, RUN, "-n", "2", "--nodes", "2", PROBE]
        result = run([*words, "fit", "--json", file], limit=150, env=environment())
        expect(result.code == 0 and "flag_us stays at 0.1 us" in result.out, "fit", result)
        with open(file, encoding="utf-8") as stream:
            expect(json.load(stream)["flag_us"] == 0.1, "the default", result)


def test_explain():
    """What is chosen, what would be if the rails were fast or slow, and what a rank sends."""
    info = os.path.join(os.path.dirname(PROBE), "allrail-info")
    words = [info, "explain", "broadcast", "64K", "--ranks", "8", "--nodes", "4"]
    answer = run(words, env=environment())
    expect(answer.code == 0, "explain", answer)
    expect("choice: smp-chain with 1 ports" in answer.out, "choice", answer)
    expect("that the rails are fast: smp-binomial" in answer.out, "choice on fast rails", answer)
    answer = run([*words[:3], "4K", *words[4:]], env=environment())
    expect("choice: smp-binomial with 1 ports" in answer.out, "small data", answer)
    expect("that the rails are slow: smp-chain" in answer.out, "choice on slow rails", answer)
    answer = run(words, env=environment())
    # Four pieces with a header each go to the next node, whole cache lines.
    sent = re.search(r"sends (\d+) bytes", answer.out)
    expect(sent and int(sent[1]) == 65536 + 4 * 64, "bytes sent", answer)
    answer = run(words, env=environment(ALLRAIL_BROADCAST_SEGMENT="8K"))
    sent = re.search(r"sends (\d+) bytes", answer.out)
    expect(sent and int(sent[1]) == 65536 + 8 * 64, "bytes sent in pieces of 8 KiB", answer)
    for setting in ({"ALLRAIL_ALGORITHM_BROADCAST": "chain"}, {"ALLRAIL_NODES": "1"}):
        nodes = [] if "ALLRAIL_NODES" in setting else words[4:]
        answer = run(words[:4] + nodes, env=environment(**setting))
        expect(answer.code == 0 and "the rails are" not in answer.out, "nothing to choose", answer)


def test_explain_allgatherv():
    """Where its blocks are cut, and that its choice is that of the bench."""
    info = os.path.join(os.path.dirname(PROBE), "allrail-info")

    def explained(*words):
        words = ("allgatherv", "1M", "--ranks", "8", "--nodes", "4", *words)
        answer = run([info, "explain", *words], env=environment(ALLRAIL_NODE_MEMORY="64M"))
        expect(answer.code == 0, str(words), answer)
        return answer.out, int(re.search(r"sends (\d+) bytes", answer.out)[1])

    text, sent = explained("--blocks", "single", "--rank", "4")
    expect("choice: smp-ring-chain" in text and "rails are fast: smp-ring" in text, text)
    expect("cut at 0 bytes" in text and re.search(r"ranks 4\n", text), text)
    expect(8 << 20 < sent < (8 << 20) * 1.01, "%d bytes, once: %s" % (sent, text))
    text, _ = explained("--blocks", "ramp")
    found = re.search(r"cut at (\d+) bytes: .* the ranks((?: \d)+)\n", text)
    expect(found and int(found[1]) > 0 and found[2].endswith(" 7"), text)
    text, sent = explained()
    expect("smp-ring-chain" not in text and "cut at" not in text, text)
    words = ("allgather", "1M", "--ranks", "8", "--nodes", "4")
    even = run([info, "explain", *words], env=environment())
    expect(re.search(r"choice: (.*)", text)[1] == re.search(r"choice: (.*)", even.out)[1], text)
    text, sent = explained("--blocks", "single", "--algorithm", "smp-direct", "--rank", "4")
    expect("cut at" not in text and sent > 24 << 20, "three times: " + text)
    answer = run(
        [info, "explain", "gather", "1M", "--ranks", "8", "--blocks", "ramp"], env=environment()
    )
    expect(answer.code != 0 and "only an allgatherv" in answer.err, "a gather", answer)


def test_segments_of_a_broadcast():
    """The setting is how long pieces are: with 64 of them the root sends 64 chunks and more."""
    chunks = {}
    for segment in ("1K", "64K"):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "results.json")
            words = ("--algorithm", "smp-chain", "--sizes", "64K", "--iterations", "4")
            result = job(
                3,
                "broadcast",
                *words,
                *("--json", file),
                options=["--nodes", "3"],
                limit=150,
                env=environment(
                    ALLRAIL_RAILS="127.0.0.1,127.0.0.2", ALLRAIL_BROADCAST_SEGMENT=segment
                ),
            )
            expect(result.code == 0, segment, result)
            with open(file, encoding="utf-8") as stream:
                rails = json.load(stream)["rail_counters_of_rank_0"]
        chunks[segment] = sum(rail["chunks_sent"] for rail in rails)
    calls = 4
    expect(calls * 64 <= chunks["1K"] and 4 * chunks["64K"] < chunks["1K"], str(chunks))


def test_explained_cost_is_of_the_explained_call():
    """Of all slices, over its rails, and by its leaf switches."""
    info = os.path.join(os.path.dirname(PROBE), "allrail-info")

    def explained(*words):
        answer = run([info, "explain", *words], env=environment(ALLRAIL_NODE_MEMORY="64M"))
        expect(answer.code == 0, str(words), answer)
        sent = int(re.search(r"sends (\d+) bytes", answer.out)[1])
        return answer.out, sent, float(re.search(r"cost model.*: ([\d.]+) us", answer.out)[1])

    # The second of two slices is shorter: two nodes exchange two blocks each, and headers.
    text, sent, _ = explained("allgather", "4M", "--ranks", "4", "--nodes", "2")
    expect("2 slices" in text and 8 << 20 < sent < (8 << 20) + 4096, "%d bytes: %s" % (sent, text))
    text, _, _ = explained("allgather", "1M", "--ranks", "2")
    expect("read out of the memory of the other ranks" in text, text)
    text, _, _ = explained("alltoall", "256K", "--ranks", "4", "--nodes", "2")
    expect("straight between" in text and "rails are slow: through slots" in text, text)
    text, _, _ = explained("alltoall", "512K", "--ranks", "4", "--nodes", "2")
    expect("straight between" in text and "through slots" not in text, text)
    leaves = ",".join(str(7 + 2 * (node // 4)) for node in range(16))  # with gaps
    words = ("gather", "64K", "--ranks", "16", "--nodes", "16", "--leaves", leaves)
    times = {
        name: explained(*words, "--algorithm", name)[2]
        for name in ("topology-direct", "smp-direct")
    }
    expect(times["topology-direct"] != times["smp-direct"], str(times))
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.json")
        with open(file, "w", encoding="utf-8") as stream:
            json.dump({"rail_MBps": [1000.0]}, stream)
        words = ("allgather", "1M", "--ranks", "2", "--nodes", "2", "--model", file)
        one, four = explained(*words)[2], explained(*words, "--rails", "4")[2]
        expect(one > 2 * four, "%s us over one rail, %s over four" % (one, four))


def test_explain_by_the_model_of_the_tuning_file():
    """The choice and the cost of the call are by one model, with puts as the setting has them.

    Flags that are slow make puts within a node, and leaders, slower than what goes over a rail."""
    info = os.path.join(os.path.dirname(PROBE), "allrail-info")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "tuning.json")
        with open(file, "w", encoding="utf-8") as stream:
            json.dump({"format": 1, "rules": {}, "model": {"flag_us": 500}}, stream)
        words = ("explain", "allgather", "4K", "--ranks", "8", "--nodes", "2")
        for setting in ("copy", "rail"):
            env = environment(ALLRAIL_TUNING_FILE=file, ALLRAIL_LOCAL_PUTS=setting)
            answer = run([info, *words], env=env)
            expect(answer.code == 0, "explain", answer)
            choice = re.search(r"by the cost model in \S+ \(ALLRAIL_TUNING_FILE\): ([0-9.]+) us",
                               answer.out)
            named, cost_us = cost_of(answer.out)
            expect(choice and named == file, "it is not by the model", answer)
            expect(float(choice[1]) == cost_us, "two times of one call", answer)
            found[setting] = cost_us
    expect(found["rail"] < found["copy"], "puts within a node cost the same: %s" % found)


def test_choice_follows_rails():
    """Whether the rails turn out fast depends on the machine; all ranks choose alike all the same,
    also while it changes, and every byte is right."""
    for words in ("broadcast", "--sizes", "64K"), ("allgather", "--sizes", "96K"):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "results.json")
            result = job(
                8,
                *words,
                *("--mode", "isolated", "--iterations", "400", "--json", file),
                options=["--nodes", "4"],
                limit=150,
                env=environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2"),
            )
            expect(result.code == 0, words[0], result)
            with open(file, encoding="utf-8") as stream:
                row = json.load(stream)["results"][0]
        expect(row["wrong_bytes"] == 0, str(row))
        by_pace = {"broadcast": ("smp-chain", "smp-binomial")}.get(
            words[0], ("smp-ring", "smp-recursive-doubling")
        )
        expect(row["algorithm"].split(">")[-1] in by_pace, str(row))


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


def tune_gathers(tuning, model, *program):
    """One size, in a job whose ranks start as `program` says."""
    words = ("tune", tuning, "--collectives", "gather", "--sizes", "8", "--iterations", "1")
    command = [RUN, "-n", "2", "--nodes", "2", "--keep-going", *program, PROBE, *words]
    env = environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2")
    return run([*command, "--model", model], env=env, limit=60)


def test_tune_with_a_model():
    """Only rank 0 has the file; what is wrong with it is told to all before anything is done."""
    elsewhere = 'cd "$0/$PMIX_RANK"; exec "$@"'
    with tempfile.TemporaryDirectory() as folder:
        for rank in ("0", "1"):
            os.mkdir(os.path.join(folder, rank))
        tuning, model = (os.path.join(folder, name) for name in ("t.json", "0/model.json"))
        with open(model, "w", encoding="utf-8") as stream:
            json.dump({"context": "made up", "latency_us": 3}, stream)
        result = tune_gathers(tuning, "model.json", "sh", "-c", elsewhere, folder)
        expect(result.code == 0, "a file that only rank 0 has", result)
        with open(tuning, encoding="utf-8") as stream:
            written = stream.read()
        expect(json.loads(written)["model"]["latency_us"] == 3, written, result)
        for text, said in (
            ('{"background": 1}', "background"),
            ('{"stripe_bytes": -1}', "'stripe_bytes'"),
            ("[", "no object of parameters"),
            (None, "cannot be read"),
        ):
            if text is None:
                os.remove(model)
            else:
                with open(model, "w", encoding="utf-8") as stream:
                    stream.write(text)
            result = tune_gathers(tuning, model)
            expect(result.code == 1, "it is taken: %s" % text, result)
            told = [line for line in result.err.splitlines() if said in line and model in line]
            expect(len(told) == 2, "it is not told by both ranks: %s" % text, result)
            expect("bytes" not in result.out, "it was measured before: %s" % text, result)
            with open(tuning, encoding="utf-8") as stream:
                expect(stream.read() == written, "the old file is gone: %s" % text, result)


def test_tune_finds_wrong_options():
    for words, said in (
        (("tune",), "file to write"),
        (("allgather", "t.json"), "--json"),
        (("tune", "t.json", "--algorithm", "ring"), "--algorithm"),
        (("tune", "t.json", "--collectives", "reduce"), "reduce"),
        (("tune", "t.json", "--collectives", "gather,gather"), "gather stands there twice"),
        (("put", "--mode", "streaming"), "--mode: it is for calls of one collective, not for put"),
    ):
        result = job(2, *words, limit=60, env=environment())
        expect(result.code not in (0, None), "%s is taken" % (words,), result)
        expect(said in result.err + result.out, "it does not name what is wrong", result)
    result = job(2, *("tune", "/nowhere/t.json", "--collectives", "gather", "--sizes", "8"),
                 "--iterations", "1", limit=60, env=environment())
    expect(result.code not in (0, None) and "/nowhere/t.json" in result.err, "no file", result)


if __name__ == "__main__":
    globals()["test_" + BEHAVIOUR]()
