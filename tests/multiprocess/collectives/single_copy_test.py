"""Ranks of one node that read each other's memory, may not, or cannot."""

import os
import re
import shutil
import sys

from faults_test import kill_many
from support import Skip, expect, job, main, reports

# Around the sizes from which on blocks are read where they lie.
SIZES = "0,2047,2048,2049,65535,65536,65537,200001,1048576"
ALLOWED = "read large blocks out of each other's memory"
OUTNUMBERED = "all blocks are copied through the memory of the node"
# Also with more ranks than there are cores here.
ON = {"ALLRAIL_SINGLE_COPY": "on"}
COPIED = "large blocks are copied through the memory of the node"


def grid(what, ranks, *words, said, env=None, **others):
    """Every byte of private blocks: equal, uneven, empty, in place, displaced."""
    values = ("algorithms=auto,smp-ring", "sizes=" + SIZES, "ports=1", "leaders=1")
    env = {"ALLRAIL_LOG": "info", **(ON if env is None else env)}
    result = job(ranks, None, "grid", *values, *words, env=env, **others)
    expect(result.code == 0 and "grid done" in result.out, what, result)
    lines = (ALLOWED, COPIED) if said is None else (ALLOWED, COPIED, OUTNUMBERED)
    for line in lines:
        expect((line in result.err) == (line == said), "%s: says '%s'" % (what, line), result)
    expect("warning" not in result.err and "error" not in result.err, "quietly: " + what, result)


def buffers(what, ranks, *words, **others):
    """The same between Buffers, from ordinary memory into Buffers, in place."""
    result = job(ranks, None, "buffers", "sizes=" + SIZES, *words, env=ON, **others)
    expect(result.code == 0 and result.out.count(" buffers done") == ranks, what, result)
    expect(result.err == "", "says nothing: " + what, result)


def test_single_copy():
    for ranks in (2, 3, 5):
        grid("%d ranks" % ranks, ranks, said=ALLOWED)
        buffers("%d ranks with Buffers" % ranks, ranks)


def test_single_copy_tried():
    """Without a setting, from which size on is found out at start-up, alike on all ranks."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("two ranks need two cores")
    grid("tried", 2, said=ALLOWED, env={})
    result = job(2, None, "loop", "bytes=300000", env={"ALLRAIL_LOG": "info"})
    found = re.findall(ALLOWED + r", from (\S+(?: \S+)?) on", result.err)
    expect(len(found) == 2 and len(set(found)) == 1, "two ranks say %s" % found, result)
    expect(found[0] in ("64K", "256K", "1M", "4M"), "a size that was tried: %s" % found, result)


def test_single_copy_forbidden():
    """By seccomp, to one rank or to all: everything is copied through the segment, and right.

    Buffers are still read where they lie.
    """
    for ranks, forbidden in ((2, "all"), (3, "all"), (3, "1"), (2, "0")):
        what = "%d ranks, forbidden to %s" % (ranks, forbidden)
        grid(what, ranks, "forbid=" + forbidden, said=COPIED)
        buffers(what, ranks, "forbid=" + forbidden)


def test_single_copy_switched_off():
    grid("off", 3, said=None, env={"ALLRAIL_SINGLE_COPY": "off"})
    result = job(2, None, "loop", "bytes=8", env={"ALLRAIL_SINGLE_COPY": "sometimes"})
    expect("ALLRAIL_SINGLE_COPY is 'sometimes'" in result.out, "names the value", result)


def test_single_copy_hidden():
    """The kernel refuses to look into a process that has changed its user, or hides otherwise."""
    wrapper = ()
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            raise Skip("root cannot give up CAP_SYS_PTRACE without setpriv")
        wrapper = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
    for ranks in (2, 3):
        what = "%d ranks, rank 1 is hidden" % ranks
        grid(what, ranks, "hidden=1", said=COPIED, wrapper=wrapper)
    grid("nobody is hidden", 2, said=ALLOWED, wrapper=wrapper)


def test_single_copy_outnumbered():
    """Ranks that share a core copy through the segment, unless they are told otherwise."""
    core = min(os.sched_getaffinity(0))
    prefix = ("taskset", "--cpu-list", str(core))
    grid("two ranks on one core", 2, said=OUTNUMBERED, env={}, prefix=prefix)
    grid("two ranks on one core, told to", 2, said=ALLOWED, prefix=prefix)


def failed(what, ranks, code, words, *arguments):
    result = job(ranks, None, *arguments, limit=30, env=ON)
    for rank, one in reports(result, ranks).items():
        text = "rank %d: %r; %s" % (rank, one, what)
        expect(one.code == code and all(word in one.text for word in words), text, result)
        expect(one.again == "aborted" and one.text in one.again_text, text, result)
    return reports(result, ranks)


def test_single_copy_forbidden_late():
    """What was allowed at start-up and is not any more is an error on all ranks, and no hang."""
    words = ("rank 0:", "Operation not permitted", "ALLRAIL_SINGLE_COPY=off")
    for ranks in (2, 3):
        failed("forbidden late", ranks, "resource-limit", words, "forbid-late")


def test_single_copy_unreadable():
    """An address that is no memory."""
    words = ("of rank 1 failed", "stay mapped")
    for ranks in (2, 4):
        for one in failed("unreadable", ranks, "invalid-argument", words, "unreadable").values():
            expect(one.peer == 1, "names the owner: %r" % one)


def test_kill_single_copy():
    """A rank dies while others read its memory."""
    kill_many(None, 4_000_000, ("",), env=ON)


def test_kill_from_buffers():
    kill_many(None, 4_000_000, ("",), words=("memory=buffer",), env=ON)


if __name__ == "__main__":
    sys.exit(main(globals()))
