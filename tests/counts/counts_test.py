"""Tests of what counts.py makes of profiles and counts; no valgrind is needed."""

import sys
import unittest

sys.dont_write_bytecode = True
import counts

# fabric (1) costs 10 itself, memcpy 5 behind it; a fake rail (3) costs 100 and calls back (4) for
# 20, which allocates for 7. The second block of a function has a line number relative to the first.
PROFILE = """\
version: 1
events: Ir
fl=(1) transport/fabric.cpp
fn=(1) allrail::transport::FabricState::post()
12 4
+1 6
cfi=(2) libc
cfn=(2) memcpy
calls=1 0
* 5
cfn=(3) allrail::transport::FakeRail::poll(int)
calls=1 0
+3 127

fn=(2)
0 5

fn=(3)
7 100
cfn=(4) allrail::transport::FabricState::chunk_arrived()
calls=2 0
* 27

fn=(4)
9 20
cfn=(5) malloc
calls=1 0
* 7

fn=(5)
0 7
totals: 142
"""


def one(instructions, system_calls=0):
    return {"small": {"instructions": instructions, "system_calls": system_calls}}


class Profiles(unittest.TestCase):
    def test_costs_of_functions(self):
        own = counts.Profile(PROFILE).own
        self.assertEqual(own["allrail::transport::FabricState::post()"], 10)
        self.assertEqual(own["memcpy"], 5)
        self.assertEqual(own["allrail::transport::FakeRail::poll(int)"], 100)

    def test_fake_rails_are_left_out_and_what_they_call_back_is_not(self):
        self.assertEqual(counts.Profile(PROFILE).instructions(), 142 - 100)


class Comparison(unittest.TestCase):
    def test_as_before_and_within_the_limit(self):
        for now in (1000, 1050, 950):
            self.assertEqual(counts.compare(one(1000), one(now)), ([], []))

    def test_more_is_wrong_and_names_path_counts_and_command(self):
        wrong, better = counts.compare(one(1000), one(1051))
        self.assertEqual((len(wrong), better), (1, []))
        for word in ("small", "1051", "1000", counts.RENEW):
            self.assertIn(word, wrong[0])

    def test_less_is_told(self):
        wrong, better = counts.compare(one(1000), one(949))
        self.assertEqual((wrong, len(better)), ([], 1))
        for word in ("small", "949", "1000", counts.RENEW):
            self.assertIn(word, better[0])

    def test_one_system_call_is_wrong(self):
        wrong, _ = counts.compare(one(1000), one(1000, 1))
        self.assertEqual(len(wrong), 1)
        self.assertIn("small", wrong[0])

    def test_paths_that_come_and_go_are_wrong(self):
        self.assertEqual(len(counts.compare({}, one(1))[0]), 1)
        self.assertEqual(len(counts.compare(one(1), {})[0]), 1)


if __name__ == "__main__":
    unittest.main()
