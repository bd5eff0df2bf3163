"""Runs COMMAND, which has to fail by itself and say WORD: WORD COMMAND [ARGUMENT...]."""

import subprocess
import sys

word, *command = sys.argv[1:]
done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=80)
print(done.stdout, done.stderr, sep="")
if done.returncode != 1 or word not in done.stderr:
    sys.exit(f"exit code {done.returncode}; it was to be 1, with '{word}' said")
