"""Jobs of collective-probe over two guests, for campaign.py: starting them, reading what the ranks
say, commands in both guests, and what a job may not leave behind."""

import json
import os
import re
import subprocess
import threading
import time

PROBE = "/build/tests/multiprocess/collectives/collective-probe"
RAILS = 2
RANKS_PER_GUEST = 2
RANKS = 2 * RANKS_PER_GUEST
STOP_FILE = "/tmp/stop"
SAID = "/tmp/said."  # and the rank's number, in its guest
# Of what ranks say at last the launcher passes on a part only, once one of them was killed: it
# stands in a file, which is passed on from there.
TO_FILE = (
    "bash",
    "-c",
    'file=%s$PMIX_RANK; : >$file; tail -f -n +1 --pid=$$ $file & exec "$@" >$file 2>&1' % SAID,
    "bash",
)
# One emulated processor per guest, and a busy machine under it: what takes longer than this hangs.
HANG_S = 120.0


class Failure(Exception):
    """A promise that does not hold."""


def expect(holds, text):
    if not holds:
        raise Failure(text)


def wait_until(condition, text, limit_s=HANG_S):
    """Returns how long it took."""
    began = time.monotonic()
    while not condition():
        expect(time.monotonic() - began < limit_s, "within %.0f s: %s" % (limit_s, text))
        time.sleep(0.1)
    return time.monotonic() - began


class Guest:
    """A shell in one guest that stays: starting ssh costs a second here."""

    def __init__(self, number):
        self.number = number
        command = ["bash"] if number == 0 else ["ssh", "guest%d" % number, "bash"]
        self.shell = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def run(self, command):
        """The command's output; a failure of it is one of the campaign."""
        self.shell.stdin.write(("{ %s\n} </dev/null; echo +END $?\n" % command).encode())
        self.shell.stdin.flush()
        lines = []
        while True:
            line = self.shell.stdout.readline().decode()
            expect(line, "the shell in guest %d ended: %s" % (self.number, "".join(lines)))
            if match := re.search(r"\+END (\d+)$", line):
                lines.append(line[: match.start()])
                expect(match[1] == "0", "%s: %s" % (command, "".join(lines)))
                return "".join(lines)
            lines.append(line)

    def clock(self):
        """What its ranks read from theirs, to a hundredth of a second."""
        return float(self.run("cat /proc/uptime").split()[0])

    def close(self):
        self.shell.stdin.close()
        self.shell.wait()


class Rank:
    """What one rank has said of itself."""

    def __init__(self):
        self.pid = None
        self.progress = None
        self.reports = 0
        self.longest_s = 0.0
        self.error = None  # (code, peer, when it came by the clock of its guest)
        self.done = False

    def take(self, line):
        if match := re.match(r"ready, pid (\d+)", line):
            self.pid = int(match[1])
        elif match := re.match(r"progress (.*)", line):
            self.progress = json.loads(match[1])
            self.reports += 1
            self.longest_s = max(self.longest_s, self.progress["longest_s"])
        elif match := re.match(r"error: (\S+) peer (-?\d+) at ([\d.]+)", line):
            self.error = (match[1], int(match[2]), float(match[3]))
        elif line.startswith("done"):
            self.done = True


class Job:
    """prterun and its ranks, RANKS_PER_GUEST on each guest."""

    def __init__(self, words, recoverable=False, connect="cm"):
        if os.path.exists(STOP_FILE):
            os.unlink(STOP_FILE)
        command = ["prterun", "--host", "guest0:%d,guest1:%d" % ((RANKS_PER_GUEST,) * 2)]
        command += ["--bind-to", "none", "--prtemca", "prte_if_include", "10.9.9.0/24"]
        if recoverable:
            command += ["--runtime-options", "notifyerrors,recoverable"]
        settings = {"RAILS": "verbs", "TIMEOUT": "%ds" % HANG_S, "CONNECT": connect}
        for name, value in settings.items():
            command += ["-x", "ALLRAIL_%s=%s" % (name, value)]
        for name in ("ALLRAIL_LOG", "HWLOC_PLUGINS_BLACKLIST"):
            if name in os.environ:
                command += ["-x", name]
        command += ["-n", str(RANKS), *(TO_FILE if recoverable else ()), PROBE, "loop", *words]
        self.ranks = [Rank() for _ in range(RANKS)]
        self.lines = []
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for raw in self.process.stdout:
            line = raw.decode(errors="replace").rstrip("\n")
            if " progress " not in line:
                self.lines.append("%.1f: %s" % (time.monotonic(), line))
            if match := re.match(r"rank (\d+) (.*)", line):
                self.ranks[int(match[1])].take(match[2])

    def alive(self):
        return self.process.poll() is None

    def await_start(self):
        wait_until(
            lambda: not self.alive() or all(rank.progress for rank in self.ranks),
            "all ranks make calls",
        )
        expect(self.alive(), "the job ended at its start")

    def calls(self):
        """How many calls every rank is known to have made."""
        return min(rank.progress["call"] for rank in self.ranks)

    def counters(self, rail, name):
        """Of every rank that talks over rails."""
        return [
            rank.progress["rails"][rail][name]
            for rank in self.ranks
            if any(one["sent"] for one in rank.progress["rails"])
        ]

    def await_news(self):
        """Every rank has said how it is since this was called: the next report may be on its way
        already, so the one after it counts."""
        seen = [rank.reports for rank in self.ranks]
        self.await_more(
            lambda: all(rank.reports > old + 1 for rank, old in zip(self.ranks, seen)),
            "every rank reports",
        )

    def connected(self, rail):
        """Every link of the rail that was lost has been made again, as far as is known."""
        return self.counters(rail, "fences") == self.counters(rail, "reconnects")

    def await_more(self, condition, text):
        """Waits while the job goes on, which it must. Returns how long it took."""

        def there():
            expect(self.alive(), "the job ended while it should have been so: " + text)
            return condition()

        return wait_until(there, text)

    def finish(self):
        """Tells the ranks to end, and returns the exit code."""
        with open(STOP_FILE, "w", encoding="ascii"):
            pass
        return self.join()

    def join(self):
        try:
            code = self.process.wait(HANG_S)
        except subprocess.TimeoutExpired as late:
            raise Failure("the job did not end within %.0f s" % HANG_S) from late
        self.reader.join()
        return code

    def read_files(self, guests):
        """The errors that the launcher did not pass on."""
        for number, rank in enumerate(self.ranks):
            if rank.error:
                continue
            text = guests[number // RANKS_PER_GUEST].run("cat %s%d" % (SAID, number))
            for line in text.splitlines():
                if line.startswith("rank %d error: " % number):
                    self.lines.append("in its file: " + line)
                    rank.take(line.split(" ", 2)[2])

    def expect_success(self, code):
        expect(code == 0, "exit code %d" % code)
        expect(all(rank.done for rank in self.ranks), "a rank did not say that it was done")

    def end(self):
        """Whatever state it is in."""
        if self.alive():
            self.process.kill()
            self.process.wait()


def held(guest):
    """What there is of a job in a guest: processes, shared memory, queue pairs."""
    return guest.run(
        "pgrep -a 'collective-prob|prterun' || true; ls /dev/shm; "
        "rdma resource show qp | grep -v 'comm \\[ib_core\\]' || true"
    )


def await_clean(guests):
    wait_until(lambda: not any(held(guest).strip() for guest in guests), "nothing is left", 30)
