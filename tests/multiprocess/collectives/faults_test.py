"""Ranks that die or leave; strangers; timeouts."""

import contextlib
import glob
import os
import random
import re
import signal
import socket
import sys
import tempfile
import time

from support import (
    PROBE,
    check_clean,
    end_job,
    expect,
    expect_within,
    job,
    main,
    marked_processes,
    others_run,
    reports,
    seeds,
    start_job,
    wait_for_pids,
    wait_until,
)


# ---- a rank dies ----


def kill_one(seed, ranks, nodes, size, algorithms, mode="loop", words=(), env=None):
    chance = random.Random("%d %s %s %d" % (seed, ranks, nodes, size))
    algorithm = chance.choice(algorithms)
    victim = chance.randrange(ranks)
    delay = chance.uniform(0, 0.25)
    what = (
        "seed %d: %d ranks on nodes %s, %d bytes, algorithm '%s', rank %d killed after %.4f s"
        % (seed, ranks, nodes, size, algorithm, victim, delay)
    )
    began = time.monotonic()
    values = ("bytes=%d" % size, "seconds=30", "algorithm=" + algorithm)
    process = start_job(ranks, nodes, mode, *values, *words, env=env)
    pids = wait_for_pids(process, ranks)
    time.sleep(delay)
    os.kill(pids[victim], signal.SIGKILL)
    killed = time.monotonic()
    result = end_job(process, began, 25)
    return check_killed(result, ranks, victim, killed, what)


def check_killed(result, ranks, victim, killed, what, clean=True):
    """All others know it soon, and who it was. Returns how long the last one took."""
    expect(
        re.search(r"rank %d \(pid \d+\) was killed by signal 9" % victim, result.err), what, result
    )
    expect(
        result.code in (137, 42),
        "the code of whichever rank was seen to fail first: " + what,
        result,
    )
    slowest = 0.0
    for rank, one in reports(result, ranks).items():
        if rank == victim:
            continue
        expect(
            one.code == "peer-lost" and one.peer == victim,
            "rank %d: %r; %s" % (rank, one, what),
            result,
        )
        expect(
            re.search(r"\b%d\b" % victim, one.text), "names the rank: %r; %s" % (one, what), result
        )
        expect(
            one.again == "aborted" and one.text in one.again_text,
            "dead with its first cause: %r; %s" % (one, what),
        )
        slowest = max(slowest, one.at - killed)
    if clean:
        check_clean()
    # On idle processors the promise is 1 s; here other tests may run beside.
    limit = 4 if slowest >= 1 and others_run() else 1
    expect(slowest < limit, "known after %.3f s; %s" % (slowest, what), result)
    return slowest


def kill_many(nodes, size, algorithms, words=(), env=None):
    times = [
        kill_one(seed, 6 if nodes else 4, nodes, size, algorithms, words=words, env=env)
        for seed in seeds(8, 60)
    ]
    print("%d kills, known on all ranks after %.3f s at most" % (len(times), max(times)))


def test_kill_small_one_node():
    kill_many(None, 64, ("", "ring"))


def test_kill_large_one_node():
    kill_many(None, 2_000_000, ("", "bruck"))


def kill_in_rooted(ranks, nodes, large=300_000):
    for collective in ("gather", "scatter", "broadcast", "alltoall"):
        for seed in seeds(3, 15):
            size = 64 if seed % 2 else large
            kill_one(seed, ranks, nodes, size, ("",), words=("collective=" + collective,))


def test_kill_rooted_one_node():
    kill_in_rooted(4, None)


def test_kill_rooted_four_nodes():
    kill_in_rooted(6, "4")
    for ranks, nodes in ((3, "3"), (5, "2+3")):
        kill_in_rooted(ranks, nodes, large=1_500_000)  # straight between user buffers


def test_kill_barrier():
    """Nobody waits for bytes there: what is awaited is a flag, a header and no more."""
    for ranks, nodes in ((4, None), (3, "3"), (6, "4")):
        for seed in seeds(3, 15):
            kill_one(seed, ranks, nodes, 64, ("",), words=("collective=barrier",))


def test_kill_allgatherv():
    for ranks, nodes in ((4, None), (3, "3"), (6, "4")):
        for seed in seeds(3, 15):
            size = (64, 300_000, 1_500_000)[seed % 3]
            algorithms = ("",) if size == 64 else ("", "smp-ring-chain")
            kill_one(seed, ranks, nodes, size, algorithms, words=("collective=allgatherv",))


def test_kill_v_forms():
    """Of an alltoallv ranks may be killed while counts are exchanged, too."""
    for ranks, nodes in ((4, None), (3, "3"), (6, "4")):
        for collective in ("gatherv", "scatterv", "alltoallv"):
            for seed in seeds(2, 15):
                size = 64 if seed % 2 else 1_500_000
                kill_one(seed, ranks, nodes, size, ("",), words=("collective=" + collective,))


def test_kill_small_four_nodes():
    kill_many("4", 64, ("", "direct", "smp-ring", "smp-bruck"))


def test_kill_large_four_nodes():
    kill_many("4", 1_500_000, ("", "ring", "smp-ring"))


# ---- in every phase of a call ----


def die_in_call(ranks, nodes, victim, early, size, algorithm):
    """The victim dies when the ranks `early` have begun the call; None: before it begins itself."""
    what = "%d ranks on nodes %s, rank %d dies with %s, %d bytes, algorithm '%s'" % (
        ranks,
        nodes,
        victim,
        "no call" if early is None else "ranks %s in the call" % early,
        size,
        algorithm,
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="probe-") as folder:
        words = ["rank=%d" % victim, "bytes=%d" % size, "algorithm=" + algorithm]
        words += ["early=" + ",".join(map(str, early or [-1])), "before=%d" % (early is None)]
        process = start_job(ranks, nodes, "die-in-call", "folder=" + folder, *words)
        result = end_job(process, began, 25)
    killed = re.search(r"rank %d dies at ([\d.]+)" % victim, result.out)
    expect(killed, what, result)
    return check_killed(result, ranks, victim, float(killed[1]), what)


def die_in_every_phase(ranks, nodes, algorithms):
    """With none, one, ... and all of the others in the call, in an order that the seed draws."""
    times = []
    phases = range(-1, ranks)
    for seed in seeds(1, 8):
        chance = random.Random("%d %s %s" % (seed, ranks, nodes))
        for algorithm in algorithms:
            for phase in phases:
                victim = chance.randrange(ranks)
                others = [rank for rank in range(ranks) if rank != victim]
                early = None if phase < 0 else sorted(chance.sample(others, phase))
                size = chance.choice((40, 3000, 70_000, 1_500_000))
                times.append(die_in_call(ranks, nodes, victim, early, size, algorithm))
    print("%d deaths, known on all ranks after %.3f s at most" % (len(times), max(times)))


def test_die_in_every_phase_one_node():
    die_in_every_phase(4, None, ("", "bruck"))


def test_die_in_every_phase_four_nodes():
    die_in_every_phase(4, "4", ("", "ring", "direct"))
    die_in_every_phase(6, "4", ("",))


def sleeps(pid):
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "S"


def test_kill_while_others_sleep():
    """It is stopped until all others have gone to sleep for it, and killed then."""
    jobs = []
    for number, (ranks, nodes, size) in enumerate(
        ((4, None, 64), (4, None, 2_000_000), (4, "4", 64), (4, "4", 300_000), (6, "4", 5000))
    ):
        victim = number % ranks
        what = "rank %d of %d on nodes %s, %d bytes" % (victim, ranks, nodes, size)
        process = start_job(ranks, nodes, "loop", "bytes=%d" % size, "seconds=30")
        jobs.append((what, ranks, victim, process, wait_for_pids(process, ranks)))
        os.kill(jobs[-1][-1][victim], signal.SIGSTOP)
    began = time.monotonic()
    for what, _, victim, _, pids in jobs:
        others = [pid for rank, pid in pids.items() if rank != victim]
        wait_until(lambda: all(sleeps(pid) for pid in others), "all others sleep: " + what)
    time.sleep(1)  # a sleep is cut into pieces, which get longer
    for what, ranks, victim, process, pids in jobs:
        os.kill(pids[victim], signal.SIGKILL)
        killed = time.monotonic()
        check_killed(end_job(process, began, 25), ranks, victim, killed, what, clean=False)
    check_clean()


def test_kill_before_a_name_is_gone():
    """Who names the segment of a node, or memory of Buffers, dies before the name is gone."""
    for names, mode, word in (
        (1, "loop", "seconds=30"),
        (2, "loop", "memory=buffer"),
        (2, "loop", "memory=node"),
        (2, "split-loop", "columns=2"),
    ):
        result = job(
            4,
            "2",
            mode,
            "bytes=3000",
            word,
            env={"PROBE_DIES_AT_NAME": str(names)},
            limit=15,
        )
        what = "rank 0 killed at its name %d, %s %s" % (names, mode, word)
        expect("rank 0 (pid" in result.err and "signal 9" in result.err, what, result)
        for rank, one in reports(result, 4).items():
            expect(rank == 0 or one.code is not None, "rank %d: %r; %s" % (rank, one, what), result)
        check_clean()


def test_kill_ends_the_job():
    """Without --keep-going the launcher ends the job, and nothing is left."""
    for seed in seeds(4, 40):
        chance = random.Random(seed)
        began = time.monotonic()
        process = start_job(6, "3", "loop", "bytes=50000", "seconds=30", options=())
        pids = wait_for_pids(process, 6)
        time.sleep(chance.uniform(0, 0.2))
        os.kill(pids[chance.randrange(6)], signal.SIGKILL)
        killed = time.monotonic()
        result = end_job(process, began, 25)
        expect(result.code == 137 and time.monotonic() - killed < 5, "seed %d" % seed, result)
        check_clean()


def names(most_bytes):
    """What ranks of this user have named in /dev/shm, up to a size."""
    found = set()
    for path in glob.glob("/dev/shm/allrail-%d-*" % os.geteuid()):
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_size <= most_bytes:
                found.add(path)
    return found


def start_with_a_name(*words, late="1", most_bytes=1 << 40, **others):
    """A job in which a name exists for a second, because a rank comes late to it. Memory of a small
    Buffer is smaller than a node segment, and the second that a rank comes to."""
    before = names(most_bytes)
    env = {"PROBE_LATE_AT_OPEN": late}
    words = ("bytes=64", "seconds=30", *words)
    process = start_job(5, "2", "loop", *words, options=(), env=env, **others)
    wait_until(lambda: names(most_bytes) - before, "a name in /dev/shm")
    return process


def ranks_of_test():
    return [pid for pid, line in marked_processes() if line.startswith(PROBE)]


def test_kill_in_start():
    """A rank that dies while the job starts: the launcher ends it, whatever was under way, and
    nothing is left, with no other job behind it."""
    for seed in seeds(8, 60):
        chance = random.Random(seed)
        began = time.monotonic()
        if seed % 2:
            process = start_with_a_name()
        else:
            process = start_job(5, "2", "loop", "bytes=64", "seconds=30", options=())
            wait_until(lambda: len(ranks_of_test()) >= 5, "5 processes")
            time.sleep(chance.uniform(0, 0.15))
        os.kill(chance.choice(ranks_of_test()), signal.SIGKILL)
        result = end_job(process, began, 25)
        expect(result.code == 137, "seed %d" % seed, result)
        check_clean()


def test_kill_launcher_in_start():
    """Only the launcher's janitor lives on to take names away, whoever has made them."""
    in_a_shell = ("sh", "-c", '"$@"; exit $?', "sh")  # the maker is a child of what was started
    for what, words, others in (
        ("a node segment", (), {}),
        ("a node segment, ranks in shells", (), {"wrapper": in_a_shell}),
        ("memory of a Buffer", ("memory=buffer",), {"late": "1:2", "most_bytes": 1 << 19}),
    ):
        began = time.monotonic()
        process = start_with_a_name(*words, **others)
        process.kill()
        end_job(process, began, 25)
        print("killed with a name of", what)
        check_clean()


def test_kill_in_an_allocation():
    """A rank comes to the memory of a Buffer when those that saw another one die took its name."""
    words = ("bytes=64", "seconds=30", "memory=buffer")
    process = start_job(4, None, "loop", *words, env={"PROBE_LATE_AT_OPEN": "1:2"})
    pids = wait_for_pids(process, 4)
    time.sleep(0.5)
    os.kill(pids[3], signal.SIGKILL)
    killed = time.monotonic()
    check_killed(end_job(process, killed, 25), 4, 3, killed, "rank 1 is late")


def run_beside(jobs, limit=50):
    """Several jobs at once: they mostly sleep."""
    began = time.monotonic()
    started = [(what, start_job(*arguments)) for what, arguments in jobs]
    return [(what, end_job(process, began, limit)) for what, process in started]


# ---- a rank leaves ----


def test_leave_last():
    """A rank that ends first while nobody has anything more to do is not a lost peer."""
    jobs = [
        (
            "%s on nodes %s" % (how, nodes),
            (4, nodes, "leave", "how=" + how, "rank=%d" % rank, "wait=2"),
        )
        for how, nodes, rank in (
            ("end", None, 0),
            ("end", "4", 0),
            ("end", "2", 1),
            ("exit", None, 1),
            ("end", "4", 3),
        )
    ]
    for what, result in run_beside(jobs):
        expect(result.code == 0 and result.out.count(" ends") == 3, what, result)
        expect(result.err == "", "says nothing: " + what, result)


def test_leave_while_others_start():
    """A rank that entered, had nothing to do and ended is no reason to give up a start."""
    words = ("leave", "calls=0", "rank=1", "wait=2")
    result = job(6, "2", *words, env={"PROBE_LATE_AT_OPEN": "2"}, limit=30)
    expect(result.code == 0 and result.out.count(" ends") == 5, "rank 2 is late", result)
    leaves = result.out.index("rank 1 leaves")
    expect(leaves < result.out.index("rank 2 ready"), "rank 1 left before rank 2 had begun", result)
    expect("error" not in result.err, "says nothing of errors", result)


def test_leave_too_early():
    """A rank has left, and the others call once more: an Error, never a wait without end."""
    jobs = [
        (
            "%s rank %d on nodes %s" % (how, rank, nodes),
            (4, nodes, "leave", "how=" + how, "rank=%d" % rank, "wait=0.5", "call=1"),
        )
        for how in ("end", "exit", "_exit")
        for nodes in (None, "4", "2")
        for rank in (0, 1)
    ]
    for what, result in run_beside(jobs, 40):
        for rank, one in reports(result, 4).items():
            if " leaves" not in "".join(one.lines):
                expect(
                    one.code in ("peer-lost", "network"),
                    "rank %d: %r; %s" % (rank, one, what),
                    result,
                )
                expect(
                    re.search("died|left|ended|lost", one.text),
                    "rank %d: %r; %s" % (rank, one, what),
                    result,
                )


def test_leave_unheard():
    """A node's first rank has left, and another rank of it ends the job while the next is deaf.

    What the control plane can no longer tell, the rails do, also to one that stopped before it
    acknowledged what the first rank put last.
    """
    began = time.monotonic()
    words = ("leave", "how=end", "rank=0", "pause=0.3", "wait=1.7", "call=1", "stop=2")
    process = start_job(4, "2", *words)
    pids = wait_for_pids(process, 4)
    time.sleep(2.5)
    os.kill(pids[2], signal.SIGCONT)
    result = end_job(process, began, 30)
    for rank, one in reports(result, 4).items():
        if rank == 0:
            continue
        expect(one.code in ("peer-lost", "network"), "rank %d: %r" % (rank, one), result)
        expect(re.search("rank 0.*(left|ended)", one.text), "rank %d: %r" % (rank, one), result)


# ---- timeouts ----


def test_timeout():
    def late_rank(nodes, size):
        result = job(
            4,
            nodes,
            "loop",
            "bytes=%d" % size,
            "seconds=20",
            "sleep_rank=1",
            "sleep=5",
            env={"ALLRAIL_TIMEOUT": "2s"},
        )
        what = "late rank on nodes %s, %d bytes" % (nodes, size)
        found = reports(result, 4)
        for rank, one in found.items():
            expect(one.code == "timeout", "rank %d: %r; %s" % (rank, one, what), result)
            # Also where it waits for one that itself waits for the late one.
            expect(
                "ALLRAIL_TIMEOUT" in one.text and "waiting for rank 1;" in one.text,
                "%r; %s" % (one, what),
                result,
            )
            expect(one.again == "aborted", "%r; %s" % (one, what), result)
        return max(one.after for one in found.values()), what

    for nodes, size in ((None, 64), ("4", 64), ("4", 300000), ("2", 64)):
        expect_within(3, lambda: late_rank(nodes, size))
    # A timeout that is long enough changes nothing.
    result = job(4, "2", "loop", "bytes=64", "seconds=1", env={"ALLRAIL_TIMEOUT": "20s"})
    expect(result.code == 0, "a timeout that is not reached", result)


# ---- strangers ----


def listening_ports(pids):
    """TCP addresses on which these processes listen."""
    inodes = set()
    for pid in pids:
        for path in glob.glob("/proc/%d/fd/*" % pid):
            try:
                if match := re.match(r"socket:\[(\d+)\]", os.readlink(path)):
                    inodes.add(match[1])
            except OSError:
                pass
    found = set()
    with open("/proc/net/tcp") as file:
        for line in file.readlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                host, port = words[1].split(":")
                found.add((socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)))
    return sorted(found)


def disturb(address, chance):
    """One stranger: says nothing, too little, or garbage, and goes or stays."""
    try:
        connection = socket.create_connection(address, timeout=2)
        size = chance.choice((0, 1, 7, 16, 200, 5000, 100000))
        if size:
            connection.settimeout(0.2)
            connection.sendall(chance.randbytes(size))
    except OSError:
        return None
    if chance.random() < 0.5:
        connection.close()
        return None
    return connection


def test_strangers():
    for nodes, size, seconds in (("4", 20000, 5), (None, 64, 1)):
        chance = random.Random(size)
        began = time.monotonic()
        process = start_job(4, nodes, "loop", "bytes=%d" % size, "seconds=%d" % seconds)
        pids = wait_for_pids(process, 4)
        ports = listening_ports(pids.values())
        expect(ports or nodes is None, "ranks on four nodes listen somewhere")
        kept = [disturb(chance.choice(ports), chance) for _ in range(300 if ports else 0)]
        result = end_job(process, began, 50)
        expect(
            result.code == 0 and result.out.count(" done, calls") == 4,
            "strangers at %s" % ports,
            result,
        )
        print("%d ports, %d strangers, %.1f s" % (len(ports), len(kept), result.seconds))
        for connection in kept:
            if connection is not None:
                connection.close()


def test_two_jobs():
    """Jobs beside each other on the same addresses do not find each other."""
    jobs = [
        ("job %d" % number, (3, "3", "loop", "bytes=%d" % (1000 * number + 64), "seconds=2"))
        for number in range(4)
    ]
    for what, result in run_beside(jobs):
        expect(result.code == 0, what, result)


if __name__ == "__main__":
    sys.exit(main(globals()))
