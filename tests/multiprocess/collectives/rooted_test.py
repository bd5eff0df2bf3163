"""Every byte of gather, scatter, broadcast and alltoall, in all their forms."""

import sys

from correctness_test import MAPS, SETTINGS
from support import LONG, expect, job, main, seeds


SIZES = "0,1,8,100,4096,16385,70000"


def grid(ranks, nodes, every, env=None, **words):
    """A sample of all calls, with every size and, without any of the forms, every root in it."""
    values = {"sizes": SIZES, "every": 1 if LONG else every, "first": ranks, **words}
    result = job(ranks, nodes, "rooted-grid", *("%s=%s" % pair for pair in values.items()), env=env)
    what = "%d ranks on nodes %s, settings %s, every %d" % (ranks, nodes, env, every)
    expect(result.code == 0 and "rooted-grid done" in result.out, what, result)
    met = "of %d sizes by %d roots" % (len(values["sizes"].split(",")), ranks)
    expect(met in result.out, "%s: not %s" % (what, met), result)
    print("%s: %.1f s, %s" % (what, result.seconds, result.out.strip()))


def test_rooted_one_node():
    for ranks, every in ((1, 1), (2, 1), (3, 1), (5, 1)):
        grid(ranks, None, every)


def test_rooted_one_rank_per_node():
    for ranks, every in ((2, 1), (3, 1), (5, 1)):
        grid(ranks, str(ranks), every)


def test_rooted_shared_nodes():
    for ranks, nodes, every in (
        (4, "2", 1),
        (6, "3+1+2", 1),
        (6, "0,1,0,2,1,1", 1),
        (9, "cyclic:4", 1),
        (12, "5", 1),
    ):
        grid(ranks, nodes, every)


def test_rooted_local_puts_by_rail():
    for ranks, nodes, every in ((3, None, 1), (6, "3+1+2", 1)):
        grid(ranks, nodes, every, env={"ALLRAIL_LOCAL_PUTS": "rail"})


def test_rooted_little_memory():
    """Blocks that are cut into slices."""
    for ranks, nodes, every in ((3, "3", 1), (4, "2", 1), (4, None, 1)):
        grid(ranks, nodes, every, env={"ALLRAIL_NODE_MEMORY": "1M"}, sizes="100000,700001")


def test_rooted_zero_copy():
    """Large blocks of alltoalls, gathers and scatters go straight between user buffers."""
    sizes = "524287,524288,1048575,1048576,1500001"
    words = {"algorithms": "direct,smp-direct", "sizes": sizes}
    for more in ({}, {"blocking": 1}, {"mixed": 1}, {"mixed": 1, "blocking": 1}):
        grid(3, "3", 1, **words, **more)
    few_slots = {"ALLRAIL_NODE_MEMORY": "1M"}
    grid(4, "3,1,0,2", 1, **words, ports="1", env=few_slots)


def test_rooted_zero_copy_shared_nodes():
    """Every rank puts to ranks of other nodes itself, and its node's blocks go through the slot."""
    words = {"algorithms": "direct,smp-direct", "sizes": "262143,262144,1048575,1048577"}
    for more in ({}, {"blocking": 1}, {"mixed": 1}, {"mixed": 1, "blocking": 1}):
        grid(4, "2", 1, **words, **more)
    grid(6, "3+1+2", 2, **words)
    grid(6, "0,1,0,2,1,1", 2, **words, ports="1")
    # What nodes keep to themselves does not fit into a slot: slices, each with tokens of its own.
    few_slots = {"ALLRAIL_NODE_MEMORY": "1M"}
    grid(4, "2", 1, **words, env=few_slots)
    grid(5, "1+4", 1, **words, env=few_slots)


def test_rooted_registrations():
    """Rails know what they read or put into: one buffer of a rank, and none beside the root."""
    for root in (0, 3):
        result = job(4, "2", "rooted-registrations", "root=%d" % root)
        what = "straight gathers and scatters with root %d" % root
        expect(result.code == 0, what, result)
        for rank in range(4):
            each = 0 if rank == (root ^ 1) else 1
            line = "rank %d registered" % rank + 4 * (" %d" % each)
            expect(line in result.out.splitlines(), "%s: '%s'" % (what, line), result)


def test_rooted_leaders():
    """Each call has as many leaders as it asks for, also where an earlier one asked for others."""
    result = job(4, "2", "rooted-leaders")
    expect(result.code == 0, "alltoalls with one leader and two", result)
    said = sorted(line.split(" put ")[1] for line in result.out.splitlines() if " put " in line)
    both = ["nothing something nothing"] * 2 + ["something something something"] * 2
    expect(said == both, "leaders: %s" % said, result)


def test_repeated_alltoallvs():
    """Every byte where counts repeat, change a little, much, or on a part of the ranks only."""
    for seed in seeds(12, 120):
        ranks, nodes = MAPS[seed % len(MAPS)]
        settings = SETTINGS[seed % len(SETTINGS)]
        words = ("repeats", "seed=%d" % seed, "calls=%d" % (200 if LONG else 60))
        result = job(ranks, nodes, *words, env=settings, limit=100)
        what = "seed %d: %d ranks on nodes %s, settings %s" % (seed, ranks, nodes, settings)
        expect(result.code == 0 and "repeats done, seed %d\n" % seed in result.out, what, result)


def test_counts_are_exchanged_once():
    """A repeated alltoallv puts its blocks and nothing else. Counts are exchanged by the first, by
    one whose blocks are longer, until those of two calls in a row fit, and once more where what was
    expected turns out much too long."""
    words = ("repeats-put", "sizes=2000,2000,2000,600,6000,6000,2000,2000,2000,2000,2000")
    result = job(3, "3", *words)
    expect(result.code == 0, "repeated alltoallvs", result)
    said = [line.split(" put ")[1] for line in result.out.splitlines() if " put " in line]
    expect(said == ["4 2 2 2 6 4 2 4 2 2 2"] * 3, "chunks put: %s" % said, result)


def test_choice_follows_repeated_alltoallvs():
    """By recursive doubling up to 1 KiB, in two puts, and else by three: a call goes by what the
    one before had, whatever its blocks travel in."""
    words = ("repeats-put", "algorithm=", "sizes=2048,2048,2048,1024,1024,1024,2048,2048")
    result = job(4, "4", *words)
    expect(result.code == 0, "repeated alltoallvs", result)
    said = [line.split(" put ")[1] for line in result.out.splitlines() if " put " in line]
    expect(said == ["5 3 3 3 2 2 2 3"] * 4, "chunks put: %s" % said, result)


def test_expected_counts_without_room():
    """Empty blocks fit into little memory where what they would travel in does not: then counts are
    exchanged as before."""
    words = ("repeats-put", "algorithm=direct")
    result = job(28, None, *words, env={"ALLRAIL_NODE_MEMORY": "1M"}, limit=100)
    expect(result.code == 0, "28 ranks with 1 MiB", result)


def sequences(first, step):
    for seed in seeds(12, 240):
        if len(seeds(12, 240)) > 1 and seed % step != first:
            continue
        ranks, nodes = MAPS[seed % len(MAPS)]
        settings = SETTINGS[seed % len(SETTINGS)]
        words = ("rooted-sequence", "seed=%d" % seed, "calls=%d" % (300 if LONG else 80))
        result = job(ranks, nodes, *words, env=settings, limit=100)
        what = "seed %d: %d ranks on nodes %s, settings %s" % (seed, ranks, nodes, settings)
        done = "rooted-sequence done, seed %d\n" % seed in result.out
        expect(result.code == 0 and done, what, result)
        print("%s: %.1f s" % (what, result.seconds), flush=True)


def test_rooted_sequences_a():
    sequences(0, 2)


def test_rooted_sequences_b():
    sequences(1, 2)


if __name__ == "__main__":
    sys.exit(main(globals()))
