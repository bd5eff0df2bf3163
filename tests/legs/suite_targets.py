"""Prints the ninja targets that the tests of some meson suites need: BUILD SUITE..."""

import json
import os
import subprocess
import sys


def introspect(build: str, what: str) -> list:
    return json.loads(subprocess.check_output(["meson", "introspect", build, what]))


def main() -> None:
    build, wanted = sys.argv[1], set(sys.argv[2:])
    files = {target["id"]: target["filename"] for target in introspect(build, "--targets")}
    needed = set()
    for test in introspect(build, "--tests"):
        # A suite is named `project:suite`.
        if wanted & {suite.split(":")[-1] for suite in test["suite"]}:
            for target in test["depends"]:
                needed.update(files[target])
    for file in sorted(needed):
        print(os.path.relpath(file, os.path.abspath(build)))


main()
