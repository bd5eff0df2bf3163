"""Checks a model with spin: MODEL holds|fails [DEFINE...]. Exit code 77: spin is missing.

`fails` is for a model in which something was left out on purpose: spin must find that.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def verify(model: pathlib.Path, defines: list[str], folder: str) -> str:
    """What the verifier reports over all states that can be reached."""
    options = [f"-D{name}" for name in defines]
    subprocess.run(["spin", "-a", *options, str(model)], cwd=folder, check=True, timeout=60)
    # No bit-state hashing: every state is looked at, or the report says that it was not.
    program = ["cc", "-O2", "-DSAFETY", "-DNOFAIR", "-DMEMLIM=2048", "-DCOLLAPSE", "-o", "pan"]
    subprocess.run([*program, "pan.c"], cwd=folder, check=True, timeout=120)
    search = ["./pan", "-m1000000"]
    return subprocess.run(
        search, cwd=folder, check=True, timeout=400, text=True, stdout=subprocess.PIPE
    ).stdout


def main() -> int:
    model, expected, defines = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
    if shutil.which("spin") is None:
        print("spin is missing")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        report = verify(model, defines, folder)
    print(report)
    found = re.search(r"errors: (\d+)", report)
    states = re.search(r"(\S+) states, stored", report)
    if found is None or states is None or "Search not completed" in report and expected == "holds":
        print("the search was not completed")
        return 1
    errors = int(found.group(1))
    print(f"{states.group(1)} states, {errors} errors, expected that it {expected}")
    return 0 if (errors == 0) == (expected == "holds") else 1


sys.exit(main())
