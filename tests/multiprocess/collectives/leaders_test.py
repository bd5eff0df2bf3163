"""Leaders of ranks that run on different sockets: of a machine that is described, with real cpus.

hwloc reads four sockets of which cpu i is on socket i mod 4; ranks are bound to cpus 0 and 1.
"""

import os
import re
import subprocess
import sys

from support import DEFAULT_MEMORY, RUN, Skip, environment, expect, job, main

FOLDER = os.path.dirname(os.path.abspath(__file__))
MACHINE = os.path.join(FOLDER, "..", "..", "unit", "topology", "four_sockets_apart.xml")
BYTES_PER_LEADER = 16 * 1024  # coll/selection.hpp
INFO = os.path.join(os.path.dirname(RUN), "..", "..", "perf", "allrail-info")
# Of a described machine hwloc would not ask for bindings.
DESCRIBED = {"HWLOC_XMLFILE": os.path.abspath(MACHINE), "HWLOC_THISSYSTEM": "1"}
BIND = ("sh", "-c", 'exec taskset -c $(((PMIX_RANK + %s) %% 2)) "$@"', "sh")
ALGORITHMS = (
    "auto",
    "smp-bruck",
    "smp-direct",
    "smp-direct-gather-broadcast",
    "smp-multi-leader-recursive-doubling",
    "smp-multi-leader-recursive-doubling-point-to-point",
    "smp-multi-leader-ring",
    "smp-multi-leader-ring-point-to-point",
    "smp-recursive-doubling",
    "smp-ring",
)


def bound(shift=0):
    if not {0, 1} <= os.sched_getaffinity(0):
        raise Skip("cpus 0 and 1 are needed")
    return [*BIND[:2], BIND[2] % shift, BIND[3]]


def grid(ranks, nodes, policy, every, **env):
    words = {
        "algorithms": ",".join(ALGORITHMS),
        "sizes": "0,7,100,4096,70000,300001",
        "ports": "1,2",
        "leaders": "0,1,2,4",
        "every": every,
    }
    checked("grid", words, bound(), ranks, nodes, policy, env)


def rooted_grid(ranks, nodes, policy, every, **env):
    words = {"sizes": "0,7,4096,70000", "every": every, "first": ranks}
    # Rank 0 is on socket 1: the first rank of its node does not lead the first lane.
    checked("rooted-grid", words, bound(shift=1), ranks, nodes, policy, env)


def checked(mode, words, wrapper, ranks, nodes, policy, env):
    result = job(
        ranks,
        nodes,
        mode,
        *("%s=%s" % pair for pair in words.items()),
        wrapper=wrapper,
        env={**DESCRIBED, "ALLRAIL_LEADER_POLICY": policy, **env},
    )
    what = "%s of %d ranks on nodes %s, policy %s" % (mode, ranks, nodes, policy)
    expect(result.code == 0 and mode + " done" in result.out, what, result)
    print("%s: %.1f s, %s" % (what, result.seconds, result.out.strip()))


def test_leaders_by_policy():
    for policy in ("near", "socket", "packed"):
        grid(8, "2", policy, 23)


def test_leaders_on_uneven_nodes():
    grid(7, "4+1+2", "socket", 29)
    grid(7, "cyclic:3", "near", 31)


def test_leaders_with_little_memory():
    grid(8, "2", "socket", 37, ALLRAIL_NODE_MEMORY="1M")


def explained(size, ranks, nodes, policy):
    """How many leaders the choice of this job has for blocks of a size, and its slot memory."""
    command = [RUN, "-n", str(ranks), "--nodes", nodes, *bound(), INFO, "explain", "allgather"]
    result = subprocess.run(
        [*command, str(size)],
        env=environment(
            ALLRAIL_RAILS="127.0.0.1", ALLRAIL_LEADER_POLICY=policy, **DESCRIBED, **DEFAULT_MEMORY
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    text = result.stdout.decode()
    found = re.search(r"choice: .* and (\d+) leaders per node", text)
    slot = re.search(r"(\d+) bytes of slot memory", text)
    if result.returncode != 0 or not found or not slot:
        raise AssertionError("exit code %s:\n%s" % (result.returncode, text))
    return int(found[1]), int(slot[1])


def test_leaders_at_their_edge():
    """Where the choice goes over from one leader to two: kBytesPerLeader, coll/selection.hpp."""
    for ranks, nodes, per_node in ((8, "2", 4), (7, "cyclic:3", 3), (6, "4+2", 4)):
        edge = -(-2 * BYTES_PER_LEADER // per_node)
        (below, _), (at, slot) = (
            explained(size, ranks, nodes, "socket") for size in (edge - 1, edge)
        )
        # A small call has a small slot, and no lane a part of a large one.
        if slot > 2 * ranks * edge:
            raise AssertionError("%d bytes of slot memory for blocks of %d" % (slot, edge))
        if (below, at) != (1, 2):
            raise AssertionError("%d and %d leaders of nodes %s" % (below, at, nodes))
        words = {
            "algorithms": "auto",
            "sizes": "%d,%d,%d" % (edge - 1, edge, edge + 1),
            "ports": "0",
            "leaders": "0",
        }
        checked("grid", words, bound(), ranks, nodes, "socket", DEFAULT_MEMORY)


def test_leaders_of_rooted_collectives():
    rooted_grid(8, "2", "socket", 11)
    rooted_grid(7, "cyclic:3", "near", 13)
    rooted_grid(7, "4+1+2", "packed", 13)


def test_leaders_of_node_buffers():
    """The rank that talks for a node has registered the memory, whichever it is."""
    words = ("algorithms=" + ",".join(ALGORITHMS[1:]), "sizes=0,9,70001")
    for ranks, nodes, policy in ((6, "2", "socket"), (7, "cyclic:3", "near")):
        result = job(
            ranks,
            nodes,
            "node-buffers",
            *words,
            wrapper=bound(shift=1),
            env={**DESCRIBED, "ALLRAIL_LEADER_POLICY": policy},
        )
        what = "%d ranks on nodes %s, policy %s" % (ranks, nodes, policy)
        done = result.out.count(" node-buffers done")
        expect(result.code == 0 and done == ranks, what, result)


def imagined(name, *words):
    """The ranks that lead each node of a described machine."""
    path = os.path.abspath(os.path.join(FOLDER, "..", "..", "unit", "topology", name + ".xml"))
    result = subprocess.run(
        [INFO, "leaders", "--topology", path, *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    text = result.stdout.decode()
    if result.returncode != 0:
        return text
    return [
        [int(rank) for rank in re.findall(r"leader \d+: rank (\d+): \S", node)]
        for node in re.split(r"^node \d+$", text, flags=re.MULTILINE)[1:]
    ]


def test_leaders_are_imagined():
    cases = (
        (("four_sockets_apart",), [[0, 8]]),
        (("four_sockets_apart", "--leader-policy", "socket"), [[0, 4, 8, 12]]),
        (("four_sockets_apart", "--leader-policy", "packed"), [[0, 1, 2, 3]]),
        (("four_sockets_apart", "--rails", "0000:85:00.0"), [[8]]),
        (("four_sockets_together", "--leaders", "1"), [[4]]),
        (("four_sockets_unknown",), [[0, 4, 8, 12]]),
        (("four_sockets_apart", "--ranks", "18", "--nodes", "16+2"), [[0, 8], [16, 17]]),
    )
    for words, leaders in cases:
        found = imagined(*words)
        if found != leaders:
            raise AssertionError("%s: %s instead of %s" % (words, found, leaders))
    for words, text in (
        (("nowhere",), "is no machine that hwloc can read"),
        (("four_sockets_apart", "--rails", "mlx5_7"), "no device 'mlx5_7'"),
    ):
        found = imagined(*words)
        if text not in found:
            raise AssertionError("%s: %s" % (words, found))


def test_leaders_are_explained():
    command = [RUN, "-n", "6", "--nodes", "4+2", *bound(shift=1), INFO, "leaders"]
    result = subprocess.run(
        [*command, "--leader-policy", "socket"],
        env=environment(ALLRAIL_RAILS="127.0.0.1", **DESCRIBED),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    text = result.stdout.decode()
    # Rank 0 is on cpu 1, and so on socket 1: the leader of socket 0 is the rank after it.
    leads = re.findall(r"leader (\d+): rank (\d+): .*\n +group: ranks (.*)", text)
    expected = [("0", "1", "1, 3"), ("1", "0", "0, 2"), ("0", "5", "5"), ("1", "4", "4")]
    if result.returncode != 0 or leads != expected:
        raise AssertionError("leaders %s of exit code %s:\n%s" % (leads, result.returncode, text))


if __name__ == "__main__":
    sys.exit(main(globals()))
