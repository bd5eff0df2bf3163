"""What perf/compare makes of v-forms: blocks, limits, launches and reports. Nothing runs."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import compare_test
from compare_test import ROOT
from compare_lib import blocks, goals, peers, plot, report, run, settings
from compare_lib.results import Samples, Spread


class VForms(unittest.TestCase):
    SHAPED_X2 = settings.SETTINGS["shaped-x2"]

    def test_blocks(self):
        self.assertEqual(blocks.blocks_of_ranks("even", 5, 4), [5, 5, 5, 5])
        self.assertEqual(blocks.blocks_of_ranks("ramp", 4, 4), [1, 3, 5, 7])
        self.assertEqual(blocks.blocks_of_ranks("ramp", 1, 4), [0, 1, 1, 2])
        self.assertEqual(blocks.blocks_of_ranks("single", 5, 4), [0, 0, 20, 0])
        for shape in blocks.SHAPES:
            for ranks in (1, 3, 8):
                for mean in (0, 1, 1000):
                    sizes = blocks.blocks_of_ranks(shape, mean, ranks)
                    self.assertEqual((len(sizes), sum(sizes)), (ranks, ranks * mean))

    @unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
    def test_peers_have_the_same_blocks(self):
        text = (ROOT / "perf/compare_lib/mpi_collective.c").read_text()
        function = re.search(r"^static long long block_bytes\(.*?^}\n", text, re.M | re.S).group(0)
        program = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n" + function
        program += """int main(int argc, char** argv) {
          for (int i = 0; argc == 4 && i < atoi(argv[3]); i++)
            printf("%lld\\n", block_bytes(argv[1], atoi(argv[2]), atoi(argv[3]), i));
        }"""
        with tempfile.TemporaryDirectory() as folder:
            built = str(pathlib.Path(folder, "blocks"))
            command = ["cc", "-x", "c", "-", "-o", built]
            subprocess.run(command, input=program, text=True, check=True, timeout=60)
            for shape in blocks.SHAPES:
                for ranks in (1, 2, 7, 8):
                    for mean in (0, 1, 13, 1 << 20):
                        command = [built, shape, str(mean), str(ranks)]
                        said = subprocess.run(command, capture_output=True, text=True, check=True)
                        sizes = [int(line) for line in said.stdout.split()]
                        self.assertEqual(sizes, blocks.blocks_of_ranks(shape, mean, ranks))

    def test_even_blocks_have_the_limit_of_the_even_form(self):
        for setting in (compare_test.SHAPED_X1, self.SHAPED_X2):
            for name in blocks.V_FORMS:
                self.assertAlmostEqual(
                    settings.rail_limit_us(setting, 1 << 20, name, "even"),
                    settings.rail_limit_us(setting, 1 << 20, name[:-1]),
                )

    def test_the_limit_is_of_the_bytes_that_cross(self):
        # Of eight blocks of 1000 to 15000 bytes the first host has 4000, the last one 28000.
        of_bytes = {"allgatherv": 60000, "gatherv": 60000, "scatterv": 60000}
        for name, crossing in of_bytes.items():
            limit = settings.rail_limit_us(self.SHAPED_X2, 8000, name, "ramp")
            self.assertAlmostEqual(limit, crossing / 125, msg=name)
        for name in of_bytes:
            limit = settings.rail_limit_us(self.SHAPED_X2, 8000, name, "single")
            self.assertAlmostEqual(limit, 64000 / 125, msg=name)
        # Of what ranks 0 and 1 send, blocks 0, 1, 1 and 2 stay on their host: no other has less.
        limit = settings.rail_limit_us(self.SHAPED_X2, 8000, "alltoallv", "ramp")
        self.assertAlmostEqual(limit, (2 * 64000 - (1000 + 2 * 3000 + 5000)) / 125)
        # Theirs go to ranks 4 and 3.
        limit = settings.rail_limit_us(self.SHAPED_X2, 8000, "alltoallv", "single")
        self.assertAlmostEqual(limit, 2 * 64000 / 125)

    def test_uneven_blocks_are_held_against_the_limit_by_the_slowest_rank(self):
        limit = settings.rail_limit_us(compare_test.SHAPED_X1, 1 << 20, "allgatherv", "ramp")
        times = compare_test.sample("allrail", [limit], 1 << 20, "shaped-x1", slowest=2 * limit)
        for shape, share in (("ramp", 0.5), ("even", 3 / 3.75)):
            found = Samples(times, "allgatherv", shape)
            at = (compare_test.SHAPED_X1, "isolated", 1 << 20, "allrail")
            self.assertAlmostEqual(found.share_of_limit(*at), share, msg=shape)

    def test_both_programs_are_told_the_shape(self):
        counts = ("gatherv", "streaming", 110, 5, [8, 64], "single")
        words = peers.program_words("mpich", compare_test.NODE2, *counts)
        self.assertEqual(words[1:3], ["gatherv:single", "streaming"])
        words = " ".join(peers.program_words("allrail", compare_test.NODE2, *counts))
        self.assertIn("allrail-bench gatherv --blocks single --memory ordinary", words)
        plan = compare_test.Launches().plan(collective="gatherv", shape="single")
        launch = run.plan_launches(plan, compare_test.NODE2, 0, set())[0]
        line = run.launch_line(plan, compare_test.NODE2, 0, launch, "/nowhere")
        self.assertIn("gatherv --blocks single", line)

    def test_allgatherv_has_kinds_of_memory_and_no_bare_loop(self):
        for name in blocks.V_FORMS:
            plan = compare_test.Launches().plan(collective=name, shape="ramp")
            chosen = set(run.libraries_of(plan, compare_test.NODE2, 0))
            self.assertNotIn("bare", chosen)
            self.assertEqual("allrail-node" in chosen, name == "allgatherv")
            self.assertEqual(goals.judge_all(Samples([], name, "ramp")), [])

    def test_report_and_plots(self):
        times = compare_test.sample("allrail", [2e4], 1 << 20, "shaped-x1")
        times += compare_test.sample("mpich", [4e4], 1 << 20, "shaped-x1")
        text = compare_test.document(times)
        text["context"] |= {"collective": "alltoallv", "blocks": "ramp"}
        written = report.write_report(text)
        self.assertIn("# Alltoallv: Allrail beside its peers", written)
        self.assertIn("| mean bytes per rank | rail limit |", written)
        self.assertIn("Blocks (ramp) are of pairs of ranks", written)
        self.assertIn("| mpich | 2.00 (2.00 - 2.00) |", written)
        self.assertNotIn("Against the goals", written)
        ((_, lines),) = plot.panels(Samples(times, "alltoallv", "ramp"), plot.time_lines)
        limit = settings.rail_limit_us(compare_test.SHAPED_X1, 1 << 20, "alltoallv", "ramp")
        self.assertEqual(lines["rail limit"], [(1 << 20, Spread(limit, limit, limit))])
        self.assertIn(f"| 1 MiB | {limit:.0f} | 20000", written)

    def test_command_line(self):
        for words, shape in (
            (["--collective", "allgatherv"], "ramp"),
            (["--collective", "alltoallv", "--blocks", "single"], "single"),
            (["--collective", "alltoall"], None),
        ):
            with mock.patch.object(sys, "argv", ["compare", *words]):
                self.assertEqual(compare_test.compare_program().parse_arguments().blocks, shape)
        words = ["compare", "--collective", "gather", "--blocks", "ramp"]
        with mock.patch.object(sys, "argv", words), mock.patch("sys.stderr"):
            with self.assertRaises(SystemExit):
                compare_test.compare_program().parse_arguments()


if __name__ == "__main__":
    unittest.main()
