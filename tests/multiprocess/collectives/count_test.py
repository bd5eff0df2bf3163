"""What Allrail takes of the system: counts, no times."""

import os
import re
import subprocess
import sys

from support import Skip, expect, job, main

CANNOT_COUNT = 77
# By their numbers on x86-64. What a rank that has to wait may call; poll looks for dead processes
# once the wait is long.
WAITING = {7: "poll", 24: "sched_yield", 202: "futex", 324: "membarrier"}
# What it may call besides where ranks outnumber their cpus: a long yield takes it home.
GOING_HOME = {203: "sched_setaffinity", 204: "sched_getaffinity"}
# Where the clock cannot be read without the kernel.
CLOCK = {228: "clock_gettime"}
RAILS = {
    0: "read",
    1: "write",
    19: "readv",
    20: "writev",
    44: "sendto",
    45: "recvfrom",
    46: "sendmsg",
    47: "recvmsg",
    55: "getsockopt",
    232: "epoll_wait",
    233: "epoll_ctl",
    281: "epoll_pwait",
    286: "timerfd_settime",
    288: "accept4",
}


def counted(ranks, nodes, *words, env=None, prefix=()):
    result = job(ranks, nodes, *words, env=env, prefix=prefix)
    if result.code == CANNOT_COUNT:
        raise Skip("system calls cannot be counted here")
    expect(result.code == 0, "%d ranks on nodes %s: %s" % (ranks, nodes, " ".join(words)), result)
    return result


def quiet(
    ranks, nodes, allowed, algorithm="auto", size=64, plans=0, calls=1000, memory="", env=None
):
    """Makes calls of a known plan.

    Returns how many of them made no system call at all, and the most that any rank sent in its best
    ten calls in a row.
    """
    words = ["algorithm=%s" % algorithm, "bytes=%d" % size, "plans=%d" % plans, "calls=%d" % calls]
    words.append("memory=" + memory)
    result = counted(ranks, nodes, "quiet", *words, env=env)
    what = "%s of %d bytes, %d plans, %d ranks on nodes %s" % (
        algorithm,
        size,
        plans,
        ranks,
        nodes,
    )
    lines = re.findall(
        r"rank \d+ allocations (\d+) locks (\d+) without (\d+) fewest-sends (\d+) calls ?(.*)",
        result.out,
    )
    expect(len(lines) == ranks, what + ": a rank said nothing", result)
    allowed = {**allowed, **CLOCK}
    if ranks > len(os.sched_getaffinity(0)) > 1 and WAITING.items() <= allowed.items():
        allowed.update(GOING_HOME)
    for allocations, locks, _, _, calls in lines:
        expect(allocations == "0", what + ": it allocates", result)
        expect(locks == "0", what + ": it takes locks", result)
        numbers = {int(call.split(":")[0]) for call in calls.split()}
        expect(numbers <= set(allowed), "%s: system calls %s" % (what, numbers), result)
    print("%s: %s" % (what, result.out.strip()))
    without = sum(int(line[2]) for line in lines)
    return without, max(int(line[3]) for line in lines)


def test_quiet_alone():
    """One rank waits for nobody."""
    for size in (0, 8, 4096):
        without, _ = quiet(1, None, {}, size=size)
        expect(without == 1000, "a call of one rank made system calls")


def test_quiet_one_node():
    """Ranks of a node talk through memory: no system call while they need not yield or sleep.

    In turn one rank comes a moment later than the other, and then has nothing to wait for.
    """
    for algorithm in ("auto", "direct", "smp-direct"):
        without, _ = quiet(2, None, WAITING, algorithm)
        expect(without > 0, "no call of %s was without system calls" % algorithm)


def test_quiet_two_nodes():
    """Over TCP the rails make theirs, and nobody else makes any."""
    for ranks, nodes in ((2, "2"), (3, "2+1")):
        for algorithm in ("auto", "smp-ring", "bruck"):
            quiet(ranks, nodes, {**WAITING, **RAILS}, algorithm)


def test_few_sends():
    """A short wait sends nothing: acknowledgements and done counts travel with the next data."""
    # Two nodes exchange one frame per call and direction.
    for algorithm in ("direct", "bruck", "ring"):
        _, sends = quiet(2, "2", {**WAITING, **RAILS}, algorithm)
        expect(sends <= 11, "%d sends in ten calls of %s" % (sends, algorithm))
    # Of medium puts, one in eight is acknowledged at once, which measures the rail.
    whole = {"ALLRAIL_STRIPE_THRESHOLD": "64K"}
    _, sends = quiet(2, "2", {**WAITING, **RAILS}, "direct", size=20_000, env=whole)
    expect(sends <= 13, "%d sends in ten calls of 20,000 bytes" % sends)


def test_few_looks():
    """A wait looks at the one link that it needs: with three nodes and two rails there are four."""
    calls = 1000
    rails = {"ALLRAIL_RAILS": "127.0.0.1,127.0.0.2"}
    result = counted(4, "4", "quiet", "calls=%d" % calls, env=rails)
    lines = re.findall(r"fewest-sends \d+ calls (.*)", result.out)
    expect(len(lines) == 4, "a rank said nothing", result)
    for line in lines:
        made = {int(number): int(count) for number, count in re.findall(r"(\d+):(\d+)", line)}
        # A look that finds nothing ends in a yield, and there is no third that finds something.
        looks = made.get(24, 0) + 3 * calls
        expect(made[45] <= 2 * looks, "%d receives in %d looks" % (made[45], looks), result)


def test_quiet_plans():
    """Neither start() nor test() nor wait() takes anything: of small calls, of calls in many slices
    and of calls that go straight between user buffers."""
    polling = {**WAITING, **RAILS}
    for ranks, nodes in ((1, None), (2, None), (2, "2"), (3, "2+1")):
        quiet(ranks, nodes, polling, plans=3)
    quiet(2, "2", polling, size=400_001, plans=2, calls=40, env={"ALLRAIL_NODE_MEMORY": "1M"})
    quiet(2, "2", polling, size=2_500_000, plans=2, calls=20)


def started(ranks, nodes, allowed, plans=3, size=64, calls=100, env=None):
    words = ["plans=%d" % plans, "bytes=%d" % size, "calls=%d" % calls]
    result = counted(ranks, nodes, "started", *words, env=env)
    what = "%d plans of %d bytes, %d ranks on nodes %s" % (plans, size, ranks, nodes)
    lines = re.findall(
        r"rank \d+ allocations (\d+) locks (\d+) tests (\d+) calls ?(.*)", result.out
    )
    expect(len(lines) == ranks, what + ": a rank said nothing", result)
    for allocations, locks, tests, made in lines:
        expect(allocations == locks == "0", what + ": it allocates or locks", result)
        numbers = {int(call.split(":")[0]) for call in made.split()}
        expect(numbers <= set(allowed), "%s: system calls %s" % (what, numbers), result)
        # Plans that had all ended at once would have shown nothing.
        expect(int(tests) > plans * calls, what + ": nobody had to test again", result)
    print("%s: %s" % (what, result.out.strip()))


def test_started_plans_do_not_wait():
    """Neither start() nor test() ever yields or sleeps, whatever is late: the processor is left to
    the program. Looks are allowed: for dead processes, and at the rails."""
    dead = {7: "poll", **CLOCK}
    started(2, None, dead)
    started(3, None, dead, size=200_000, env={"ALLRAIL_NODE_MEMORY": "1M"})
    for ranks, nodes in ((2, "2"), (3, "2+1")):
        started(ranks, nodes, {**dead, **RAILS})
    started(2, "2", {**dead, **RAILS}, plans=2, size=2_500_000, calls=10)


def test_quiet_node_buffers():
    """Straight and through the segment, small and large."""
    without, _ = quiet(2, None, WAITING, memory="node")
    expect(without > 0, "no call was without system calls")
    polling = {**WAITING, **RAILS}
    for ranks, nodes in ((2, "2"), (3, "2+1"), (4, "cyclic:2")):
        for algorithm in ("auto", "smp-ring", "smp-bruck"):
            quiet(ranks, nodes, polling, algorithm, memory="node")
    quiet(4, "2", polling, "smp-ring", size=1_000_001, calls=40, memory="node")


def test_quiet_single_copy():
    """Memory of another rank is read by one system call, of a Buffer by none."""
    env = {"ALLRAIL_SINGLE_COPY": "on"}
    words = ("bytes=100001", "calls=1000")
    for memory, reading in (("", {310: "process_vm_readv"}), ("buffer", {})):
        quiet(2, None, {**WAITING, **reading}, size=100_001, memory=memory, env=env)
        result = counted(2, None, "quiet", *words, "memory=" + memory, env=env)
        reads = [int(count) for count in re.findall(r"\b310:(\d+)", result.out)]
        # Every other call is a barrier.
        expect(reads == [500] * (2 * len(reading)), "%s reads: %s" % (memory, reads), result)


def processor_us(ranks, nodes, *words, mode="processor", prefix=()):
    """What a call takes of the processor, by rank."""
    result = counted(ranks, nodes, mode, *words, prefix=prefix)
    found = re.findall(r"rank (\d+) took (\d+) us a call", result.out)
    expect(len(found) == ranks, "a rank said nothing", result)
    print("%d ranks on nodes %s, %s: %s" % (ranks, nodes, " ".join(words), found))
    return {int(rank): int(us) for rank, us in found}


def test_no_time_slices():
    """Ranks that share one cpu hand it on at once: whoever spins there, or sleeps badly, costs the
    others a time slice (3 ms and more) in every call."""
    one_cpu = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))
    for ranks, nodes in ((8, None), (4, "4"), (6, "2")):
        for size in (8, 20_000):
            took = processor_us(ranks, nodes, "bytes=%d" % size, prefix=one_cpu)
            total = sum(took.values())
            expect(total < 1500, "%d ranks on nodes %s: %d us a call" % (ranks, nodes, total))


def test_long_waits_sleep():
    """Ranks that wait 200 ms for a late one leave the processor to others for most of that."""
    for ranks, nodes in ((2, None), (3, "3"), (4, "2")):
        took = processor_us(ranks, nodes, "calls=5", "late_ms=200")
        expect(max(took.values()) < 50_000, "%d ranks on nodes %s: %r" % (ranks, nodes, took))


def one_cpu_per_core():
    """Of the cpus that this process may run on, the first of each core."""
    found = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        name = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % cpu
        with open(name, encoding="ascii") as siblings:
            found.setdefault(siblings.read(), cpu)
    return sorted(found.values())


def test_slices_are_not_given_away():
    """Other programs on the cpus of two ranks: a rank that yields to one loses a time slice, and
    does so a few times, not in every call."""
    cpus = one_cpu_per_core()[:2]
    if len(cpus) < 2:
        raise Skip("it takes two cores")
    busy = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(["taskset", "--cpu-list", str(cpu), *busy]) for cpu in cpus]
    try:
        two = ("taskset", "--cpu-list", ",".join(map(str, cpus)))
        result = counted(2, None, "switches", "calls=1000", prefix=two)
    finally:
        for other in others:
            other.kill()
            other.wait()
    lost = [int(number) for number in re.findall(r"lost its cpu (\d+) times", result.out)]
    print("two ranks lost their cpus %r times in 1000 calls" % lost)
    expect(len(lost) == 2 and max(lost) < 200, "a rank gives its time slices away", result)


def test_started_plans_leave_the_processor():
    """The helper thread of a rank that is elsewhere looks now and then: of 1 s it takes 50 ms at
    most."""
    for ranks, nodes in ((2, None), (3, "3"), (4, "2")):
        took = processor_us(ranks, nodes, "late_ms=1000", mode="away")
        expect(max(took.values()) < 50_000, "%d ranks on nodes %s: %r" % (ranks, nodes, took))


def kept(nodes, ranks_per_node):
    ranks = nodes * ranks_per_node
    result = counted(ranks, str(nodes), "kept", env={"ALLRAIL_NODE_MEMORY": "1M"})
    found = [int(number) for number in re.findall(r"rank \d+ keeps (\d+)", result.out)]
    expect(len(found) == ranks, "a rank said nothing", result)
    print("%d nodes of %d ranks: %d to %d bytes" % (nodes, ranks_per_node, min(found), max(found)))
    return ranks, min(found), max(found)


def kept_at_rest(nodes, each):
    """The same, of three jobs the one whose links were at rest the most."""
    jobs = [kept(nodes, each) for _ in range(3)]
    return jobs[0][0], min(least for _, least, _ in jobs), min(most for _, _, most in jobs)


def test_kept_after_start():
    """With as many nodes and ranks per node together, twice the ranks keep no more than the map."""
    few, least_of_few, most_of_few = kept_at_rest(12, 2)
    many, least_of_many, most_of_many = kept_at_rest(7, 7)
    the_map = 4 * (many - few)
    # The least is that of a rank without links. A leader's differs with what its links are doing
    # when it is counted; a table of ranks is larger than that.
    limit = least_of_few + the_map + 1000
    expect(least_of_many <= limit, "%d bytes, at most %d are allowed" % (least_of_many, limit))
    limit = most_of_few + the_map + 8000
    expect(most_of_many <= limit, "%d bytes, at most %d are allowed" % (most_of_many, limit))


def test_plugins_loaded_once():
    """Each process has hwloc load its plugins once, however often it asks for the machine."""
    ranks = 4
    for nodes in ("1", "2"):
        result = counted(ranks, nodes, "kept", env={"HWLOC_PLUGINS_VERBOSE": "1"})
        loads = result.err.count("Looking under")
        if loads == 0:
            raise Skip("this hwloc has no plugins")
        # The launcher is a process, too.
        expect(loads == ranks + 1, "loaded %d times by %d processes" % (loads, ranks + 1), result)


if __name__ == "__main__":
    sys.exit(main(globals()))
