"""Results that are stored once per node."""

import os
import sys

from faults_test import kill_many, kill_one
from support import ALGORITHMS, LONG, expect, job, main, reports, seeds


def check_done(what, ranks, nodes, *words, **others):
    result = job(ranks, nodes, *words, **others)
    line = " %s done" % words[0]
    expect(
        result.code == 0 and result.out.count(line) == ranks,
        "%s: %d ranks on nodes %s" % (what, ranks, nodes),
        result,
    )


def test_node_buffers_one_node():
    for ranks in (1, 2, 3, 5):
        check_done("one node", ranks, None, "node-buffers")
    env = {"ALLRAIL_LOCAL_PUTS": "rail"}
    check_done("local puts by rail", 3, None, "node-buffers", env=env)


def test_node_buffers_one_rank_per_node():
    for ranks in (2, 3, 5):
        check_done("one rank per node", ranks, str(ranks), "node-buffers")


def test_node_buffers_shared_nodes():
    """Blocks of a node that do not lie beside each other take several puts."""
    for ranks, nodes in ((3, "2"), (4, "2"), (6, "3+1+2"), (4, "cyclic:2"), (6, "cyclic:3")):
        check_done("several ranks per node", ranks, nodes, "node-buffers")
    check_done("irregular", 6, "0,1,1,0,2,1", "node-buffers")


def test_node_buffers_by_every_algorithm():
    """What has no straight form goes through the segment; a flat name means the form over nodes."""
    words = ("algorithms=" + ",".join(ALGORITHMS), "sizes=0,9,70001")
    for ranks, nodes, ports in ((3, None, 1), (4, "2", 1), (5, "2+1+1+1", 2), (6, "cyclic:3", 2)):
        check_done("all algorithms", ranks, nodes, "node-buffers", *words, "ports=%d" % ports)


def test_node_buffers_little_memory():
    """Results are larger than any slot: only what is copied goes in slices."""
    env = {"ALLRAIL_NODE_MEMORY": "1M"}
    words = ("algorithms=auto,smp-bruck", "sizes=1000,1000001")
    for ranks, nodes in ((4, "2"), (5, "2+1+2")):
        check_done("little memory", ranks, nodes, "node-buffers", *words, env=env)
    # What one rank copies for all of them may take several slices, too.
    core = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))
    check_done("by one", 13, None, "node-buffers", "sizes=9000,16384", env=env, prefix=core)


def test_node_buffer_scribble():
    """A rank that has returned may write into its block at once."""
    for ranks, nodes, node_of in ((4, "2", "0,0,1,1"), (6, "3", "0,0,1,1,2,2")):
        for size in (8, 200_000, 3_000_000):
            words = ("bytes=%d" % size, "node-of=" + node_of)
            check_done("%d bytes" % size, ranks, nodes, "scribble", *words)


def check_differs(case, ranks, nodes, *named, rank=1, size=1000):
    words = ("case=" + case, "bytes=%d" % size, "rank=%d" % rank)
    result = job(ranks, nodes, "node-buffer-faults", *words, limit=40)
    what = "%s on rank %d, %d bytes, %d ranks on nodes %s" % (case, rank, size, ranks, nodes)
    for number, one in reports(result, ranks).items():
        text = "rank %d: %r; %s" % (number, one, what)
        expect(one.code == "mismatch" and one.again == "aborted", text, result)
        expect(all(word in one.text for word in named), text, result)
        expect(one.after < 3, text, result)


def test_node_buffer_differs_in_a_node():
    layouts = ((2, None), (4, "2"), (5, "3+1+1"))
    for ranks, nodes in layouts:
        for case in ("another-buffer", "another-offset", "other-displacements"):
            check_differs(case, ranks, nodes, "names another NodeBuffer")
        check_differs("another-offset", ranks, nodes, "NodeBuffer", size=300_000)
        for case in ("ordinary-memory", "a-buffer"):
            check_differs(case, ranks, nodes, "kind of memory")


def test_node_buffer_differs_between_nodes():
    for ranks, nodes in ((2, "2"), (3, "3"), (4, "cyclic:2")):
        for case in ("ordinary-memory", "a-buffer"):
            for size in (1000, 2_000_000):
                check_differs(case, ranks, nodes, "must make the same", size=size)
        for case in ("count", "allocate"):
            check_differs(case, ranks, nodes, "allocate_node_shared")
    check_differs("count", 3, None, "allocate_node_shared", rank=2)


def test_node_buffer_gone():
    """It ends before a plan that uses it: the plan ends first, and cannot start again."""
    for case in ("gone-while-idle", "gone-while-it-runs"):
        for ranks, nodes, size in ((2, None, 1000), (4, "2", 1000), (3, "3", 1_300_001)):
            words = ("case=" + case, "bytes=%d" % size)
            result = job(ranks, nodes, "node-buffer-faults", *words, limit=40)
            what = "%s of %d bytes, %d ranks on nodes %s" % (case, size, ranks, nodes)
            for rank, one in reports(result, ranks).items():
                text = "rank %d: %r; %s" % (rank, one, what)
                expect(one.code == ("invalid-argument" if rank == 1 else "aborted"), text, result)
                expect("must outlive its plans" in one.text, text, result)
                expect(one.again == "aborted", text, result)


def test_node_buffer_rests():
    """Ranks have the error when all of their node have given the call up: no byte changes then."""
    for ranks, nodes, victim in ((5, "2", 0), (5, "2", 3), (4, None, 2), (6, "3", 5)):
        for call in range(3, 3 + (20 if LONG else 2)):
            words = ("memory=node", "rests=1", "dies=%d" % victim, "dies_in=%d" % call)
            result = job(ranks, nodes, "loop", "bytes=1500000", "seconds=30", *words, limit=40)
            what = "rank %d of %d on nodes %s in call %d" % (victim, ranks, nodes, call)
            expect(result.out.count("the bytes rest") == ranks - 1, what, result)


def test_node_buffer_kill_one_node():
    kill_many(None, 2_000_000, ("",), words=("memory=node",))


def test_node_buffer_kill_many_nodes():
    for size in (64, 1_500_000):
        kill_many("3", size, ("", "smp-ring", "smp-bruck"), words=("memory=node",))


def test_node_buffer_kill_on_shared_cores():
    """Small blocks are copied by one rank for all of them there, and it may be the one killed."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:2])
    try:
        for seed in seeds(8, 60):
            kill_one(seed, 8, None, 4096, ("",), words=("memory=node",))
    finally:
        os.sched_setaffinity(0, allowed)


if __name__ == "__main__":
    sys.exit(main(globals()))
