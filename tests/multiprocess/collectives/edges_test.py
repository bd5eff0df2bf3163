"""Every byte of blocks one byte below, at and above each size at which another way is taken.

The constants stand here under the names that they have in the code. `allrail-info explain` says
what is taken, so a constant that has moved fails here and is not tested beside its place.
"""

import os
import re
import sys

from support import DEFAULT_MEMORY, RUN, TWO_RAILS, environment, expect, job, main
from harness import run

INFO = os.path.join(os.path.dirname(RUN), "..", "..", "perf", "allrail-info")
KIBI = 1024
LINE_BYTES = 40  # kLineBytes, coll/schedule/schedule.hpp
# The rows of kTable, coll/selection.cpp, for what a node contributes.
ROWS = (48 * KIBI, 64 * KIBI, 256 * KIBI)
SWITCHES = {  # nodes, ranks per node: at which of them this layout goes over to the last rows
    (2, 1): 256 * KIBI,
    (4, 1): 256 * KIBI,
    (2, 2): 64 * KIBI,
    (4, 2): 64 * KIBI,
    (3, 1): 48 * KIBI,
    (3, 2): 48 * KIBI,
}
# coll/selection.hpp
ZERO_COPY_THRESHOLD_BYTES = 1024 * KIBI
BUFFER_THRESHOLD_BYTES = 512 * KIBI
NODE_BUFFER_THRESHOLD_BYTES = 256 * KIBI
MAPPED_THRESHOLD_BYTES = 2 * KIBI
SINGLE_COPY_THRESHOLD_BYTES = 64 * KIBI
# divide_node_memory(), coll/slots.cpp, of the least node memory: 64 small slots, 4 large ones.
LITTLE = {"ALLRAIL_NODE_MEMORY": "1M"}
ONE_SLOT_BYTES = 4 * KIBI
SMALL_SLOT_BYTES = 4 * ONE_SLOT_BYTES  # of four together
LARGE_SLOT_BYTES = (1024 * KIBI - 64 * ONE_SLOT_BYTES) // 4
SLICE_UNIT_BYTES = 4 * KIBI  # CallPlan::choose_slices(), coll/plan.cpp
HEADER_BYTES = 64  # kHeaderBytes, coll/schedule/schedule.hpp; two for each node


def around(*edges):
    return ",".join(str(size) for size in sorted({at + d for at in edges for d in (-1, 0, 1)}))


class Way:
    """What `allrail-info explain` says of an allgather of such blocks."""

    def __init__(self, size, ranks, nodes, env):
        layout = ("--ranks", str(ranks), "--nodes", str(nodes))
        result = run(
            [INFO, "explain", "allgather", str(size), *layout],
            env=environment(ALLRAIL_RAILS=TWO_RAILS, **env),
        )
        expect(result.code == 0, "explain", result)
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


def test_edges_of_lines():
    for ranks in (2, 5):
        check_edge(lambda way: way.in_lines, LINE_BYTES, ranks, 1)
        check_grid(ranks, 1, around(LINE_BYTES))


def test_edges_of_selection():
    for (nodes, per_node), bytes_per_node in SWITCHES.items():
        ranks = nodes * per_node
        check_edge(lambda way: way.algorithm, bytes_per_node // per_node, ranks, nodes)
        check_grid(ranks, nodes, around(*(row // per_node for row in ROWS)))


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
    check_grid(2, 1, around(SINGLE_COPY_THRESHOLD_BYTES))


def test_edges_of_buffers():
    for nodes in (2, 3):
        check_bytes("buffers", nodes, nodes, around(BUFFER_THRESHOLD_BYTES))
    check_bytes("buffers", 2, 1, around(MAPPED_THRESHOLD_BYTES))
    for ranks, nodes in ((2, 2), (4, 2), (3, 3)):
        per_node = ranks // nodes
        check_bytes("node-buffers", ranks, nodes, around(NODE_BUFFER_THRESHOLD_BYTES // per_node))


if __name__ == "__main__":
    sys.exit(main(globals()))
