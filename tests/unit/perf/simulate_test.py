"""allrail-info simulate and its model files, from the command line."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest

INFO = sys.argv.pop(1)
LONG = os.environ.get("ALLRAIL_TEST_LONG") == "1"
# 10 us a message, 1 byte/us, and nothing else costs.
HOCKNEY = (
    "--message-us", "10", "--rail-MBps", "1", "--latency-us", "0", "--post-us", "0",
    "--arrival-us", "0", "--hop-us", "0", "--copy-MBps", "1e12", "--flag-us", "0", "--own-ports",
)  # fmt: skip


def info(*arguments):
    return subprocess.run(
        [INFO, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def simulate(*arguments):
    result = info("simulate", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["results"]


def times(*arguments):
    return {(row["bytes"], row["algorithm"]): row["time_us"] for row in simulate(*arguments)}


class Simulate(unittest.TestCase):
    def test_a_hockney_model_gives_the_papers_formula(self):
        # Direct allgather of 8 ranks by one port: 7 times 10 us and (64 + 64) bytes at 1 byte/us.
        row = times("allgather", "64", "--nodes", "8", "--algorithm", "direct", *HOCKNEY)
        self.assertAlmostEqual(row[64, "direct"], 7 * (10 + 128), places=3)

    def test_a_chain_passes_on_the_segments_that_it_is_told(self):
        chain = ("broadcast", "4K", "--nodes", "4", "--algorithm", "chain", *HOCKNEY)
        for segment, pieces in ((1024, 4), (4096, 1), (2048, 2)):
            row = times(*chain, "--broadcast-segment", str(segment))
            steps = pieces + 4 - 2
            self.assertAlmostEqual(row[4096, "chain"], steps * (10 + segment + 64), places=3)

    def test_all_means_every_algorithm_of_the_table(self):
        for collective in ("allgather", "gather", "scatter", "broadcast", "alltoall"):
            rows = simulate(collective, "1K", "--nodes", "4", "--ranks-per-node", "2")
            self.assertGreaterEqual(len(rows), 4)
            self.assertTrue(all(row["time_us"] > 0 for row in rows), rows)

    def test_blocks_of_one_size_are_not_cut(self):
        four = ("allgather", "64K", "--nodes", "4", "--ranks-per-node", "2")
        self.assertNotIn("smp-ring-chain", {row["algorithm"] for row in simulate(*four)})
        named = times(*four, "--algorithm", "smp-ring,smp-ring-chain")
        self.assertEqual(named[65536, "smp-ring-chain"], named[65536, "smp-ring"])

    def test_small_blocks_want_few_messages_and_large_ones_few_bytes(self):
        rows = times("gather", "8,256K", "--nodes", "64")
        self.assertLess(rows[8, "binomial"], rows[8, "direct"])
        self.assertGreater(rows[256 * 1024, "binomial"], rows[256 * 1024, "direct"])

    def test_large_jobs_say_what_was_not_evaluated(self):
        large = ("--nodes", "2048", "--ranks-per-node", "128")
        rows = simulate("allgather", "8", *large, "--algorithm", "smp-direct,smp-bruck,bruck")
        self.assertIn("closed form", rows[0]["evaluated"])
        self.assertIn("1 of 2048 leaders", rows[0]["evaluated"])
        self.assertIn("up to", rows[2]["not_evaluated"])

    def evaluated(self, collective, names, *arguments, gigabytes=1):
        """Half a sentence for every algorithm, which has a time and took no more memory."""

        def bound():
            resource.setrlimit(resource.RLIMIT_AS, (gigabytes << 30, gigabytes << 30))

        result = subprocess.run(
            [INFO, "simulate", collective, "1K", *arguments, "--algorithm", names, "--json"],
            capture_output=True,
            text=True,
            timeout=300 if LONG else 100,
            check=False,
            preexec_fn=bound,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)["results"]
        self.assertEqual([row["algorithm"] for row in rows], names.split(","))
        for row in rows:
            self.assertGreater(row["time_us"], 0, row)
        return {row["algorithm"]: row["evaluated"] for row in rows}

    def test_forms_over_nodes_go_up_to_16384_nodes_of_128_ranks(self):
        large = ("--nodes", "16384", "--ranks-per-node", "128")
        one_leader = "1 of 16384 leaders, the others do the same, node phase in closed form"
        for collective, names in (
            (
                "allgather",
                "smp-direct,smp-ring,smp-bruck,smp-recursive-doubling,smp-multi-leader-ring,"
                "smp-multi-leader-recursive-doubling",
            ),
            ("alltoall", "smp-direct,smp-bruck,smp-recursive-doubling"),
        ):
            for name, evaluated in self.evaluated(collective, names, *large).items():
                self.assertEqual(evaluated, one_leader, name)
        # No rank stands for others where one is the root.
        all_leaders = [
            ("gather", "smp-direct,smp-binomial"),
            ("scatter", "smp-binomial"),
            ("broadcast", "smp-binomial,smp-chain"),
        ]
        if LONG:  # half a minute each
            all_leaders += [
                ("allgather", "smp-gather-broadcast"),
                ("allgather", "smp-direct-gather-broadcast"),
                ("gather", "topology,topology-direct"),
                ("scatter", "smp-direct,topology,topology-direct"),
            ]
        for collective, names in all_leaders:
            # Without leaves topology-aware forms are as those over nodes.
            leaves = ("--leaf-size", "64") if "topology" in names else ()
            for name, evaluated in self.evaluated(collective, names, *large, *leaves).items():
                self.assertEqual(evaluated, "all 16384 leaders, node phase in closed form", name)

    def test_flat_forms_go_up_to_4096_ranks_and_say_where_one_stands_for_all(self):
        job = ("--nodes", "4096")
        every, one = "all 4096 ranks", "1 of 4096 ranks, the others do the same"
        forms = [
            (
                "allgather",
                {"direct": one, "ring": one, "bruck": every, "recursive-doubling": every},
            ),
            ("gather", {"direct": every, "binomial": every}),
            ("scatter", {"direct": every, "binomial": every}),
            ("broadcast", {"binomial": every, "chain": every}),
            ("alltoall", {"direct": one, "recursive-doubling": one}),
        ]
        if LONG:  # a minute and a gigabyte each
            forms += [
                ("broadcast", {"scatter-allgather": every}),
                ("alltoall", {"bruck": every}),
            ]
        for collective, expected in forms:
            found = self.evaluated(collective, ",".join(expected), *job, gigabytes=2)
            self.assertEqual(found, expected, collective)
        # 16 times as many, by one of them.
        found = self.evaluated("allgather", "direct", "--nodes", "65536")
        self.assertIn("1 of 65536 ranks", found["direct"])

    def test_what_is_too_large_is_refused_in_a_sentence(self):
        for collective, name, nodes, ranks, words in (
            ("broadcast", "smp-scatter-allgather", 16384, 128, "none stands for all the others"),
            ("gather", "direct", 16384, 128, "up to 65536 ranks"),
            ("allgather", "smp-multi-leader-ring-point-to-point", 1024, 2, "up to 1024 ranks"),
        ):
            job = ("--nodes", str(nodes), "--ranks-per-node", str(ranks), "--algorithm", name)
            row = simulate(collective, "1K", *job)[0]
            self.assertIn(words, row["not_evaluated"])

    def test_the_last_rank_may_be_the_root(self):
        words = ("gather", "8", "--nodes", "8192", "--algorithm", "direct")
        first, last = (times(*words, "--root", root)[8, "direct"] for root in ("0", "8191"))
        self.assertAlmostEqual(first, last, delta=0.01 * first)

    def test_background_traffic_slows_down_what_crosses_the_uplinks(self):
        tree = ("gather", "256K", "--node-sizes", "2x4+2x2", "--leaf-size", "2", "--algorithm",
                "direct", "--oversubscription", "2")  # fmt: skip
        quiet = times(*tree)[262144, "direct"]
        busy = times(*tree, "--background", "0.8")[262144, "direct"]
        self.assertGreater(busy, quiet)

    def test_sizes_of_nodes_may_stand_alone(self):
        for sizes, even in (("300+300", ("2", "300")), ("3x2", ("3", "2"))):
            row = times("gather", "8", "--node-sizes", sizes, "--algorithm", "direct")
            same = ("--nodes", even[0], "--ranks-per-node", even[1], "--algorithm", "direct")
            self.assertEqual(row, times("gather", "8", *same))

    def test_no_sizes_are_an_error(self):
        result = info("simulate", "gather", "")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("names no sizes", result.stderr)

    def test_an_uplink_of_the_command_line_goes_before_that_of_the_file(self):
        tree = ("gather", "256K", "--node-sizes", "8x1", "--leaf-size", "4", "--algorithm",
                "direct")  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "model.json")
            with open(file, "w", encoding="utf-8") as stream:
                json.dump({"uplink_MBps": 1000}, stream)
            for option in ("--oversubscription", "--uplink-MBps"):
                told = times(*tree, "--model", file, option, "100")
                self.assertEqual(told, times(*tree, option, "100"), option)
                self.assertNotEqual(told, times(*tree, "--model", file), option)

    def test_a_model_file_is_read_and_the_command_line_goes_before_it(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "model.json")
            with open(file, "w", encoding="utf-8") as stream:
                json.dump({"context": "made up", "latency_us": 1000, "rail_MBps": [10, 10]}, stream)
            call = ("allgather", "8", "--nodes", "2", "--algorithm", "direct", "--model", file)
            self.assertGreater(times(*call)[8, "direct"], 1000)
            self.assertLess(times(*call, "--latency-us", "1")[8, "direct"], 100)
            explained = info(
                "explain", "allgather", "8", "--ranks", "2", "--nodes", "2", "--model", file
            )
            self.assertIn("by the cost model in " + file, explained.stdout)

    def test_bad_models_and_jobs_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for text, word in (
                ('{"latency": 3}', "'latency'"),
                ('{"latency_us": "much"}', "in 'latency_us'; it must be a number"),
                ('{"stripe_bytes": -1}', "in 'stripe_bytes'; it must be a whole number"),
                ('{"domains": 1.5}', "in 'domains'; it must be a whole number"),
                ('{"domains": 4294967297}', "in 'domains'; it must be a smaller number"),
                ('{"leaf_size": [4, -4]}', "in 'leaf_size'; it must be a whole number"),
                ('{"rail_MBps": 100}', "in 'rail_MBps'; it must be a list"),
                ('{"own_ports": 1}', "in 'own_ports'; it must be true or false"),
                ('{"local_puts": true}', "in 'local_puts'; it must be a text"),
                ('["latency_us"]', "no object of parameters"),
                ("[", "no object of parameters"),
                ('{"rail_MBps": []}', "at least one rail"),
                ('{"background": 1}', "background"),
                ('{"copy_MBps": 0}', "copy_MBps"),
                ('{"post_us": -1}', "post_us"),
                ('{"domains": 2, "rail_domain": 2}', "rail_domain"),
            ):
                file = os.path.join(folder, "model.json")
                with open(file, "w", encoding="utf-8") as stream:
                    stream.write(text)
                result = info("simulate", "gather", "8", "--model", file)
                self.assertEqual(result.returncode, 1, text)
                self.assertIn(word, result.stderr)
                self.assertIn(file, result.stderr)
        for arguments in (
            ("--model", "/no/such/file"),
            ("--nodes", "4", "--root", "4"),
            ("--algorithm", "magic"),
            ("--node-sizes", "3+x"),
            ("--node-sizes", "0x8"),
            ("--node-sizes", "8++8"),
            ("--node-sizes", "+"),
            ("--node-sizes", "2x2x2"),
            ("--node-sizes", "4294967296x4294967296"),
            ("--node-sizes", "70000"),
            ("--algorithm", ""),
            ("--nodes", "1000000000"),
        ):
            result = info("simulate", "gather", "8", *arguments)
            self.assertNotEqual(result.returncode, 0, arguments)
            self.assertIn("allrail-info:", result.stderr)


if __name__ == "__main__":
    unittest.main()
