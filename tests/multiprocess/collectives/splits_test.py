"""Communicators that are split off: who is in them, their bytes, their ends, and their errors."""

import os
import re
import signal
import sys
import time

from support import (
    LONG,
    check_clean,
    end_job,
    expect,
    job,
    main,
    part_of,
    reports,
    seeds,
    start_job,
    wait_for_pids,
)


def run(ranks, nodes, mode, env=None, **words):
    result = job(ranks, nodes, mode, *("%s=%s" % pair for pair in words.items()), env=env)
    what = "%s: %d ranks on nodes %s, settings %s, %s" % (mode, ranks, nodes, env, words)
    expect(result.code == 0 and mode + " done" in result.out, what, result)
    print("%s: %.1f s" % (what, result.seconds), flush=True)


def sequences(shapes, env=None, calls=120, **words):
    for ranks, nodes, columns in shapes:
        for seed in seeds(1, 20):
            count = 600 if LONG else calls
            run(ranks, nodes, "splits", env=env, seed=seed, columns=columns, calls=count, **words)


def test_splits_one_node():
    sequences(((1, None, 1), (2, None, 2), (4, None, 2), (6, None, 3)))


def test_splits_one_rank_per_node():
    sequences(((2, "2", 1), (4, "4", 2)))


def test_splits_shared_nodes():
    sequences(((4, "2", 2), (6, "3+1+2", 3), (6, "cyclic:3", 2), (8, "4", 4)))


def test_splits_local_puts_by_rail():
    sequences(((4, "2", 2), (3, None, 3)), env={"ALLRAIL_LOCAL_PUTS": "rail"})


def test_splits_little_memory():
    """Parts of a node have a part of its memory, so that more calls are cut into slices."""
    sequences(((4, "2", 2), (6, "cyclic:3", 3)), env={"ALLRAIL_NODE_MEMORY": "1M"})


def test_split_plans():
    """Plans in flight on all communicators of a rank, which every rank awaits in its own order."""
    for ranks, nodes, columns in ((4, None, 2), (4, "4", 2), (6, "3", 3), (6, "3+1+2", 2)):
        for seed in seeds(1, 20):
            run(ranks, nodes, "split-plans", seed=seed, columns=columns)


def test_split_lifetimes():
    for ranks, nodes in ((1, None), (3, None), (4, "4"), (5, "3"), (4, "2")):
        run(ranks, nodes, "split-lifetimes")


def test_split_refused():
    """A rank that may not open another file: the same Error on all ranks, and the job goes on."""
    for nodes, spares in (("4", (0, 1, 6, 13)), ("2", (0, 1, 12)), (None, (0, 1))):
        for spare in spares:
            result = job(4, nodes, "split-refused", "spare=%d" % spare, limit=60)
            found = reports(result, 4)
            what = "4 ranks on nodes %s, %d descriptors to spare" % (nodes, spare)
            expect(result.code == 0 and result.out.count("goes on") == 4, what, result)
            for rank, one in found.items():
                told = one.text == found[1].text and "split: rank 1 cannot start" in one.text
                expect(told and one.peer == 1, "rank %d: %r; %s" % (rank, one, what))
            print("%s: %s" % (what, found[0].text))


# ---- a rank dies ----


def kill(seed, ranks, nodes, bytes_, victim, **words):
    what = "seed %d: %d ranks on nodes %s, rank %d killed, %s" % (seed, ranks, nodes, victim, words)
    began = time.monotonic()
    values = {"bytes": bytes_, "columns": 2, **words}
    process = start_job(ranks, nodes, "split-loop", *("%s=%s" % pair for pair in values.items()))
    pids = wait_for_pids(process, ranks)
    time.sleep(0.03 * (seed % 8))
    os.kill(pids[victim], signal.SIGKILL)
    killed = time.monotonic()
    result = end_job(process, began, 25)
    expect(result.code in (137, 42), what, result)
    for rank, one in reports(result, ranks).items():
        if rank == victim:
            continue
        expect(one.code == "peer-lost", "rank %d: %r; %s" % (rank, one, what), result)
        again = [line for line in one.lines if " again: " in line]
        expect(len(again) == 3, "no communicator is left: %r; %s" % (again, what), result)
        for line in again:
            expect(re.search("again: (peer-lost|aborted) ", line), line + "; " + what, result)
        busy = words.get("where") == "elsewhere" and rank >= 2 and rank % 2 == 1
        limit = 12 if busy else 4
        expect(one.at - killed < limit, "after %.3f s; %s" % (one.at - killed, what), result)
    check_clean()


def test_split_kill_one_node():
    for seed in seeds(4, 40):
        kill(seed, 4, None, (64, 300_000)[seed % 2], seed % 4)


def test_split_kill_four_nodes():
    for seed in seeds(6, 60):
        kill(seed, 6, ("4", "cyclic:3")[seed % 2], (64, 300_000)[seed // 2 % 2], seed % 6)


def test_split_kill_elsewhere():
    """Ranks that wait in a communicator without the dead rank are told, too."""
    for seed in seeds(3, 20):
        for nodes in part_of((None, "6", "3"), seed % 3, 3):
            kill(seed, 6, nodes, 64, seed % 2, where="elsewhere")


# ---- calls that differ ----


def fault(case, ranks, nodes):
    result = job(ranks, nodes, "split-fault", "case=" + case, "columns=2", limit=60)
    what = "%s, %d ranks on nodes %s" % (case, ranks, nodes)
    expect(result.code != 0, what, result)
    found = reports(result, ranks)
    for rank, one in found.items():
        expect(one.code is not None, "rank %d: %r; %s" % (rank, one, what), result)
        again = [line for line in one.lines if " again: " in line]
        expect(len(again) == 3, "rank %d: %r; %s" % (rank, again, what), result)
        expect("again: no error" not in again, "rank %d: %r; %s" % (rank, again, what), result)
    return found, what, result


def test_split_faults():
    for ranks, nodes in ((4, None), (4, "4"), (4, "2"), (6, "3+1+2")):
        found, what, result = fault("other-size", ranks, nodes)
        for rank, one in found.items():
            expect(one.code == "mismatch", "rank %d: %r; %s" % (rank, one, what), result)
        found, what, result = fault("arguments", ranks, nodes)
        for rank, one in found.items():
            code = "invalid-argument" if rank == 1 else "aborted"
            expect(one.code == code, "rank %d: %r; %s" % (rank, one, what), result)
        found, what, result = fault("late", ranks, nodes)
        for rank, one in found.items():
            expect(one.code == "timeout", "rank %d: %r; %s" % (rank, one, what), result)


def test_split_mixed_up():
    """Rank 0 waits in its row for rank 1, and rank 1 for all in the communicator of the job."""
    for ranks, nodes in ((4, None), (4, "2"), (4, "4"), (6, "3+1+2")):
        found, what, result = fault("other-communicator", ranks, nodes)
        # Ranks of one node see it at once; of different ones each may be on its way.
        code = "timeout" if nodes == "4" else "mismatch"
        for rank, one in found.items():
            expect(one.code == code, "rank %d: %r; %s" % (rank, one, what), result)
        print("%s: %s" % (what, found[0].text))



if __name__ == "__main__":
    sys.exit(main(globals()))
