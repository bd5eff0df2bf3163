#!/usr/bin/env python3
"""Counts instructions (by callgrind) and system calls of calls that need not wait.

    counts.py check PROGRAM            compares with baseline.json
    counts.py show PROGRAM             prints the counts, and the functions that they are spent in
    counts.py renew [PROGRAM]          writes baseline.json; without PROGRAM it builds one first

PROGRAM is tests/counts/small-paths of a build. Exit code 1: a count is above what is allowed; 77:
the baseline is of another compiler, or nothing can be counted here.
"""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BASELINE = HERE / "baseline.json"
BUILD = HERE.parent.parent / "build-counts"
RENEW = "tests/counts/counts.py renew"
LIMIT_PERCENT = 5
SKIPPED = 77
# So that every processor runs the same memcpy.
PLAIN_LIBC = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps="
    "-AVX_Fast_Unaligned_Load,-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM"
}


class CannotCount(Exception):
    pass


class Profile:
    """One profile of callgrind: what each function costs itself, and calls between functions."""

    def __init__(self, text):
        self.own = collections.Counter()
        self.arcs = collections.Counter()
        names = {}
        caller = callee = None
        is_call = False
        for line in text.splitlines():
            if match := re.match(r"(c?fn)=(\(\d+\))(?: (.+))?$", line):
                name = names.setdefault(match[2], match[3])
                if match[1] == "fn":
                    caller = name
                else:
                    callee = name
            elif line.startswith("calls="):
                is_call = True
            elif match := re.match(r"[0-9+*-][0-9]* (\d+)$", line):
                if is_call:
                    self.arcs[caller, callee] += int(match[1])
                else:
                    self.own[caller] += int(match[1])
                is_call = False

    def instructions(self):
        """All but those of fake rails: what these call back counts."""
        total = sum(self.own.values())
        for (caller, callee), cost in self.arcs.items():
            if is_fake(callee) and not is_fake(caller):
                total -= cost
            if is_fake(caller) and not is_fake(callee) and "::Fabric" in callee:
                total += cost
        return total


def is_fake(function):
    return "transport::Fake" in function


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    if done.returncode == SKIPPED:
        raise CannotCount("%s cannot count here" % command)
    if done.returncode != 0:
        raise RuntimeError(
            "%s ended with %d: %s"
            % (" ".join(command), done.returncode, done.stderr.decode(errors="replace")[-3000:])
        )
    return done.stdout.decode()


def profiles(program):
    """Name of a path, calls, profile."""
    if shutil.which("valgrind") is None:
        raise CannotCount("valgrind is not installed")
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "profile")
        options = [
            "--tool=callgrind",
            "--callgrind-out-file=" + file,
            "--collect-atstart=no",
            "--toggle-collect=allrail_counted_call",
            "--dump-before=allrail_path_ends",
        ]
        said = run(
            ["valgrind", *options, program, "instructions"],
            env={**os.environ, **PLAIN_LIBC},
            timeout=300,
        )
        for number, line in enumerate(said.splitlines(), 1):
            name, calls, _ = line.split("\t")
            with open("%s.%d" % (file, number), encoding="utf-8") as part:
                yield name, int(calls), Profile(part.read())


def count(program):
    """{name: {"instructions": per call, "system_calls": of all calls}}, and {name: profile}."""
    found, all_profiles = {}, {}
    for name, calls, profile in profiles(program):
        found[name] = {"instructions": round(profile.instructions() / calls)}
        all_profiles[name] = (calls, profile)
    for line in run([program, "system-calls"], timeout=300).splitlines():
        name, _, system_calls = line.split("\t")
        found[name]["system_calls"] = int(system_calls)
    return found, all_profiles


def compare(baseline, found):
    """What is wrong, and what is better than the baseline says."""
    wrong, better = [], []
    for name in sorted(baseline.keys() | found.keys()):
        if name not in found or name not in baseline:
            where = "baseline" if name in baseline else "program"
            wrong.append("%s is only in the %s; run: %s" % (name, where, RENEW))
            continue
        was, now = baseline[name], found[name]
        before, after = was["instructions"], now["instructions"]
        text = "%s: %d instructions per call, the baseline says %d" % (name, after, before)
        percent = 100 * (after - before) / before
        if percent > LIMIT_PERCENT:
            wrong.append(
                "%s: %.1f %% more, and %d %% are allowed; find out why, or if it is worth it, "
                "run: %s" % (text, percent, LIMIT_PERCENT, RENEW)
            )
        elif percent < -LIMIT_PERCENT:
            better.append("%s: %.1f %% less; run: %s" % (text, -percent, RENEW))
        if now["system_calls"] > was["system_calls"]:
            wrong.append(
                "%s: %d system calls in all its calls, the baseline says %d"
                % (name, now["system_calls"], was["system_calls"])
            )
    return wrong, better


def check(program):
    baseline = json.loads(BASELINE.read_text(encoding="utf-8"))
    build = run([program, "build"]).strip()
    if build != baseline["build"]:
        raise CannotCount(
            "the baseline holds for '%s' and this is '%s'; to have one of your own, before your "
            "change run: %s" % (baseline["build"], build, RENEW)
        )
    found, _ = count(program)
    wrong, better = compare(baseline["paths"], found)
    for name, one in found.items():
        was = baseline["paths"].get(name, {}).get("instructions", 0)
        print("%-40s %6d instructions, baseline %6d" % (name, one["instructions"], was))
    for line in better + wrong:
        print(line)
    return 1 if wrong else 0


def show(program):
    found, all_profiles = count(program)
    for name, (calls, profile) in all_profiles.items():
        print("%s: %d instructions per call" % (name, found[name]["instructions"]))
        for function, cost in profile.own.most_common(16):
            print("%10.1f  %s" % (cost / calls, function))
    return 0


def build_program():
    if not (BUILD / "build.ninja").exists():
        subprocess.check_call(
            ["meson", "setup", BUILD, "-Dtests=true", "-Dbuildtype=debugoptimized"]
        )
    subprocess.check_call(["ninja", "-C", BUILD, "tests/counts/small-paths"])
    return str(BUILD / "tests/counts/small-paths")


def renew(program=None):
    program = program or build_program()
    found, _ = count(program)
    baseline = {"build": run([program, "build"]).strip(), "paths": found}
    BASELINE.write_text(json.dumps(baseline, indent=2) + "\n", encoding="utf-8")
    print("wrote %s" % BASELINE)
    return 0


def main():
    commands = {"check": check, "show": show, "renew": renew}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return commands[sys.argv[1]](*sys.argv[2:])
    except CannotCount as reason:
        print(reason)
        return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
