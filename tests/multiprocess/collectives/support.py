"""Starting jobs of collective-probe, reading what their ranks report, and what each test ends with.

SCRIPT ALLRAIL_RUN PROBE BEHAVIOUR
Exit code 0: it holds; 1: it does not, and why is printed; 77: cannot be tried here.
ALLRAIL_TEST_LONG=1 makes the random tests longer. ALLRAIL_TEST_SEED=N runs that one seed only.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launcher"))

from harness import (
    BEHAVIOUR,
    PROBE,
    RUN,
    Skip,
    enter_private_tmp,
    environment,
    expect,
    expect_within,
    files,
    finish,
    marked_processes,
    start,
    wait_until,
)

LONG = os.environ.get("ALLRAIL_TEST_LONG") == "1"
# Limits are for hangs. A whole grid takes up to so many times as long as the sample of it.
LONGER = 40 if LONG else 1
TWO_RAILS = "127.0.0.1,127.0.0.2"
DEFAULT_MEMORY = {"ALLRAIL_NODE_MEMORY": "64M"}  # what jobs have that nobody says anything to
ALGORITHMS = (
    "auto",
    "direct",
    "bruck",
    "recursive-doubling",
    "ring",
    "smp-gather-broadcast",
    "smp-direct-gather-broadcast",
    "smp-direct",
    "smp-bruck",
    "smp-recursive-doubling",
    "smp-ring",
    "smp-ring-chain",
    "smp-multi-leader-recursive-doubling",
    "smp-multi-leader-ring",
    "smp-multi-leader-recursive-doubling-point-to-point",
    "smp-multi-leader-ring-point-to-point",
)


def seeds(count, long_count):
    one = os.environ.get("ALLRAIL_TEST_SEED")
    return [int(one)] if one else range(1, (long_count if LONG else count) + 1)


def part_of(cases, part, parts):
    """Of cases that several tests go through, each in a setting of its own: every case in one of
    the settings, with ALLRAIL_TEST_LONG=1 in all of them."""
    return cases if LONG else cases[part::parts]


class Report:
    """What one rank said: its first Error, the one of its next call, and its other lines."""

    def __init__(self):
        self.code, self.peer, self.at, self.text = None, None, None, ""
        self.again, self.again_text, self.after, self.lines = None, "", None, []

    def __repr__(self):
        return "%s peer %s after %s: %s | again %s" % (
            self.code,
            self.peer,
            self.after,
            self.text,
            self.again,
        )


ERROR = re.compile(r"rank (\d+) (error|again): (\S+) peer (-?\d+) at ([\d.]+): (.*)")


def reports(result, ranks):
    found = {rank: Report() for rank in range(ranks)}
    for line in result.out.splitlines():
        match = re.match(r"rank (\d+) ", line)
        if not match or int(match[1]) >= ranks:
            continue
        one = found[int(match[1])]
        one.lines.append(line)
        if error := ERROR.match(line):
            if error[2] == "error":
                one.code, one.peer = error[3], int(error[4])
                one.at, one.text = float(error[5]), error[6]
            else:
                one.again, one.again_text = error[3], error[6]
        if " after " in line and line.split(" after ")[0] == "rank %s" % match[1]:
            one.after = float(line.split(" after ")[1])
    return found


def command(ranks, nodes, *words, wrapper=(), options=("--keep-going",)):
    spec = ["--nodes", nodes] if nodes else []
    return [RUN, "-n", str(ranks), *spec, *options, *wrapper, PROBE, *words]


def start_job(ranks, nodes, *words, prefix=(), env=None, **others):
    variables = {"ALLRAIL_RAILS": TWO_RAILS, **(env or {})}
    return start([*prefix, *command(ranks, nodes, *words, **others)], env=environment(**variables))


def in_namespaces(script, *flags):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise Skip("only root can make namespaces here")
    prefix = ["unshare", *flags, "sh", "-c", script + ' && exec "$@"', "sh"]
    probe = subprocess.run([*prefix, "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if probe.returncode != 0:
        raise Skip("cannot prepare it here: " + probe.stdout.decode().strip())
    return prefix


def others_run():
    """Whether the processors have other work. The load average knows of it a minute later."""
    running = 0
    for _ in range(50):
        with open("/proc/loadavg", encoding="ascii") as file:
            running += int(file.read().split()[3].split("/")[0]) > 1
        time.sleep(0.01)
    return running >= 5 or os.getloadavg()[0] > os.cpu_count()


def print_stacks():
    """Of a hang: where every rank waits."""
    gdb = shutil.which("gdb")
    for pid, line in marked_processes():
        if not line.startswith(PROBE):
            continue
        print("---- hangs: %d %s" % (pid, line))
        if gdb is not None:
            text = subprocess.run(
                [gdb, "-p", str(pid), "-batch", "-ex", "thread apply all bt 14"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=60,
            ).stdout.decode(errors="replace")
            print("\n".join(line for line in text.splitlines() if line.startswith(("#", "Thread"))))


def wait_for_pids(process, ranks):
    """Reads the lines in which the ranks say that they are ready."""
    pids = {}
    while len(pids) < ranks:
        line = process.stdout.readline().decode()
        expect(line, "the job ended before its ranks were ready")
        if match := re.match(r"rank (\d+) ready, pid (\d+)", line):
            pids[int(match[1])] = int(match[2])
    return pids


def end_job(process, began, limit):
    try:
        return finish(process, began, limit=limit)
    except subprocess.TimeoutExpired:
        print_stacks()
        process.send_signal(signal.SIGTERM)
        result = finish(process, began, limit=20)
        expect(False, "the job did not end within %s s" % limit, result)


def job(ranks, nodes, *words, limit=150, **others):
    began = time.monotonic()
    return end_job(start_job(ranks, nodes, *words, **others), began, limit * LONGER)


def jobs_at_once(ranks, all_words, limit=150):
    """What `job` returns, of jobs that mostly sleep: nine run side by side."""
    for first in range(0, len(all_words), 9):
        began = time.monotonic()
        running = [start_job(ranks, *words) for words in all_words[first : first + 9]]
        yield from [end_job(process, began, limit) for process in running]


def check_clean():
    """Nothing of this test runs or lies about any more."""
    wait_until(lambda: not marked_processes(), "no process left: %s" % marked_processes(), 3)
    wait_until(
        lambda: not files() - check_clean.before,
        "no file left: %s" % (files() - check_clean.before),
        3,
    )


def main(tests):
    if BEHAVIOUR == "list":
        print("\n".join(name[5:] for name in tests if name.startswith("test_")))
        return 0
    enter_private_tmp()
    check_clean.before = files()
    try:
        tests["test_" + BEHAVIOUR]()
        check_clean()
    except Skip as reason:
        print("skipped:", reason)
        return 77
    except (AssertionError, subprocess.TimeoutExpired) as failure:
        print("FAILED %s: %s" % (BEHAVIOUR, failure))
        for pid, line in marked_processes():
            print("killing what is left: %d %s" % (pid, line))
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return 1
    return 0
