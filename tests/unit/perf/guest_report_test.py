"""What perf/lab/guest makes of guests that failed halfway. No guest runs."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

PROGRAM = str(pathlib.Path(__file__).resolve().parents[3] / "perf/lab/guest")
sys.dont_write_bytecode = True

SAMPLE = {"case": "put of 8 B", "program": "allrail", "value": 2.0, "unit": "us", "repetition": 0}


def load_program():
    loader = importlib.machinery.SourceFileLoader("perf_lab_guest", PROGRAM)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Guest(unittest.TestCase):
    def ends_with(self, code, samples):
        """What the program exits with and what it wrote, when the guests end with this code."""
        program = load_program()
        real_run = subprocess.run

        def run(command, **options):
            if command[0] == program.ENTER:
                return subprocess.CompletedProcess(command, 0)
            if command[0] != program.GUEST:
                return real_run(command, **options)
            results = pathlib.Path(command[command.index("--results") + 1], "samples")
            results.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
            return subprocess.CompletedProcess(command, code)

        with tempfile.TemporaryDirectory() as folder, mock.patch("subprocess.run", run):
            prefix = pathlib.Path(folder, "report")
            with mock.patch("sys.argv", [PROGRAM, "--output", str(prefix)]):
                with contextlib.redirect_stdout(io.StringIO()):
                    try:
                        program.main()
                        ended = None
                    except SystemExit as exit_:
                        ended = str(exit_.code)
            file = prefix.with_suffix(".json")
            return ended, json.loads(file.read_text())["results"] if file.exists() else None

    def test_runs_that_failed_halfway_are_written_and_told(self):
        ended, written = self.ends_with(1, [SAMPLE])
        self.assertIn("tests/lab/guest ended with 1", ended)
        self.assertEqual(written, [SAMPLE])

    def test_whole_runs_end_well(self):
        self.assertEqual(self.ends_with(0, [SAMPLE]), (None, [SAMPLE]))

    def test_nothing_is_not_written(self):
        ended, written = self.ends_with(3, [])
        self.assertIn("nothing was measured: tests/lab/guest ended with 3", ended)
        self.assertIsNone(written)


if __name__ == "__main__":
    unittest.main()
