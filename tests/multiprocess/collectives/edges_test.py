"""Every byte of blocks one byte below, at and above each size at which another way is taken.

The constants stand here under the names that they have in the code. `allrail-info explain` says
what is taken, so a constant that has moved fails here and is not tested beside its place. What
depends on a kind of memory or on a trial at start-up it does not say: those constants are read from
the code.
"""

import math
import os
import re
import sys

from single_copy_test import COPIED as NOT_ALLOWED
from single_copy_test import OUTNUMBERED
from support import DEFAULT_MEMORY, RUN, TWO_RAILS, environment, expect, job, main
from switches_test import grid as grid_over_switches, switch_map
from harness import run

INFO = os.path.join(os.path.dirname(RUN), "..", "..", "perf", "allrail-info")
TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
KIBI = 1024
LINE_BYTES = 40  # kLineBytes, coll/schedule/schedule.hpp
# The rows of kTable, coll/selection.cpp, for what a node contributes.
ROWS = (48 * KIBI, 64 * KIBI, 256 * KIBI)
# And of one for rails that are faster than the processors alone, which nobody can say beforehand.
FAST_ROW = 512 * KIBI
SWITCHES = {  # nodes, ranks per node: at which of them this layout goes over to the last rows
    (2, 1): 256 * KIBI,
    (4, 1): 256 * KIBI,
    (2, 2): 64 * KIBI,
    (4, 2): 64 * KIBI,
    (8, 1): 64 * KIBI,
    (3, 1): 48 * KIBI,
    (3, 2): 48 * KIBI,
}
# coll/selection.hpp
ZERO_COPY_THRESHOLD_BYTES = 1024 * KIBI
BUFFER_THRESHOLD_BYTES = 512 * KIBI
NODE_BUFFER_THRESHOLD_BYTES = 256 * KIBI
MAPPED_THRESHOLD_BYTES = 2 * KIBI
SINGLE_COPY_THRESHOLD_BYTES = 64 * KIBI
TRIED_BYTES = (64 * KIBI, 256 * KIBI, 1024 * KIBI)  # kTrialBytes, lib/world_reading.cpp
TRIED_SAID = ("64K", "256K", "1M", "4M")  # and four times the last one
ONCE_BYTES = 16 * KIBI
# The rows of kRootedTable, coll/selection_rooted.cpp: the largest size of one, and layouts (nodes,
# ranks per node, leaf switches) for which the next row says something else, be it only of rails
# that are faster than the processors, or slower.
ROOTED_ROWS = {
    ("broadcast", 512): ((2, 1, ""), (2, 2, ""), (4, 1, "")),
    ("broadcast", KIBI): ((2, 1, ""), (2, 2, ""), (4, 1, "")),
    ("broadcast", 32 * KIBI): ((2, 1, ""), (2, 2, ""), (4, 1, "")),
    ("broadcast", 1024 * KIBI): ((2, 1, ""), (2, 2, ""), (4, 1, "")),
    ("alltoall", 256): ((3, 1, ""), (2, 1, ""), (2, 2, ""), (4, 1, "")),
    ("alltoall", KIBI): ((2, 1, ""), (2, 2, ""), (4, 1, "")),
    ("alltoall", 4 * KIBI): ((2, 1, ""), (2, 2, ""), (4, 1, "")),
    ("alltoall", 256 * KIBI): ((4, 1, ""),),
    ("alltoall", 2048 * KIBI): ((4, 1, ""),),
    ("gather", KIBI): ((2, 1, ""), (2, 2, ""), (4, 1, ""), (4, 1, "0,0,1,1"), (17, 1, "")),
    ("scatter", KIBI): ((2, 1, ""), (2, 2, ""), (4, 1, ""), (4, 1, "0,0,1,1"), (9, 1, "")),
}
# divide_node_memory(), coll/slots.cpp, of the least node memory: 64 small slots, 4 large ones, and
# a sixteenth for what stands beside them.
LITTLE = {"ALLRAIL_NODE_MEMORY": "1M"}
ONE_SLOT_BYTES = 4 * KIBI
SMALL_SLOT_BYTES = 4 * ONE_SLOT_BYTES  # of four together
LARGE_SLOT_BYTES = (960 * KIBI - 64 * ONE_SLOT_BYTES) // 4
# The same of the default memory: where one slot is taken, and where slots near to each other are,
# coll/slots.hpp and tests/unit/coll/slot_order_test.cpp.
MOST_IN_ONE_SLOT_BYTES = 8 * KIBI
MOST_NEAR_BYTES = 20 * KIBI
DEFAULT_SMALL_SLOT_BYTES = 68 * KIBI
SLICE_UNIT_BYTES = 4 * KIBI  # CallPlan::choose_slices(), coll/plan.cpp
HEADER_BYTES = 64  # kHeaderBytes, coll/schedule/schedule.hpp; two for each node
# Where the code has those of them that it names.
IN_THE_CODE = {
    "coll/selection.hpp": {
        "kZeroCopyThresholdBytes": ZERO_COPY_THRESHOLD_BYTES,
        "kBufferThresholdBytes": BUFFER_THRESHOLD_BYTES,
        "kNodeBufferThresholdBytes": NODE_BUFFER_THRESHOLD_BYTES,
        "kMappedThresholdBytes": MAPPED_THRESHOLD_BYTES,
        "kSingleCopyThresholdBytes": SINGLE_COPY_THRESHOLD_BYTES,
        "kOnceBytes": ONCE_BYTES,
    },
    "coll/schedule/schedule.hpp": {"kLineBytes": LINE_BYTES, "kHeaderBytes": HEADER_BYTES},
    "coll/slots.hpp": {"kMostNearBytes": MOST_NEAR_BYTES},
    "coll/slots.cpp": {
        "kMostInOneSlot": MOST_IN_ONE_SLOT_BYTES,
        "kMostSlotBytes": DEFAULT_SMALL_SLOT_BYTES,
    },
    "lib/world_reading.cpp": {"kTrialBytes": TRIED_BYTES},
}


def constants_of(file):
    """The numbers of a file of the code by name, and lists of them as tuples."""
    with open(os.path.join(TREE, file), encoding="utf-8") as text:
        found = re.findall(r"constexpr [^;=]*?(k\w+) = ([{}\s\dUL*<,]+);", text.read())
    known = {}
    for name, value in found:
        numbers = []
        for number in re.sub("[{}UL]", "", value).split(","):
            factors, _, shift = number.partition("<<")
            numbers.append(math.prod(int(one) for one in factors.split("*")) << int(shift or 0))
        known[name] = tuple(numbers) if "{" in value else numbers[0]
    return known


def around(*edges):
    return ",".join(str(size) for size in sorted({at + d for at in edges for d in (-1, 0, 1)}))


class Way:
    """What `allrail-info explain` says of a call with such blocks."""

    def __init__(self, size, ranks, nodes, env, collective="allgather", leaves=""):
        layout = ["--ranks", str(ranks), "--nodes", str(nodes)]
        if leaves:
            layout += ["--leaves", leaves]
        result = run(
            [INFO, "explain", collective, str(size), *layout],
            env=environment(ALLRAIL_RAILS=TWO_RAILS, **env),
        )
        expect(result.code == 0, "explain", result)
        self.choice = re.search(r"choice: (.+)", result.out)[1]
        self.algorithm = re.search(r"choice: (\S+) with", result.out)[1]
        self.slices = int(re.search(r"(\d+) slices", result.out)[1])
        self.slot_bytes = int(re.search(r"(\d+) bytes of slot memory", result.out)[1])
        self.straight = "straight between user buffers" in result.out
        self.in_lines = " to flags+" in result.out


def check_edge(trait, size, ranks, nodes, env=DEFAULT_MEMORY):
    """Something changes between this size and the next one, or in front of it."""
    below, at, above = (trait(Way(size + d, ranks, nodes, env)) for d in (-1, 0, 1))
    what = "%d bytes, %d ranks on %d nodes, settings %s" % (size, ranks, nodes, env)
    expect(below != above, "no edge: %s, %s, %s; %s" % (below, at, above, what))


def check_bytes(mode, ranks, nodes, sizes, *words, env=DEFAULT_MEMORY):
    spec = str(nodes) if nodes > 1 else None
    result = job(ranks, spec, mode, "sizes=" + sizes, *words, env=env)
    what = "%s of %s bytes, %d ranks on %d nodes, settings %s" % (mode, sizes, ranks, nodes, env)
    expect(result.code == 0 and mode + " done" in result.out, what, result)
    print("%s: %.1f s" % (what, result.seconds))


def check_grid(ranks, nodes, sizes, env=DEFAULT_MEMORY):
    check_bytes("grid", ranks, nodes, sizes, "algorithms=auto", "ports=0", "leaders=0", env=env)


def test_edges_are_where_the_code_has_them():
    for file, expected in IN_THE_CODE.items():
        constants = constants_of(file)
        for name, value in expected.items():
            what = "%s is %s in %s and %s here" % (name, constants.get(name), file, value)
            expect(constants.get(name) == value, what)


def test_edges_of_lines():
    for ranks in (2, 5):
        check_edge(lambda way: way.in_lines, LINE_BYTES, ranks, 1)
        check_grid(ranks, 1, around(LINE_BYTES))


def test_edges_of_selection():
    for (nodes, per_node), bytes_per_node in SWITCHES.items():
        ranks = nodes * per_node
        check_edge(lambda way: way.algorithm, bytes_per_node // per_node, ranks, nodes)
        check_grid(ranks, nodes, around(*(row // per_node for row in ROWS)))
    # Both that are taken there, whichever it is.
    either = ("algorithms=smp-recursive-doubling,smp-ring", "ports=0", "leaders=0")
    for ranks in (4, 8):
        check_bytes("grid", ranks, 4, around(FAST_ROW * 4 // ranks), *either)


def test_edges_of_slots():
    """The largest call of one small slot, of four, of one slice, and whole slices."""
    for ranks, nodes in ((3, 1), (3, 3), (4, 2), (6, 3)):
        one, small, large = (
            (slot - nodes * 2 * HEADER_BYTES) // ranks
            for slot in (ONE_SLOT_BYTES, SMALL_SLOT_BYTES, LARGE_SLOT_BYTES)
        )
        check_edge(lambda way: way.slot_bytes <= ONE_SLOT_BYTES, one, ranks, nodes, LITTLE)
        check_edge(lambda way: way.slot_bytes <= SMALL_SLOT_BYTES, small, ranks, nodes, LITTLE)
        env = LITTLE
        if nodes == 1:  # where blocks are read from their owners, slots are not used
            env = {**LITTLE, "ALLRAIL_SINGLE_COPY": "off"}
        check_edge(lambda way: way.slices > 1, large, ranks, nodes, env)
        slices = 2 * (large // SLICE_UNIT_BYTES * SLICE_UNIT_BYTES)
        check_edge(lambda way: way.slices > 2, slices, ranks, nodes, env)
        check_grid(ranks, nodes, around(one, small, large, slices), env)


def test_edges_of_zero_copy():
    for nodes in (2, 3):
        check_edge(lambda way: way.straight, ZERO_COPY_THRESHOLD_BYTES, nodes, nodes)
        check_grid(nodes, nodes, around(ZERO_COPY_THRESHOLD_BYTES))


def test_edges_of_single_copy():
    """Where it is told to, and at each size from which on trials at start-up may find it faster."""
    env = {**DEFAULT_MEMORY, "ALLRAIL_SINGLE_COPY": "on"}
    for ranks in (2, 3):
        check_grid(ranks, 1, around(SINGLE_COPY_THRESHOLD_BYTES), env)
    # The threshold is one of these, where ranks do not outnumber the cores.
    said = {"ALLRAIL_LOG": "info", **DEFAULT_MEMORY}
    sizes = around(*TRIED_BYTES, 4 * TRIED_BYTES[-1])
    words = ("sizes=" + sizes, "algorithms=auto", "ports=0", "leaders=0")
    result = job(2, None, "grid", *words, env=said)
    expect(result.code == 0 and "grid done" in result.out, "grid of %s bytes" % sizes, result)
    found = re.search(r"read large blocks out of each other's memory, from (.+) on", result.err)
    if found:
        expect(found[1] in TRIED_SAID, "one of the sizes that were tried", result)
    else:
        expect(OUTNUMBERED in result.err or NOT_ALLOWED in result.err, "says why not", result)


def test_edges_of_buffers():
    for nodes in (2, 3):
        check_bytes("buffers", nodes, nodes, around(BUFFER_THRESHOLD_BYTES))
    check_bytes("buffers", 2, 1, around(MAPPED_THRESHOLD_BYTES))
    for ranks, nodes in ((2, 2), (4, 2), (3, 3)):
        per_node = ranks // nodes
        check_bytes("node-buffers", ranks, nodes, around(NODE_BUFFER_THRESHOLD_BYTES // per_node))

    # Where one rank copies all blocks, and up to where it finds them in lines.
    said = {"ALLRAIL_LOG": "info", **DEFAULT_MEMORY}
    core = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))
    for ranks in (2, 3):
        words = ("node-buffers", "sizes=" + around(LINE_BYTES, ONCE_BYTES))
        result = job(ranks, None, *words, env=said, prefix=core)
        what = "%d ranks on one core" % ranks
        expect(result.code == 0 and result.out.count(" node-buffers done") == ranks, what, result)
        expect(OUTNUMBERED in result.err, what, result)


def check_rooted(ranks, nodes, sizes, collective, leaves=""):
    """As it is chosen, and by what is chosen once the pace of the rails is known."""
    values = {
        "collectives": "%s,%sv" % (collective, collective),
        "algorithms": ",smp-direct,smp-binomial,smp-chain,smp-recursive-doubling,smp-bruck",
        "ports": "0",
        "sizes": sizes,
    }
    if leaves:
        text = switch_map([int(leaf) for leaf in leaves.split(",")])
        grid_over_switches(ranks, str(nodes), text, **values)
    else:
        words = ("%s=%s" % one for one in values.items() if one[0] != "sizes")
        check_bytes("rooted-grid", ranks, nodes, sizes, *words)


def test_edges_of_rooted_selection():
    for (collective, size), layouts in ROOTED_ROWS.items():
        for nodes, per_node, leaves in layouts:
            at, above = (
                Way(size + d, nodes * per_node, nodes, DEFAULT_MEMORY, collective, leaves).choice
                for d in (0, 1)
            )
            what = "%s of %d bytes on %d nodes" % (collective, size, nodes)
            expect(at != above, "no edge: %s, %s" % (at, what))
    for collective in ("broadcast", "alltoall", "gather", "scatter"):
        sizes = [size for name, size in ROOTED_ROWS if name == collective]
        if collective == "alltoall":  # of the last ones only the number of ports changes
            words = ("collectives=alltoall", "algorithms=,smp-direct", "ports=0")
            check_bytes("rooted-grid", 4, 4, around(*sizes[-2:]), *words)
            sizes = sizes[:-2]
        sizes = around(*sizes)
        for ranks, nodes in ((2, 1), (2, 2), (4, 2), (4, 4)):
            check_rooted(ranks, nodes, sizes, collective)
    for collective in ("gather", "scatter"):
        check_rooted(4, 4, around(KIBI), collective, "0,0,1,1")
    check_rooted(3, 3, around(256), "alltoall")
    check_rooted(9, 9, around(KIBI), "scatter")


def largest_block(collective, ranks, slot_bytes, env):
    """Of a call of one node that takes no more of a slot."""
    low, high = 0, slot_bytes + 1
    while low + 1 < high:
        middle = (low + high) // 2
        if Way(middle, ranks, 1, env, collective).slot_bytes <= slot_bytes:
            low = middle
        else:
            high = middle
    return low


def test_edges_of_near_slots():
    """Near, far and in the ring, one after the other in the same slots."""
    slots = (MOST_IN_ONE_SLOT_BYTES, MOST_NEAR_BYTES, DEFAULT_SMALL_SLOT_BYTES)
    env = {**DEFAULT_MEMORY, "ALLRAIL_SINGLE_COPY": "off"}
    for ranks in (2, 3, 4):
        sizes = around(*(largest_block("allgather", ranks, slot, env) for slot in slots))
        words = ("bytes=" + sizes, "calls=450", "seconds=25")  # several times round all 64 slots
        result = job(ranks, None, "loop", *words, env=env, limit=30)
        what = "loop of %s bytes, %d ranks" % (sizes, ranks)
        expect(result.code == 0 and result.out.count(" done, calls 450") == ranks, what, result)
        check_grid(ranks, 1, sizes, env)
    for collective in ("gather", "alltoall"):
        sizes = around(*(largest_block(collective, 2, slot, env) for slot in slots))
        values = ("collectives=" + collective, "algorithms=,", "ports=0")
        check_bytes("rooted-grid", 2, 1, sizes, *values, env=env)


if __name__ == "__main__":
    sys.exit(main(globals()))
