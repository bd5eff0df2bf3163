"""Ranks that stop, come late or pause: nothing of them is lost."""

import os
import random
import signal
import sys
import threading
import time

from support import end_job, expect, main, seeds, start_job, wait_for_pids


def test_slow_is_not_dead():
    """Stopped for 15 s, or 15 s late, or busy for as long with what is not Allrail's: no error, and
    the bytes are right. Lost links are given up after 3 s, heartbeats come every 250 ms."""
    stopped = [
        (nodes, size, start_job(4, nodes, "loop", "bytes=%d" % size, "seconds=18", "pause_us=2000"))
        for nodes, size in ((None, 64), ("4", 64), ("4", 300000), ("2", 5000))
    ]
    began = time.monotonic()
    late = [
        (
            "late on nodes %s, %d bytes" % (nodes, size),
            (4, nodes, "loop", "bytes=%d" % size, "seconds=16", "sleep_rank=2", "sleep=15"),
        )
        for nodes, size in ((None, 4000), ("4", 200000))
    ]
    late += [
        (
            "busy on nodes %s, %d bytes" % (nodes, size),
            (4, nodes, "loop", "bytes=%d" % size, "seconds=16", "spin_rank=%d" % rank, "spin=15"),
        )
        for nodes, size, rank in ((None, 4000, 1), ("2", 200000, 2))
    ]
    late = [(what, start_job(*arguments)) for what, arguments in late]
    victims = [
        wait_for_pids(process, 4)[number % 4] for number, (_, _, process) in enumerate(stopped)
    ]
    time.sleep(0.5)
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(15)
    for pid in victims:
        os.kill(pid, signal.SIGCONT)
    jobs = late + [
        ("stopped on nodes %s, %d bytes" % (nodes, size), process)
        for nodes, size, process in stopped
    ]
    for what, process in jobs:
        result = end_job(process, began, 55)
        expect(result.code == 0 and result.out.count(" done, calls") == 4, what, result)
        expect("error" not in result.err, "says nothing of errors: " + what, result)


def pause_again_and_again(pids, chance, end):
    """A rank pauses for longer than rails may be silent, comes back for less than it takes to
    answer over all of them, and pauses again."""
    while time.monotonic() < end:
        pid = pids[chance.randrange(len(pids))]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(chance.choice((0.55, 0.7, 0.9)))
        for _ in range(chance.randrange(1, 6)):
            os.kill(pid, signal.SIGCONT)
            # To sleep would take longer.
            back = time.monotonic() + chance.choice((1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3))
            while time.monotonic() < back:
                pass
            os.kill(pid, signal.SIGSTOP)
            time.sleep(chance.choice((0.02, 0.05, 0.1)))
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)


def test_pauses_are_not_silent_rails():
    """Ranks that the system does not let run for a while keep their rails."""
    for seed in seeds(1, 20):
        began = time.monotonic()
        jobs = [
            start_job(4, "4", "loop", "bytes=%d" % size, "seconds=14", "pause_us=2000")
            for size in (64, 64, 4000, 300000)
        ]
        end = time.monotonic() + 12
        threads = []
        for number, process in enumerate(jobs):
            chance = random.Random("%d %d" % (seed, number))
            pids = wait_for_pids(process, 4)
            thread = threading.Thread(target=pause_again_and_again, args=(pids, chance, end))
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()
        for process in jobs:
            result = end_job(process, began, 60)
            what = "seed %d" % seed
            expect(result.code == 0 and result.out.count(" done, calls") == 4, what, result)
            expect("is down" not in result.err, "says nothing of rails: " + what, result)


def test_root_leaves_before_a_stopped_leaf_looks():
    """What a root gave to its kernel is lost when it goes and the leaf's answers meet nobody.

    The control plane, which the leaf has no link of yet, would take the root for lost meanwhile.
    """
    jobs = []
    for size in (1000, 100_000, 300_000, 1_000_000, 4_000_000):
        process = start_job(2, "2", "leave-root", "bytes=%d" % size)
        jobs.append((size, time.monotonic(), process, wait_for_pids(process, 2)))
    time.sleep(5)
    for size, began, process, pids in jobs:
        os.kill(pids[1], signal.SIGCONT)
        result = end_job(process, began, 40)
        what = "%d bytes" % size
        expect(result.code == 0 and result.out.count(" ends") == 2, what, result)
        expect("error" not in result.err, "says nothing of errors: " + what, result)


if __name__ == "__main__":
    sys.exit(main(globals()))
