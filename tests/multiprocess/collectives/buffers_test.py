"""Memory that Allrail gives, and memory of the user that is unmapped between two calls."""

import sys

from support import expect, in_namespaces, job, main, reports


def check_done(what, ranks, nodes, *words, **others):
    result = job(ranks, nodes, *words, **others)
    line = " %s done" % words[0]
    expect(
        result.code == 0 and result.out.count(line) == ranks,
        "%s: %d ranks on nodes %s" % (what, ranks, nodes),
        result,
    )


def test_buffers_one_rank_per_node():
    for ranks in (2, 3, 5):
        check_done("Buffers", ranks, str(ranks), "buffers")


def test_buffers_shared_nodes():
    """Ranks of one node have their parts of one file, whose name is gone as soon as all have it."""
    for ranks, nodes in ((1, None), (3, None), (6, "3+1+2"), (4, "cyclic:2")):
        check_done("Buffers", ranks, nodes, "buffers")


def test_buffers_in_slices():
    """Little node memory: what is not zero-copy goes in slices."""
    env = {"ALLRAIL_NODE_MEMORY": "1M"}
    check_done("slices", 4, "4", "buffers", env=env)
    check_done("slices", 4, "2", "buffers", env=env)


def test_remap():
    """A cache of registrations by address would be wrong here, without a word."""
    for ranks in (2, 4):
        check_done("munmap and mmap", ranks, str(ranks), "remap")
    check_done("blocks that are copied", 3, "3", "remap", "bytes=70001", "zero-copy=0")
    check_done("one node", 3, None, "remap", "bytes=300001", "zero-copy=0")


def check_too_large(ranks, nodes, odd, size, prefix=()):
    what = "%d ranks on nodes %s, rank %d asks for %d bytes" % (ranks, nodes, odd, size)
    result = job(ranks, nodes, "too-large", "rank=%d" % odd, "bytes=%d" % size, prefix=prefix)
    expect(result.code == 0 and result.out.count(" goes on") == ranks, what, result)
    for rank, one in reports(result, ranks).items():
        expect(one.code == "resource-limit", "rank %d: %r; %s" % (rank, one, what), result)
        expect(odd < 0 or one.peer == odd, "rank %d: %r; %s" % (rank, one, what), result)
        greedy = odd < 0 or rank == odd
        words = ("/dev/shm", "allocate less") if greedy else ("rank %d" % odd, "no rank keeps")
        # Whoever makes the file says so first, for all ranks of its node.
        expect(
            all(word in one.text for word in words) or "did not get" in one.text,
            "rank %d: %r; %s" % (rank, one, what),
            result,
        )


def test_too_large():
    """More than /dev/shm holds: an Error on all ranks, nothing is left, and calls go on."""
    prefix = in_namespaces("mount -t tmpfs -o size=64m none /dev/shm", "--mount")
    for ranks, nodes in ((1, None), (3, "3"), (4, "2"), (3, None)):
        check_too_large(ranks, nodes, -1, 80 << 20, prefix)
        check_too_large(ranks, nodes, ranks - 1, 80 << 20, prefix)


def test_too_large_for_a_node():
    """A NodeBuffer, of which every rank reserves a share."""
    prefix = in_namespaces("mount -t tmpfs -o size=64m none /dev/shm", "--mount")
    for ranks, nodes in ((1, None), (3, "3"), (4, "2"), (3, None)):
        for size in (80 << 20, 2**63 - 8):
            what = "a NodeBuffer of %d bytes, %d ranks on nodes %s" % (size, ranks, nodes)
            words = ("rank=-1", "bytes=%d" % size, "memory=node")
            result = job(ranks, nodes, "too-large", *words, prefix=prefix)
            expect(result.code == 0 and result.out.count(" goes on") == ranks, what, result)
            codes = {one.code for one in reports(result, ranks).values()}
            expect(codes == {"resource-limit"}, what, result)


def test_too_large_together():
    """Each part would fit, all of them do not: some rank is told so by its file system."""
    prefix = in_namespaces("mount -t tmpfs -o size=64m none /dev/shm", "--mount")
    what = "four times 24 MiB of 64"
    result = job(4, "2", "too-large", "rank=-1", "bytes=%d" % (24 << 20), prefix=prefix)
    expect(result.code == 0 and result.out.count(" goes on") == 4, what, result)
    codes = {one.code for one in reports(result, 4).values()}
    expect(codes == {"resource-limit"}, what, result)


def test_more_bytes_than_there_can_be():
    for ranks, nodes in ((2, "2"), (2, None)):
        result = job(ranks, nodes, "too-large", "rank=1", "bytes=%d" % (2**63 - 8))
        expect(result.code == 0 and result.out.count(" goes on") == ranks, "2^63", result)
        for rank, one in reports(result, ranks).items():
            expect(one.code == "resource-limit" and one.peer == 1, "%d: %r" % (rank, one), result)
            # Who shares the node finds out by itself, and has asked for little.
            if rank == 1 or nodes is None:
                told = "of rank 1 needs more bytes" in one.text and str(2**63 - 8) in one.text
                expect(told, "%d: %r" % (rank, one), result)


# ---- plans over Buffers ----


def test_plans_over_buffers():
    """Started several times with other bytes; a plan between Buffers registers nothing."""
    for ranks, nodes in ((2, "2"), (3, "3"), (4, "2"), (2, None)):
        check_done("plans", ranks, nodes, "buffer-plans")
    check_done("slices", 3, "3", "buffer-plans", env={"ALLRAIL_NODE_MEMORY": "1M"})


def gone(case, ranks, nodes, size):
    words = ("case=" + case, "bytes=%d" % size)
    result = job(ranks, nodes, "buffer-gone", *words, limit=30)
    return "%s of %d bytes, %d ranks on nodes %s" % (case, size, ranks, nodes), result


def check_start_is_refused(case):
    """Rank 1 says what is wrong, the others hear of it, and no call is made any more."""
    for ranks, nodes, size in ((2, None, 1000), (3, "3", 1000), (3, "3", 1_300_001)):
        what, result = gone(case, ranks, nodes, size)
        for rank, one in reports(result, ranks).items():
            text = "rank %d: %r; %s" % (rank, one, what)
            expect(one.code == ("invalid-argument" if rank == 1 else "aborted"), text, result)
            expect("must outlive its plans" in one.text, text, result)
            expect(one.again == "aborted", text, result)


def test_buffer_gone():
    """A Buffer ends between two starts of a plan, or beside it, or after the communicator.

    Also where the plan is that of another communicator than the Buffer, which may be gone.
    """
    for case in ("receive-while-idle", "send-while-idle", "of-another-communicator",
                 "of-a-communicator-that-is-gone"):
        check_start_is_refused(case)
    for case in ("another-buffer", "after-the-communicator"):
        for ranks, nodes, size in ((2, None, 1000), (3, "3", 1000), (3, "3", 1_300_001)):
            what, result = gone(case, ranks, nodes, size)
            expect(result.code == 0 and result.out.count(" error: none") == ranks, what, result)


def test_buffer_gone_while_it_runs():
    """The plan ends well on all ranks, as if it had been waited for, and cannot start again."""
    for case in ("receive-while-it-runs", "of-another-while-it-runs", "never-tested"):
        check_start_is_refused(case)


def test_buffer_gone_while_stuck():
    """The plan cannot end: an Error on all ranks after a second, in test() and in wait()."""
    for ranks, nodes, size in ((2, None, 1000), (3, "3", 1000), (3, "3", 1_300_001)):
        what, result = gone("stuck", ranks, nodes, size)
        expect("test: aborted" in result.out, what, result)
        for rank, one in reports(result, ranks).items():
            expect(one.code == "aborted", "rank %d: %r; %s" % (rank, one, what), result)
            expect("destroyed while it ran" in one.text, "%r; %s" % (one, what), result)
            expect(one.after < 6, "%r; %s" % (one, what), result)


if __name__ == "__main__":
    sys.exit(main(globals()))
