"""Plans that are started, tested and waited for: their bytes, their errors, who makes progress."""

import re
import sys

from faults_test import kill_one
from support import expect, job, jobs_at_once, main, part_of, reports, seeds

WITH_BUFFERS = (
    "allgather",
    "allgatherv",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "broadcast",
    "alltoall",
    "alltoallv",
)
COLLECTIVES = (*WITH_BUFFERS, "barrier")
SMALL = "0,1,7,100,4096,16385"
MIXED = "0,1,7,100,4096,16385,70000,300001"


def plans(ranks, nodes, seed, env=None, **words):
    values = {"seed": seed, "steps": 150, "sizes": MIXED, **words}
    result = job(ranks, nodes, "plans", *("%s=%s" % pair for pair in values.items()), env=env)
    what = "%d ranks on nodes %s, settings %s, %s" % (ranks, nodes, env, values)
    expect(result.code == 0 and "plans done" in result.out, what, result)
    print("%s: %.1f s" % (what, result.seconds))


def test_one_node():
    for ranks in (1, 2, 3, 5):
        for seed in seeds(1, 20):
            plans(ranks, None, seed)


def test_one_rank_per_node():
    for ranks in (2, 3, 4):
        for seed in seeds(1, 20):
            plans(ranks, str(ranks), seed)


def test_uneven_nodes():
    for ranks, nodes in ((4, "2"), (6, "3+1+2"), (6, "cyclic:3"), (6, "0,1,0,2,1,1")):
        for seed in seeds(1, 20):
            plans(ranks, nodes, seed)


def test_by_test_alone():
    for ranks, nodes in ((3, None), (4, "4"), (4, "2")):
        for seed in seeds(1, 10):
            plans(ranks, nodes, 100 + seed, how="test")


def test_local_puts_by_rail():
    for ranks, nodes in ((3, None), (4, "2")):
        for seed in seeds(1, 10):
            plans(ranks, nodes, seed, env={"ALLRAIL_LOCAL_PUTS": "rail"})


def test_little_memory():
    """Calls of many slices beside calls of one, and more plans in flight than there are slots."""
    for ranks, nodes in ((2, None), (3, "3"), (4, "2")):
        for seed in seeds(1, 10):
            env = {"ALLRAIL_NODE_MEMORY": "1M"}
            plans(ranks, nodes, seed, env=env, sizes="8,5000,1000001", plans=9, steps=100)
            plans(ranks, nodes, seed, env=env, sizes=SMALL, plans=40, steps=400)


def test_zero_copy():
    """Blocks that go straight between user buffers, some of them registered for many starts."""
    for ranks in (2, 3):
        for seed in seeds(1, 10):
            sizes = "8,2097152,2500001"
            plans(ranks, str(ranks), seed, sizes=sizes, plans=5, steps=60, algorithms="auto,ring")


def test_zero_copy_slices():
    """A block of more than one put: every slice names its place in the one registered buffer."""
    result = job(2, "2", "huge", "bytes=%d" % (600 << 20), "starts=2", limit=400)
    expect(result.code == 0 and "huge done" in result.out, "two starts of two slices", result)


def test_helper():
    """A rank that computes passes blocks on: nobody has to wait until it calls again."""
    for ranks, nodes, size in ((4, "4", 1000), (4, "4", 300_000), (3, "3", 3_000_000)):
        result = job(ranks, nodes, "plan-helper", "bytes=%d" % size, "sleep=8")
        what = "%d ranks on nodes %s, %d bytes" % (ranks, nodes, size)
        expect(result.code == 0, what, result)
        found = re.findall(r"rank (\d+) after (\S+)", result.out)
        expect(len(found) == ranks, what, result)
        for rank, after in found:
            expect(rank == "1" or float(after) < 6, "waits for the helper; " + what, result)
        print("%s: %s" % (what, found))


# ---- a rank dies ----


def kill_with_plans(nodes, size, algorithms, count=5):
    ranks = 6 if nodes == "4" else 4 if nodes is None else int(nodes)
    times = [
        kill_one(seed, ranks, nodes, size, algorithms, mode="plan-loop")
        for seed in seeds(count, 40)
    ]
    print("%d kills, known on all ranks after %.3f s at most" % (len(times), max(times)))


def test_kill_one_node():
    kill_with_plans(None, 64, ("", "ring"))
    kill_with_plans(None, 1_000_000, ("", "bruck"), 3)


def test_kill_four_nodes():
    kill_with_plans("4", 64, ("", "direct", "smp-ring", "smp-bruck"))
    kill_with_plans("4", 500_000, ("", "ring", "smp-ring"), 3)


def test_kill_zero_copy():
    kill_with_plans("3", 2_500_000, ("", "ring"), 4)


# ---- plans used wrongly ----


def misuse(kind, name, ranks, nodes, size=1000):
    words = ("kind=" + kind, "case=" + name, "bytes=%d" % size)
    result = job(ranks, nodes, "plan-misuse", *words, limit=100)
    what = "%s of %d bytes, %d ranks on nodes %s" % (name, size, ranks, nodes)
    return reports(result, ranks), what, result


def names_of(kind):
    return job(1, None, "plan-misuse", "kind=" + kind).out.split()


DEADLY = {
    "started-twice": ("invalid-argument", "aborted"),
    "receive-size": ("invalid-argument", "aborted"),
    "algorithm": ("invalid-argument", "aborted"),
    "other-order": ("mismatch", "mismatch"),
    "one-start-less": ("mismatch", "mismatch"),
}


def check_deadly(name, ranks, found, what, result):
    for rank, one in found.items():
        code = DEADLY[name][0 if rank == 1 else 1]
        expect(one.code == code, "rank %d: %r; %s" % (rank, one, what), result)
        # Who made the mistake may be told by itself once, and finds the communicator dead then.
        expect(one.again == "aborted", "rank %d: %r; %s" % (rank, one, what), result)


def check_misuse(ranks, nodes, sizes):
    cases = [(kind, name) for kind in ("harmless", "lifetime") for name in names_of(kind)]
    for number, (kind, name) in enumerate(cases):
        for size in part_of(sizes, number % len(sizes), len(sizes)):
            _, what, result = misuse(kind, name, ranks, nodes, size)
            expect(result.code == 0 and result.out.count(" error: none") == ranks, what, result)
    expect(set(names_of("deadly")) == set(DEADLY), "every case has its codes")
    for name in DEADLY:
        check_deadly(name, ranks, *misuse("deadly", name, ranks, nodes))


def test_misuse_one_node():
    check_misuse(3, None, (1000,))


def test_misuse_four_nodes():
    check_misuse(4, "4", (1000, 2_500_000))


def misuse_of_every(kind, names, ranks, nodes):
    """The same with a plan of every collective but allgather, with which all the others are."""
    # Of barriers there are no two kinds, and nothing of them could be wrong.
    of_others = ("receive-size", "algorithm", "other-order")
    of_barriers = [name for name in names if name not in of_others]
    cases = [(name, one) for one in WITH_BUFFERS[1:] for name in names]
    cases += [(name, "barrier") for name in of_barriers]
    words = [
        (nodes, "plan-misuse", "kind=" + kind, "case=" + name, "collective=" + one)
        for name, one in cases
    ]
    for (name, one), result in zip(cases, jobs_at_once(ranks, words)):
        what = "%s of %s, %d ranks on nodes %s" % (name, one, ranks, nodes)
        yield name, reports(result, ranks), what, result


def test_misuse_of_every_collective():
    for nodes, some in ((None, ("started-twice",)), ("2+1", DEADLY)):
        for name, found, what, result in misuse_of_every("deadly", some, 3, nodes):
            check_deadly(name, 3, found, what, result)
    names = ("destroyed-before-it-ends", "communicator-goes-while-it-runs", "never-started")
    for kind, some in (("lifetime", names[:2]), ("harmless", names[2:])):
        for _, _, what, result in misuse_of_every(kind, some, 3, "2+1"):
            expect(result.code == 0 and result.out.count(" error: none") == 3, what, result)


def test_destroyed():
    """A plan is destroyed that cannot end: an Error on all ranks after a second, never a hang."""
    for ranks, nodes, size in ((3, None, 1000), (4, "4", 1000), (3, "3", 2_500_000)):
        found, what, result = misuse("stuck", "destroyed-while-it-runs", ranks, nodes, size)
        for rank, one in found.items():
            expect(one.code == "aborted", "rank %d: %r; %s" % (rank, one, what), result)
            expect("destroyed while it ran" in one.text, "%r; %s" % (one, what), result)
            expect(one.after < 6, "%r; %s" % (one, what), result)
    names = ("destroyed-while-it-runs",)
    for nodes in (None, "2+1"):
        for _, found, what, result in misuse_of_every("stuck", names, 3, nodes):
            for rank, one in found.items():
                expect(one.code == "aborted", "rank %d: %r; %s" % (rank, one, what), result)
                expect("destroyed while it ran" in one.text, "%r; %s" % (one, what), result)


def test_timeout():
    """In wait() and in test(), counted from start()."""
    for name in ("timeout-in-wait", "timeout-in-test", "timeout-from-start"):
        for ranks, nodes, size in ((3, None, 1000), (4, "4", 1000), (4, "4", 200_000)):
            found, what, result = misuse("stuck", name, ranks, nodes, size)
            least = 1.5 if name == "timeout-from-start" else 0.7
            for rank, one in found.items():
                expect(
                    one.code == "timeout",
                    "rank %d: %r; %s" % (rank, one, what),
                    result,
                )
                if rank != 1:
                    # The first one whose time is over tells the others, who began a moment later.
                    expect(least - 0.3 < one.after < least + 10, "%r; %s" % (one, what), result)
                    expect("ALLRAIL_TIMEOUT" in one.text, "%r; %s" % (one, what), result)


def test_late_in_every_collective():
    """CallOptions::timeout ends a call and a plan that a rank is late in, and names that rank."""
    # Nodes tell each other whom they wait for four times a second.
    times = ("timeout_ms=2000", "late=5")
    names = ("timeout-of-the-call", "timeout-in-wait")
    cases = [
        (nodes, name, one)
        for nodes in (None, "2+1")
        for name in names[: 2 if nodes else 1]
        for one in COLLECTIVES
    ]
    words = [
        (nodes, "plan-misuse", "kind=stuck", "case=" + name, "collective=" + one, *times)
        for nodes, name, one in cases
    ]
    for (nodes, name, collective), result in zip(cases, jobs_at_once(3, words)):
        for rank, one in reports(result, 3).items():
            what = "rank %d: %r; %s of %s on nodes %s" % (rank, one, name, collective, nodes)
            expect(one.code == "timeout" and one.peer == 1, what, result)
            # Of an alltoallv it is the exchange of its counts.
            for word in (collective, "rank 1", "ALLRAIL_TIMEOUT"):
                expect(word in one.text, "%s: %s" % (word, what), result)


def test_timeout_of_two_exchanges():
    """Of an alltoallv the timeout is that of the exchange of counts and of the blocks together."""
    words = ("kind=stuck", "case=timeout-of-both-exchanges", "collective=alltoallv")
    result = job(3, "2+1", "plan-misuse", *words, "timeout_ms=4000", "late=2.8", limit=40)
    for rank, one in reports(result, 3).items():
        if rank != 1:
            expect(one.code == "timeout", "rank %d: %r" % (rank, one), result)


def test_made_at_different_times():
    """Making a plan is local: before and after the ranks learn that their rails are fast, as they
    do here if the machine lets them, and beside ranks that make the same call without a plan."""
    for ranks, nodes in ((8, "4"), (4, "4"), (5, "3+1+1")):
        result = job(ranks, nodes, "pace")
        what = "%d ranks on nodes %s" % (ranks, nodes)
        expect(result.code == 0 and "pace done" in result.out, what, result)


def test_mixed_collectives():
    """Plans of all collectives in flight at once, which end in an order of every rank's own."""
    for ranks, nodes, env in (
        (1, None, None),
        (3, None, None),
        (4, "4", None),
        (5, "3+1+1", None),
        (6, "0,1,0,2,1,1", {"ALLRAIL_LOCAL_PUTS": "rail"}),
        (4, "2", {"ALLRAIL_NODE_MEMORY": "1M"}),
    ):
        for seed in seeds(1, 20):
            result = job(ranks, nodes, "mixed-plans", "seed=%d" % seed, env=env)
            what = "seed %d: %d ranks on nodes %s, settings %s" % (seed, ranks, nodes, env)
            expect(result.code == 0 and "mixed-plans done" in result.out, what, result)
            print("%s: %.1f s" % (what, result.seconds))


def test_barriers():
    """A barrier, and one by a plan, has ended nowhere before it began everywhere."""
    for ranks, nodes in ((1, None), (3, None), (4, "4"), (5, "3+1+1"), (6, "0,1,0,2,1,1")):
        for how in ("call", "plan"):
            result = job(ranks, nodes, "barriers", "how=" + how)
            what = "%d ranks on nodes %s, by %s" % (ranks, nodes, how)
            expect(result.code == 0 and "barriers done" in result.out, what, result)


def test_barrier_beside_a_planned_one():
    """They do not match, on any rank."""
    for ranks, nodes in ((3, None), (4, "2")):
        result = job(ranks, nodes, "barriers", "how=mixed")
        for rank, one in reports(result, ranks).items():
            what = "rank %d: %r; %d ranks on nodes %s" % (rank, one, ranks, nodes)
            expect(one.code == "mismatch" and "barrier" in one.text, what, result)


if __name__ == "__main__":
    sys.exit(main(globals()))
