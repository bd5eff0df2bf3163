"""What perf/compare makes of samples: statistics, ratios, goals, tables, launches. Nothing runs."""

import importlib.machinery
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "perf"))

from compare_lib import goals, peers, plot, report, run, settings  # noqa: E402
from compare_lib.results import SLOWEST, Samples, Spread, summarize_ratios  # noqa: E402

NODE2, NODE8 = settings.SETTINGS["node2"], settings.SETTINGS["node8"]
SHAPED_X1 = settings.SETTINGS["shaped-x1"]
ALL_SIZES = settings.parse_sizes(settings.DEFAULT_SIZES)


def sample(library, times, size=8, setting="node2", mode="isolated", slowest=None):
    """One sample for each repetition."""
    return [
        {
            "setting": setting,
            "library": library,
            "mode": mode,
            "repetition": repetition,
            "bytes_per_rank": size,
            "time_us": {"p50": time, "avg": time, SLOWEST: slowest or time},
            "wrong_bytes": 0,
        }
        for repetition, time in enumerate(times)
    ]


def sample_peers(times, size=8, setting="node2", mode="isolated"):
    """MPICH as told, and the other peers slower."""
    found = sample("mpich", times, size, setting, mode)
    for library in settings.SETTINGS[setting].libraries:
        if library in settings.PEERS and library != "mpich":
            found += sample(library, [2 * time for time in times], size, setting, mode)
    return found


def document(samples, failed=()):
    return {
        "context": {
            **{"command": "perf/compare", "commit": "abc", "date": "today", "processor": "a CPU"},
            **{"cores": 2, "kernel": "6", "load": "0.10", "versions": {"mpich": "4"}},
            **{"collective": "allgather", "algorithm": "auto", "iterations": None},
            **{"congestion": "reno", "repetitions": 5},
            **{"peers": {"node2": {"mpich": ["mpich", "-n", "2"]}}},
        },
        "results": samples,
        "failed": list(failed),
    }


class Statistics(unittest.TestCase):
    def test_spread_is_median_least_and_most(self):
        self.assertEqual(Spread.of([5.0, 1.0, 2.0]), Spread(2.0, 1.0, 5.0))
        self.assertEqual(Spread.of([4.0, 1.0, 2.0, 3.0]).median, 2.5)

    def test_ratio_is_of_the_same_repetition(self):
        # Both are twice as slow in the second repetition: the ratio does not notice.
        samples = Samples(sample("allrail", [1, 2, 1]) + sample("mpich", [3, 6, 4.5]))
        self.assertEqual(samples.ratio(NODE2, "isolated", 8, "allrail"), Spread(3.0, 3.0, 4.5))

    def test_ratio_needs_both_in_a_repetition(self):
        samples = Samples(sample("allrail", [1, 1]) + sample("mpich", [2, 2, 100]))
        self.assertEqual(samples.ratio(NODE2, "isolated", 8, "allrail"), Spread(2.0, 2.0, 2.0))
        self.assertIsNone(samples.ratio(NODE2, "isolated", 8, "allrail-node"))
        self.assertIsNone(samples.ratio(NODE2, "streaming", 8, "allrail"))

    def test_best_peer_has_the_least_median_and_is_not_ours(self):
        ours = sample("allrail", [9, 9, 9]) + sample("allrail-node", [1, 1, 1])
        samples = Samples(
            ours + sample("mpich", [2, 8, 8]) + sample("openmpi-ob1", [7, 7, 9], slowest=50)
        )
        self.assertEqual(samples.best_peer(NODE2, "isolated", 8), "openmpi-ob1")
        self.assertEqual(samples.best_peer(NODE2, "isolated", 8, SLOWEST), "mpich")
        self.assertIsNone(samples.best_peer(NODE2, "isolated", 64))

    def test_rail_limit(self):
        self.assertAlmostEqual(settings.rail_limit_us(SHAPED_X1, 1 << 20), 25165.8, places=1)
        self.assertIsNone(settings.rail_limit_us(NODE2, 1 << 20))
        for collective, of_allgather in (("gather", 1), ("broadcast", 1 / 3), ("alltoall", 1)):
            limit = settings.rail_limit_us(SHAPED_X1, 1 << 20, collective)
            self.assertAlmostEqual(limit, of_allgather * 25165.824, places=1)
        shared = settings.SETTINGS["shaped-x2"]
        self.assertEqual(
            settings.rail_limit_us(shared, 64, "alltoall"), 2 * settings.rail_limit_us(shared, 64)
        )
        samples = Samples(sample("allrail", [50331.6], 1 << 20, "shaped-x1"))
        share = samples.share_of_limit(SHAPED_X1, "isolated", 1 << 20, "allrail")
        self.assertAlmostEqual(share, 0.5, places=4)

    def test_ratios_of_the_json_file(self):
        samples = Samples(sample("allrail", [1], slowest=2) + sample("mpich", [3], slowest=8))
        rows = summarize_ratios(samples, settings.SETTINGS.values(), settings.MODES)
        self.assertEqual(len(rows), 1)
        self.assertEqual(rows[0]["ratio"], {"median": 3, "least": 3, "most": 3})
        self.assertEqual(rows[0]["ratio_slowest_rank"]["median"], 4)
        self.assertEqual((rows[0]["library"], rows[0]["peer"]), ("allrail", "mpich"))


def outcome_of(samples, row_title, column):
    rows = {row.title: outcomes for row, outcomes in goals.judge_all(Samples(samples))}
    return rows[row_title][column]


class Goals(unittest.TestCase):
    PRIVATE = "2 pinned ranks, private buffers"
    SHAPED = "four hosts x 1 and x 2, 2 x 500 Mbit/s"

    def small(self, slow_at, slow, fast=2.0):
        found = []
        for size in (size for size in ALL_SIZES if size <= 1024):
            found += sample("allrail", [1, 1, 1], size)
            found += sample_peers([slow if size == slow_at else fast] * 3, size)
        return found

    def test_worst_size_decides(self):
        outcome = outcome_of(self.small(256, 1.6), self.PRIVATE, 0)
        self.assertIs(outcome.reached, False)
        self.assertEqual((outcome.worst, outcome.size), (1.6, 256))
        self.assertIs(outcome_of(self.small(256, 1.7), self.PRIVATE, 0).reached, True)

    def test_a_missing_size_is_not_reached_silently(self):
        samples = [s for s in self.small(8, 2.0) if s["bytes_per_rank"] != 64]
        outcome = outcome_of(samples, self.PRIVATE, 0)
        self.assertIsNone(outcome.reached)
        self.assertEqual(outcome.missing, ("64 B in node2",))
        # What is below its goal is so whatever the missing ones are.
        failing = [s for s in self.small(8, 1.0) if s["bytes_per_rank"] != 64]
        self.assertIs(outcome_of(failing, self.PRIVATE, 0).reached, False)
        self.assertIsNone(outcome_of([], self.PRIVATE, 0).reached)

    def test_a_missing_peer_is_not_beaten_silently(self):
        samples = [
            one
            for one in self.small(8, 2.0)
            if (one["library"], one["bytes_per_rank"]) != ("openmpi-ucx", 256)
        ]
        outcome = outcome_of(samples, self.PRIVATE, 0)
        self.assertIsNone(outcome.reached)
        self.assertEqual(outcome.missing, ("openmpi-ucx of 256 B in node2",))

    def test_a_size_may_have_its_own_goal(self):
        title = "8 ranks on 2 cores, `NodeBuffer`"
        times = {4096: 4.5, 16384: 6.5, 65536: 6.1}
        samples = []
        for size, time in times.items():
            samples += sample("allrail-node", [1], size, "node8")
            samples += sample_peers([time], size, "node8")
        self.assertIs(outcome_of(samples, title, 1).reached, True)
        samples += sample("mpich", [5.9], 16384, "node8")
        outcome = outcome_of(samples, title, 1)
        self.assertEqual((outcome.reached, outcome.size), (False, 16384))

    def test_back_to_back_and_the_rail_limit(self):
        samples = []
        for name in ("shaped-x1", "shaped-x2"):
            setting = settings.SETTINGS[name]
            for size in ALL_SIZES:
                limit = settings.rail_limit_us(setting, size)
                for mode, peer in (("isolated", 0.5), ("streaming", 1.1)):
                    share = 0.95 if name == "shaped-x1" else 0.94
                    samples += sample("allrail", [limit / share], size, name, mode)
                    samples += sample_peers([limit / share * peer], size, name, mode)
        self.assertIs(outcome_of(samples, self.SHAPED, 1).reached, True)
        outcome = outcome_of(samples, self.SHAPED, 2)
        self.assertIs(outcome.reached, True)
        self.assertAlmostEqual(outcome.worst, 0.94)
        self.assertEqual(outcome.setting, "shaped-x2")
        self.assertIs(outcome_of(samples, self.SHAPED, 0).reached, False)

    def test_other_collectives_have_goals_of_their_own(self):
        times = []
        for size in (size for size in ALL_SIZES if size >= 256 << 10):
            for name in ("shaped-x1", "shaped-x2"):
                limit = settings.rail_limit_us(settings.SETTINGS[name], size, "broadcast")
                for mode, share in (("isolated", 0.84), ("streaming", 0.9)):
                    times += sample("allrail", [1], size, name, mode, slowest=limit / share)
                    times += sample("mpich", [0.9], size, name, mode)
        rows = {row.title: cells for row, cells in goals.judge_all(Samples(times, "broadcast"))}
        self.assertEqual(len(rows), 6)
        limit = rows[f"{self.SHAPED}, slowest rank"]
        self.assertEqual(limit[:2], [None, None])
        self.assertIs(limit[2].reached, False)
        self.assertAlmostEqual(limit[2].worst, 0.84)
        beside = rows[self.SHAPED][2]
        self.assertEqual((beside.reached, beside.goal.mode), (False, "streaming"))
        self.assertAlmostEqual(beside.worst, 0.9)
        self.assertEqual(len(goals.summarize_goals(Samples(times, "broadcast"))), 4 * 3 + 2)
        gather = [row.goals[2].least for row, _ in goals.judge_all(Samples([], "gather"))]
        self.assertEqual(gather, [1.0] * 4 + [0.94] * 2)

    def test_a_barrier_has_neither_goals_nor_a_limit(self):
        self.assertEqual(goals.judge_all(Samples([], "barrier")), [])
        self.assertIsNone(settings.rail_limit_us(SHAPED_X1, 0, "barrier"))
        times = sample("allrail", [2], 0) + sample("mpich", [3], 0)
        text = document(times)
        text["context"]["collective"] = "barrier"
        self.assertIn("| 0 B | 2 (2 - 2); 2 |", report.write_report(text))
        self.assertNotIn("Against the goals", report.write_report(text))
        shaped = sample("allrail", [2], 0, "shaped-x1") + sample("mpich", [3], 0, "shaped-x1")
        table = report.setting_table(Samples(shaped, "barrier"), SHAPED_X1, "isolated")
        self.assertEqual({line.count("|") for line in table if line}, {0, table[2].count("|")})
        self.assertNotIn("limit", "".join(table))

    def test_goals_for_the_json_file(self):
        rows = goals.summarize_goals(Samples(self.small(8, 1.6)))
        self.assertEqual(len(rows), 3 * len(goals.GOALS))
        self.assertEqual((rows[0]["reached"], rows[0]["worst"]), (False, 1.6))


class Report(unittest.TestCase):
    def text(self):
        samples = sample("allrail", [1, 2, 4], slowest=5) + sample("mpich", [4, 6, 8], slowest=15)
        failed = {"library": "openmpi-ob1", "setting": "node2", "mode": "isolated", "sizes": [8]}
        failed |= {"repetition": 1, "reason": "did not end in time"}
        return report.write_report(document(samples, [failed]))

    def test_table_of_a_setting(self):
        self.assertIn("### node2: one node, 2 pinned ranks, isolated", self.text())
        self.assertIn(
            "| 8 B | 2 (1 - 4); 5 | 6 (4 - 8); 15 | mpich | 3.00 (2.00 - 4.00) | "
            "3.00 (3.00 - 3.00) |",
            self.text(),
        )

    def test_goals_failures_and_settings_are_told(self):
        self.assertIn("3.00 at 8 B (>= 1.7): incomplete", self.text())
        self.assertIn(">= 93 % of the rail limit: not measured", self.text())
        self.assertIn("0 reached, 0 not reached, 27 not or not wholly measured.", self.text())
        self.assertIn(
            "**Not measured**: openmpi-ob1 in node2, isolated, 8 B, repetition 2: "
            "did not end in time",
            self.text(),
        )
        self.assertIn("- node2, mpich: `mpich -n 2`", self.text())

    def test_repetitions_are_those_that_were_measured(self):
        for counts, said, warned in (
            ((5, 5), ". 5 repetitions, ", False),
            ((1, 1), ". 1 repetition, ", "**Fewer than five repetitions: "),
            ((5, 4), ". 4 to 5 repetitions, ", "**Fewer than five repetitions of some: "),
        ):
            samples = sample("allrail", [1] * counts[0]) + sample("mpich", [1] * counts[1])
            text = report.write_report(document(samples))
            self.assertIn(said, text)
            self.assertIn(warned or said, text)
            self.assertEqual("Fewer than five" in text, bool(warned))

    def test_table_with_a_rail_limit(self):
        samples = sample("allrail", [26000], 1 << 20, "shaped-x1", "streaming")
        lines = report.setting_table(Samples(samples), SHAPED_X1, "streaming")
        self.assertEqual(lines[-1], "| 1 MiB | 25166 | 26000 (26000 - 26000); 26000 | 97 % |")

    @staticmethod
    def render(file, **how):
        command = [sys.executable, str(ROOT / "perf/compare"), "--render", str(file), "--no-plots"]
        return subprocess.run(command, timeout=30, text=True, **how)

    def test_render_leaves_another_run_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            old, other = (pathlib.Path(folder, name) for name in ("old.json", "compare.json"))
            old.write_text(json.dumps(document(sample("allrail", [1]) + sample("mpich", [3]))))
            other.write_text("hours of work")
            done = self.render(old, check=False, stderr=subprocess.PIPE)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("choose another --output", done.stderr)
            self.assertEqual(other.read_text(), "hours of work")

    def test_render_of_what_is_no_comparison(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "compare.json")
            for text in ("[]", "{}", "nothing"):
                file.write_text(text)
                done = self.render(file, check=False, stderr=subprocess.PIPE)
                self.assertNotEqual(done.returncode, 0)
                self.assertNotIn("Traceback", done.stderr)
                self.assertEqual(file.read_text(), text)

    def test_render_writes_all_of_it_again(self):
        samples = sample("allrail", [1]) + sample("mpich", [3])
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "old.json")
            file.write_text(json.dumps(document(samples)))
            self.render(file, check=True)
            self.assertIn("3.00 at 8 B", pathlib.Path(folder, "compare.md").read_text())
            written = json.loads(pathlib.Path(folder, "compare.json").read_text())
        self.assertEqual(written["results"], samples)
        self.assertEqual(written["context"]["repetitions"], 1)
        self.assertEqual(written["ratios"][0]["ratio"]["median"], 3)
        self.assertEqual(written["goals"][0]["worst"], 3)


class Plots(unittest.TestCase):
    SAMPLES = (
        sample("allrail", [1, 2, 3])
        + sample("mpich", [4, 4, 6])
        + sample("allrail", [2e4], 1 << 20, "shaped-x1", "streaming")
    )

    def test_panels_hold_what_was_measured(self):
        times = plot.panels(Samples(self.SAMPLES), plot.time_lines)
        self.assertEqual([len(lines) for _, lines in times], [2, 2])
        self.assertEqual(times[0][1]["allrail"], [(8, Spread(2, 1, 3))])
        self.assertAlmostEqual(times[1][1]["rail limit"][0][1].median, 25165.8, places=1)
        ratios = plot.panels(Samples(self.SAMPLES), plot.ratio_lines)
        self.assertEqual([list(lines) for _, lines in ratios], [["allrail"]])

    def test_every_library_has_a_color(self):
        self.assertEqual({*settings.LIBRARIES, "rail limit"}, set(plot.COLORS))

    def test_a_barrier_has_no_line_of_a_limit(self):
        samples = sample("allrail", [2], 0, "shaped-x1") + sample("mpich", [3], 0, "shaped-x1")
        ((_, lines),) = plot.panels(Samples(samples, "barrier"), plot.time_lines)
        self.assertEqual(list(lines), ["allrail", "mpich"])

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
    def test_drawings_name_their_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "compare.json")
            file.write_text(json.dumps(document(self.SAMPLES)))
            plot.main([str(file), folder])
            self.assertIn("rail limit", pathlib.Path(folder, "times.svg").read_text())
            self.assertIn("allrail", pathlib.Path(folder, "ratios.svg").read_text())


def compare_program():
    loader = importlib.machinery.SourceFileLoader("compare_program", str(ROOT / "perf/compare"))
    program = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(program)
    return program


class Launches(unittest.TestCase):
    def plan(self, **changes):
        values = {"settings": [NODE2], "libraries": settings.LIBRARIES, "modes": settings.MODES}
        values |= {"sizes": [8, 64, 1 << 20], "repetitions": 5, "collective": "allgather"}
        values |= {"algorithm": "auto", "iterations": None, "limit_s": 60}
        return run.Plan(**(values | changes))

    def test_sizes(self):
        self.assertEqual(settings.parse_sizes("1K,8,64K"), [8, 1024, 65536])
        self.assertEqual(settings.parse_sizes("8:100"), [8, 32, 100])
        self.assertEqual(settings.format_bytes(65536), "64 KiB")
        for text in ("", "4:", "1G", "16:8", "-1", "0:8"):
            with self.assertRaises(ValueError):
                settings.parse_sizes(text)

    def test_settings_are_chosen_by_parts_of_names(self):
        names = [setting.name for setting in settings.choose_settings("node2,shaped")]
        self.assertEqual(names, ["node2", "shaped-x1", "shaped-x2"])
        self.assertEqual(len(settings.choose_settings("")), len(settings.SETTINGS))
        with self.assertRaises(ValueError):
            settings.choose_settings("node2,node3")

    def test_libraries_take_turns_every_few_sizes(self):
        plan = self.plan(modes=("isolated",), libraries=("allrail", "mpich"))
        order = [
            [(one.library, one.sizes) for one in run.plan_launches(plan, NODE8, turn, set())]
            for turn in (0, 1)
        ]
        small, large = [8, 64], [1 << 20]
        self.assertEqual(
            order[0], [("allrail", small), ("mpich", small), ("allrail", large), ("mpich", large)]
        )
        self.assertEqual(
            order[1], [("mpich", small), ("allrail", small), ("mpich", large), ("allrail", large)]
        )

    def test_all_libraries_make_the_same_calls(self):
        calls = {library: [] for library in NODE2.libraries}
        for one in run.plan_launches(self.plan(), NODE2, 0, set()):
            calls[one.library].append((one.mode, one.iterations, one.warmup, one.sizes))
        self.assertEqual(len(calls["mpich"]), 4)
        for library, made in calls.items():
            self.assertEqual(made, calls["mpich"], library)
        counts = ("allgather", "streaming", 110, 5, [8, 64])
        self.assertEqual(
            peers.program_words("openmpi-ob1", NODE2, *counts),
            [peers.PROGRAMS + "/mpi_collective.openmpi", "allgather", "streaming"]
            + ["110", "5", "8", "64"],
        )
        self.assertEqual(
            " ".join(peers.program_words("allrail-node", NODE2, *counts)),
            "/build/perf/allrail-bench allgather --memory node --mode streaming --iterations 110 "
            "--warmup 5 --sizes 8,64",
        )

    def test_the_bare_loop_is_no_peer(self):
        counts = ("allgather", "isolated", 20, 5, [8])
        with mock.patch("os.sched_getaffinity", return_value={0, 1}):
            words = peers.program_words("bare", settings.SETTINGS["hosts-x2"], *counts)
        self.assertEqual(words[1:], ["4", "2", "yield", "isolated", "20", "5", "8"])
        samples = sample("bare", [1]) + sample("mpich", [3]) + sample("allrail", [2])
        found = Samples(samples)
        self.assertEqual(found.best_peer(NODE2, "isolated", 8), "mpich")
        self.assertEqual(found.libraries(NODE2, "isolated"), ["allrail", "mpich", "bare"])

    def test_resuming_measures_only_what_is_missing(self):
        done = run.done_launches(sample("mpich", [1, 1]) + sample("allrail", [1]), NODE2, 1)
        self.assertEqual(done, {("isolated", "mpich", 8)})
        plan = self.plan(modes=("isolated",), libraries=("mpich",))
        launches = run.plan_launches(plan, NODE2, 1, done)
        self.assertEqual([launch.sizes for launch in launches], [[64], [1 << 20]])

    def measure(self, plan, found, reason):
        """Launches that all end with this reason, or with a row for each size."""

        def run_session(_plan, _setting, launches, _programs):
            for one in launches:
                rows = [{"bytes_per_rank": size} for size in one.sizes]
                yield (one, [], reason) if reason else (one, rows, None)

        with mock.patch.object(run, "run_session", run_session), mock.patch.object(run, "say"):
            run.measure(plan, found, pathlib.Path(), lambda: None)

    def test_failures_stand_until_they_are_tried_again(self):
        one = {"modes": ("isolated",), "libraries": ("mpich",), "repetitions": 1}
        found = {"results": [], "failed": []}
        self.measure(self.plan(**one), found, "broke")
        self.assertEqual([failure["sizes"] for failure in found["failed"]], [[8, 64], [1 << 20]])
        self.measure(self.plan(**{**one, "libraries": ("allrail",)}), found, None)
        self.assertEqual(len(found["failed"]), 2)
        self.measure(self.plan(**one, sizes=[64, 1 << 20]), found, "again")
        self.assertEqual(
            [(failure["sizes"], failure["reason"]) for failure in found["failed"]],
            [([8], "broke"), ([64], "again"), ([1 << 20], "again")],
        )
        self.measure(self.plan(**one), found, None)
        self.assertEqual(found["failed"], [])

    def test_going_on_keeps_what_an_earlier_run_has_found(self):
        earlier = document(sample("mpich", [1]), [{"library": "mpich"}])
        now = {**earlier["context"], "date": "now", "load": "9.00"}
        now["peers"] = {"node2": {"openmpi-ob1": ["prun"]}, "node8": {"mpich": ["mpich"]}}
        found = run.continue_document(earlier, now)
        self.assertEqual(found["failed"], [{"library": "mpich"}])
        self.assertEqual(found["results"], earlier["results"])
        context = found["context"]
        self.assertEqual(
            context["peers"],
            {
                "node2": {"mpich": ["mpich", "-n", "2"], "openmpi-ob1": ["prun"]},
                "node8": {"mpich": ["mpich"]},
            },
        )
        self.assertEqual((context["date"], context["load"]), ("today and now", "0.10"))

    def test_kinds_of_memory_are_those_of_allgathers(self):
        launches = run.plan_launches(self.plan(collective="gather"), NODE2, 0, set())
        peers_there = set(settings.PEERS) - {settings.TOLD}
        self.assertEqual({one.library for one in launches}, {"allrail"} | peers_there)

    def test_iterations_may_be_told(self):
        launches = run.plan_launches(self.plan(iterations=7), NODE2, 0, set())
        self.assertEqual({launch.iterations for launch in launches}, {7})
        self.assertEqual(len(launches), 2 * len(NODE2.libraries))

    def test_both_paths_of_open_mpi_are_measured_on_one_node(self):
        for setting in (NODE2, NODE8):
            self.assertLessEqual({"openmpi-ob1", "openmpi-ucx"}, set(setting.libraries))
        with mock.patch("os.sched_getaffinity", return_value={0, 1}):
            words = peers.start_words("openmpi-ucx", NODE2)
        self.assertEqual(
            " ".join(words),
            "prun --leave-session-attached -n 2 -x OMPI_MCA_pml=ucx -x OMPI_MCA_pml_ucx_tls=any "
            "-x OMPI_MCA_pml_ucx_devices=any -x UCX_TLS=self,sysv,posix,cma",
        )
        self.assertNotIn("UCX_TLS", peers.environment_of("mpich", NODE2))
        self.assertIn("tcp", peers.environment_of("openmpi-ucx", SHAPED_X1)["UCX_TLS"])

    def test_peers_yield_where_ranks_outnumber_cores(self):
        with mock.patch("os.sched_getaffinity", return_value={0, 1, 2, 3}):
            self.assertNotIn("LD_PRELOAD", peers.environment_of("mpich", NODE2))
            # They share two of the four.
            node4 = settings.SETTINGS["node4"]
            self.assertIn("LD_PRELOAD", peers.environment_of("mpich", node4))
            hosts = [settings.SETTINGS[name] for name in ("hosts-x1", "hosts-x2")]
            yields = [
                "OMPI_MCA_mpi_yield_when_idle" in peers.environment_of(library, setting)
                for library in ("openmpi-ob1", "openmpi-ucx")
                for setting in hosts
            ]
            self.assertEqual(yields, [False, True, False, True])
            words = peers.cluster_words(NODE8, 60, ["script"])
            self.assertEqual(words[:3], ["taskset", "--cpu-list", "0,1"])
        words = peers.cluster_words(NODE2, 60, ["script"], "reno")
        self.assertEqual(words[words.index("--congestion") + 1], "reno")
        self.assertNotIn("--congestion", peers.cluster_words(NODE2, 60, ["script"]))

    def test_ranks_are_bound_and_rails_shaped_as_the_setting_says(self):
        bound = "--bind-to core --map-by core"
        self.assertIn(bound, peers.cluster_words(NODE2, 60, ["script"]))
        self.assertNotIn(bound, peers.cluster_words(NODE8, 60, ["script"]))
        self.assertIn("-bind-to core", " ".join(peers.start_words("mpich", NODE2)))
        self.assertNotIn("-bind-to", peers.start_words("mpich", NODE8))
        for name, rates in (("shaped-x2", "500 500"), ("unequal-x1", "500 250")):
            words = peers.cluster_words(settings.SETTINGS[name], 60, ["script"])
            first, second = (f"{rate}mbit" for rate in rates.split())
            self.assertIn(f"--rate {first} --rate1 {second} --burst 256k", " ".join(words), name)

    def test_open_mpi_is_told_of_rails_that_differ(self):
        for name, setting in settings.SETTINGS.items():
            is_unequal = setting.rates is not None and len(set(setting.rates)) > 1
            self.assertEqual(settings.TOLD in setting.libraries, is_unequal, name)
        words = " ".join(peers.start_words(settings.TOLD, settings.SETTINGS["unequal-x2"]))
        self.assertIn("-x OMPI_MCA_pml=ob1", words)
        for rail, rate in (("eth0", 500), ("eth1", 250)):
            self.assertIn(f"-x OMPI_MCA_btl_tcp_bandwidth_{rail}={rate}", words)
        untold = peers.start_words("openmpi-ob1", settings.SETTINGS["unequal-x2"])
        self.assertNotIn("bandwidth", " ".join(untold))

    def test_five_repetitions_unless_said(self):
        with mock.patch.object(sys, "argv", ["compare"]):
            self.assertEqual(compare_program().parse_arguments().repetitions, 5)

    def test_all_programs_make_as_many_batches(self):
        found = {
            re.search(r"kBatches = (\d+)", (ROOT / "perf" / name).read_text()).group(1)
            for name in (
                "bench_collective.cpp",
                "compare_lib/mpi_collective.c",
                "compare_lib/bare_allgather.c",
            )
        }
        self.assertEqual(len(found), 1, found)

    def judge(self, code, rows, library="mpich"):
        launch = run.Launch(library, "isolated", 10, 1, [8, 64])
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            folder.joinpath("0.err").write_text("first\nlast\n")
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            folder.joinpath("0.out").write_text("a banner\n" + lines)
            folder.joinpath("0.json").write_text(json.dumps({"results": rows}))
            return run.judge_launch(folder, 0, launch, code)

    def test_a_launch_counts_only_when_whole_and_right(self):
        good = [{"bytes_per_rank": size, "wrong_bytes": 0} for size in (8, 64)]
        for library in ("mpich", "allrail"):
            self.assertEqual(self.judge(0, good, library), (good, None))
            self.assertEqual(self.judge(124, good, library), ([], "did not end in time: last"))
            self.assertEqual(self.judge(3, good, library), ([], "ended with code 3: last"))
            self.assertEqual(self.judge(0, good[:1], library), ([], "did not report every size"))
            bad = [good[0], {"bytes_per_rank": 64, "wrong_bytes": 1}]
            self.assertEqual(self.judge(0, bad, library), ([], "delivered wrong bytes"))


if __name__ == "__main__":
    unittest.main()
