"""What ./quickstart and ./check say first, and to a user who may not install packages that are
missing."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
NOBODY = 65534
MISSING = "allrail-no-such-package"
NEEDED = ("quickstart", "check", "tests/lab/package-list")


@unittest.skipUnless(shutil.which("dpkg-query"), "packages are looked up with dpkg-query")
class FirstRun(unittest.TestCase):
    """A copy in which one package is there and another one is not."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        os.makedirs(os.path.join(self.folder, "tests", "lab"))
        for name in NEEDED:
            shutil.copy(os.path.join(ROOT, name), os.path.join(self.folder, name))
        with open(os.path.join(self.folder, "tests", "lab", "packages"), "w") as file:
            file.write("dpkg build check\n%s build check\n" % MISSING)
        for path, _, _ in os.walk(self.folder):
            os.chmod(path, 0o777)  # it could make files there, and may not

    def run_as_nobody(self, program):
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        result = subprocess.run(
            [os.path.join(self.folder, program)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            text=True,
            timeout=60,
            **(options if os.geteuid() == 0 else {}),
        )
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout, "", "nothing is promised")
        self.assertEqual(
            sorted(os.listdir(self.folder)), ["check", "quickstart", "tests"], "nothing was built"
        )
        return result.stderr.splitlines()

    def check_advice(self, program):
        """One line to paste as it is."""
        lines = self.run_as_nobody(program)
        self.assertEqual(len(lines), 2, lines)
        self.assertIn("run ./%s again" % program, lines[0])
        command = "sudo apt-get update && sudo apt-get install -y --no-install-recommends "
        self.assertEqual(lines[1], command + MISSING)

    def test_quickstart(self):
        self.check_advice("quickstart")

    def test_check(self):
        self.check_advice("check")

    def run_check(self, *words):
        """With two legs that do nothing, and no package missing."""
        legs = os.path.join(self.folder, "tests", "legs")
        os.makedirs(legs, exist_ok=True)
        for name in ("10-first.sh", "20-second.sh"):
            with open(os.path.join(legs, name), "w") as file:
                file.write("# Limit: 10 s\n")
        with open(os.path.join(self.folder, "tests", "lab", "packages"), "w") as file:
            file.write("dpkg build check\n")
        result = subprocess.run(
            [os.path.join(self.folder, "check"), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        self.assertEqual(result.returncode, 0)
        lines = result.stdout.splitlines()
        warnings = [line for line in lines if "below /tmp" in line]
        is_below = os.path.realpath(self.folder).startswith("/tmp/")
        self.assertEqual(len(warnings), 1 if is_below else 0)
        return [line for line in lines if line not in warnings]

    def test_check_says_first_what_it_does(self):
        lines = self.run_check()
        self.assertRegex(lines[0], "^check: .*: first second$")
        self.assertRegex(lines[1], r"^check: .* minutes on two cores.* \./check first ")
        self.assertEqual(lines[2], "=== first")

    def test_check_says_of_a_leg_what_it_does(self):
        lines = self.run_check("second")
        self.assertRegex(lines[0], "^check: .*: second$")
        self.assertEqual(lines[1], "=== second")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
