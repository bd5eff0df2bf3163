"""Runs in guest 0 for perf/lab/guest: perftest, Allrail and Open MPI in turn between two guests.

Every sample is one line of JSON in the file that is named first: what was measured (case), by what
(program), which repetition, and the value in the unit of the case.
"""

import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/guest"))

from job import Guest, wait_until

BENCH = "/build/perf/allrail-bench"
MPI = ["/build/perf-lab/mpi_collective", "allgather"]
# UCX's own choice does not come up on soft-RoCE: its unreliable datagrams time out.
UCX = {
    "OMPI_MCA_pml": "ucx",
    "OMPI_MCA_pml_ucx_tls": "any",
    "OMPI_MCA_pml_ucx_devices": "any",
    "UCX_TLS": "rc_verbs,tcp:aux,self,sysv,posix",
    "UCX_NET_DEVICES": "rxe0:1,rxe1:1,eth2",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


class Runs:
    def __init__(self, arguments):
        self.arguments = arguments
        self.guests = [Guest(0), Guest(1)]
        self.repetition = 0

    def record(self, case, program, value, unit):
        line = {"case": case, "program": program, "repetition": self.repetition}
        line.update(value=value, unit=unit)
        with open(self.arguments.results, "a", encoding="ascii") as file:
            file.write(json.dumps(line) + "\n")
        print("%s: %s: %.5g %s" % (case, program, value, unit), file=sys.stderr, flush=True)

    def output_of(self, command):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
        )
        if done.returncode != 0:
            raise RuntimeError("%s\n%s%s" % (" ".join(command), done.stdout, done.stderr))
        return done.stdout

    def perftest(self, program, *options):
        """The row of figures that the client prints."""
        command = [program, "-d", "rxe0", "-x", "1", "-F", *options]
        server = "%s >/tmp/server.log 2>&1 & echo $!" % " ".join(command)
        pid = self.guests[1].run(server).strip()
        listening = "ss -Hltn 'sport = :18515'"
        wait_until(lambda: self.guests[1].run(listening).strip(), program + " listens", 30)
        rows = [
            line.split()
            for line in self.output_of([*command, "10.9.0.2"]).splitlines()
            if line.split()[:1] and line.split()[0].isdigit()
        ]
        wait_until(
            lambda: not self.guests[1].run("[ ! -e /proc/%s ] || echo yes" % pid).strip(),
            program + " ends",
            30,
        )
        return [float(word) for word in rows[-1]]

    def start(self, ranks, settings, program):
        per_guest = ranks // 2
        command = ["prterun", "--host", "guest0:%d,guest1:%d" % (per_guest, per_guest)]
        command += ["--bind-to", "none", "--prtemca", "prte_if_include", "10.9.9.0/24"]
        for name, value in settings.items():
            command += ["-x", "%s=%s" % (name, value)]
        return self.output_of([*command, "-n", str(ranks), *program])

    def put(self, size, iterations):
        """Of puts over the first rail alone: half a round trip in us, median and average, then MB/s
        one way and both ways."""
        output = self.start(
            2,
            {"ALLRAIL_RAILS": "rxe0"},
            [BENCH, "put", "--sizes", str(size), "--iterations", str(iterations)],
        )
        row = next(line for line in output.splitlines() if " rxe0" in line)
        return [float(word) for word in row.split("rxe0:1")[1].split()]

    def allgather(self, ranks, rails, size, iterations):
        """The median call in microseconds."""
        file = "/tmp/allgather.json"
        self.start(
            ranks,
            {"ALLRAIL_RAILS": rails},
            [BENCH, "allgather", "--sizes", str(size), "--iterations", str(iterations)]
            + ["--warmup", "2", "--json", file],
        )
        with open(file, encoding="utf-8") as report:
            result = json.load(report)["results"][0]
        if result["wrong_bytes"]:
            raise RuntimeError("wrong bytes: %s" % result)
        return result["time_us"]["p50"]

    def mpi_allgather(self, ranks, size, iterations):
        output = self.start(ranks, UCX, [*MPI, "isolated", str(iterations), "2", str(size)])
        result = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
        if result["wrong_bytes"]:
            raise RuntimeError("wrong bytes: %s" % result)
        return result["time_us"]["p50"]

    def measure_puts(self):
        # Figures of perftest: size, iterations, least, most, typical (its median), average; MiB/s
        # come after peak.
        theirs = self.perftest("ib_write_lat", "-s", "8", "-n", "500")[4:6]
        ours = self.put(8, 500)[:2]
        for case, their, our in zip(("put of 8 B", "put of 8 B, average"), theirs, ours):
            self.record(case, "ib_write_lat", their, "us")
            self.record(case, "allrail", our, "us")
        mebi = self.perftest("ib_write_bw", "-s", "1048576", "-n", "40")[3]
        self.record("puts of 1 MiB", "ib_write_bw", mebi * 1.048576, "MB/s")
        self.record("puts of 1 MiB", "allrail", self.put(1 << 20, 40)[2], "MB/s")

    def measure_allgathers(self):
        both = self.perftest("ib_write_bw", "-b", "-s", "1048576", "-n", "40")[3] * 1.048576
        self.record("both ways", "ib_write_bw -b", both, "MB/s")
        for ranks in (2, 4):
            for size, iterations in ((256 << 10, 40), (1 << 20, 15)):
                case = "allgather of %d KiB, %d ranks per guest" % (size >> 10, ranks // 2)
                # Each guest sends the blocks of its ranks: so many bytes go both ways together.
                self.record(case, "ib_write_bw -b", ranks * size / both, "us")
                self.record(case, "allrail", self.allgather(ranks, "verbs", size, iterations), "us")
                self.record(case, "openmpi-ucx", self.mpi_allgather(ranks, size, iterations), "us")

    def shape(self, rates):
        for guest in self.guests:
            for rail, rate in enumerate(rates):
                where = "dev eth%d root" % rail
                guest.run("tc qdisc delete %s 2>/dev/null || true" % where)
                if rate:
                    guest.run("tc qdisc add %s tbf rate %dmbit burst 64k limit 32m" % (where, rate))

    def measure_shaped(self):
        """One block of 1 MiB each way: the limit is its bytes over the rails' rates."""
        for case, rates, rails in (
            ("rail of 40 Mbit/s", (40, 40), "rxe0"),
            ("rails of 40 + 40 Mbit/s", (40, 40), "rxe0,rxe1"),
            ("rail of 20 Mbit/s", (40, 20), "rxe1"),
            ("rails of 40 + 20 Mbit/s", (40, 20), "rxe0,rxe1"),
        ):
            self.shape(rates)
            self.record(case, "allrail", self.allgather(2, rails, 1 << 20, 15), "us")
        self.shape((0, 0))

    def run(self):
        for self.repetition in range(self.arguments.repetitions):
            for part in self.arguments.parts.split(","):
                {
                    "puts": self.measure_puts,
                    "allgathers": self.measure_allgathers,
                    "shaped": self.measure_shaped,
                }[part]()
        for guest in self.guests:
            guest.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--parts", default="puts,allgathers,shaped")
    Runs(parser.parse_args()).run()


if __name__ == "__main__":
    main()
