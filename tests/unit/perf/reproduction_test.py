"""What docs/reproduction.md says of the papers' claims, by its own commands: who wins, and that the
figures of its tables are what these print."""

import os
import re
import subprocess
import sys
import unittest

INFO, REPORT = sys.argv.pop(1), sys.argv.pop(1)
BYTES = {"K": 1024, "M": 1024 * 1024}


def sections():
    """The report's blocks of commands, one per section, and the text behind each."""
    with open(REPORT, encoding="utf-8") as report:
        parts = re.split(r"```sh\n(.*?)```", report.read(), flags=re.DOTALL)
    return list(zip(parts[1::2], parts[2::2]))


def bytes_of(text):
    return int(text.rstrip("KM")) * BYTES.get(text[-1], 1)


def printed(block):
    folder = os.path.dirname(os.path.abspath(INFO))
    result = subprocess.run(
        ["sh", "-e", "-c", sections()[block][0]],
        env={**os.environ, "PATH": folder + ":" + os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def tables(block):
    """Of every call of `allrail-info simulate`: the collective, and the time by size and name."""
    found = []
    for line in printed(block).splitlines():
        if title := re.match(r"(\w+), by the model", line):
            found.append((title[1], {}))
        elif row := re.match(r"\s*(\d+[KM]?) (\S+)\s+([\d.]+)( |$)", line):
            found[-1][1][bytes_of(row[1]), row[2]] = float(row[3])
    return found


def best(times, size, names=None):
    rows = {name: time for (of, name), time in times.items() if of == size}
    return min(names or rows, key=rows.get)


class Reproduction(unittest.TestCase):
    def test_every_time_of_the_report_is_printed(self):
        for block, (_, text) in enumerate(sections()):
            times = set(re.findall(r"\d+\.\d+", printed(block)))
            rows = [line for line in text.splitlines() if line.startswith("|")]
            said = re.findall(r"(?<![\d.])\d+\.\d\d(?![\d.])", "\n".join(rows))
            self.assertGreater(len(said), 10)
            self.assertEqual([time for time in said if time not in times], [], block)

    def test_four_nodes_and_two_rails(self):
        (_, allgather), (_, alltoall), (_, slow_gather), (_, gather) = tables(0)
        flat = ("direct", "bruck", "recursive-doubling")
        for size in (64, 256, 512, 4096, 8192, 16384, 32768):
            self.assertEqual(best(allgather, size), "smp-bruck", size)
            for name in flat:
                self.assertGreater(allgather[size, name], 1.8 * allgather[size, "smp-bruck"])
        for size in (4096, 8192, 16384, 32768):
            self.assertEqual(best(allgather, size, flat), "direct", size)
        for size in (8, 64, 128):
            self.assertEqual(best(alltoall, size), "bruck", size)
        for size in (256, 512, 1024, 4096, 16384):
            self.assertEqual(best(alltoall, size), "direct", size)
        for size in (8, 64, 256, 1024, 4096):
            self.assertEqual(best(slow_gather, size), "binomial", size)
        for size in (8, 512, 8192, 1 << 20):
            self.assertEqual(best(gather, size, ("direct", "binomial")), "direct", size)

    def test_several_leaders_per_node_gain(self):
        by_leaders = dict(zip((1, 2, 4, 8, 16), (times for _, times in tables(1))))
        many = ("smp-multi-leader-recursive-doubling", "smp-multi-leader-ring")

        def best_leaders(size, name):
            return min(by_leaders, key=lambda leaders: by_leaders[leaders][size, name])

        for name in (*many, many[0] + "-point-to-point", "smp-ring", "smp-recursive-doubling"):
            for size in (64, 512, 4096, 32768):
                self.assertIn(best_leaders(size, name), (2, 4), (size, name))
        self.assertEqual(best_leaders(8, many[0]), 2)
        for size in (512, 4096, 32768):
            self.assertEqual(best_leaders(size, many[0]), 2, size)
            self.assertEqual(best_leaders(size, many[1]), 4, size)
            self.assertEqual(best_leaders(size, "smp-ring"), 4, size)
        four = by_leaders[4]
        for name in ("recursive-doubling", "ring"):
            self.assertLess(four[8, many[0]], four[8, name] / 2)
        for size in (4096, 32768):
            self.assertEqual(best(four, size), "smp-ring", size)

    def test_topology_gains_for_small_blocks_only(self):
        results = tables(2)
        self.assertEqual([name for name, _ in results], ["gather", "scatter"] * 3)
        for gather, scatter in zip(results[::2], results[1::2]):
            for times, names in (
                (gather[1], ("topology-direct",)),
                (scatter[1], ("topology-direct", "topology")),
            ):
                for name in names:
                    self.assertGreater(times[64, "binomial"] / times[64, name], 1)
                    for size in (4096, 65536, 1 << 20):
                        self.assertLess(times[size, "binomial"] / times[size, name], 1)

    def test_background_traffic_slows_trees_down(self):
        gathers = [times for name, times in tables(2) if name == "gather"]
        for name, slowed in (("binomial", True), ("smp-binomial", True), ("smp-direct", False)):
            quiet, half, most = (times[1 << 20, name] for times in gathers)
            self.assertEqual(half > 1.1 * quiet, slowed, name)
            self.assertGreater(most, 2 * quiet, name)

    def test_leaders_on_one_socket_gain_nothing(self):
        (_, one), (_, four) = tables(1)[5:]
        for name in ("smp-multi-leader-recursive-doubling", "smp-multi-leader-ring"):
            for size in (512, 4096):
                self.assertGreater(four[size, name] / one[size, name], 0.98, (size, name))

    def test_leaders_near_the_rail_gain_more_with_more_nodes(self):
        rows = [times[1 << 20, "smp-binomial"] for _, times in tables(3)[8:]]
        two, four, eight_of_two, eight_of_four = (
            far / near for near, far in zip(rows[::2], rows[1::2])
        )
        self.assertLess(two, four)
        self.assertLess(four, eight_of_two)
        self.assertAlmostEqual(eight_of_two, eight_of_four)

    def test_leaders_near_the_rail_gain(self):
        results = tables(3)[:8]
        order = ["broadcast", "gather"] * 4
        self.assertEqual([name for name, _ in results], order)
        for first in (0, 4):
            near, far = results[first : first + 2], results[first + 2 : first + 4]
            for kind, names in (
                (0, ("smp-binomial", "smp-chain", "smp-scatter-allgather")),
                (1, ("direct", "smp-direct")),
            ):
                for name in names:
                    gain = far[kind][1][1 << 20, name] / near[kind][1][1 << 20, name]
                    self.assertGreater(gain, 1.08, (first, name))
        eight = [times for name, times in results[4:] if name == "broadcast"]
        for times in eight:
            self.assertEqual(best(times, 1 << 20), "smp-chain")
        # A chain through all ranks gains next to nothing.
        self.assertLess(eight[1][1 << 20, "chain"] / eight[0][1 << 20, "chain"], 1.05)


if __name__ == "__main__":
    unittest.main()
