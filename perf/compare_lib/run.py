"""Measures: every setting again and again, the libraries in turn every few sizes."""

import dataclasses
import json
import pathlib
import shlex
import shutil
import subprocess
import sys

from . import peers
from .settings import BARE, MEMORY_OF, MODES, ONLY_ALLGATHER, Setting, group_sizes


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a user asked for."""

    settings: list[Setting]
    libraries: tuple[str, ...]
    modes: tuple[str, ...]
    sizes: list[int]
    repetitions: int
    collective: str
    algorithm: str
    iterations: int | None
    limit_s: int
    congestion: str | None = None  # of TCP in all hosts, else the machine's
    shape: str | None = None  # of a v-form's blocks


@dataclasses.dataclass(frozen=True)
class Launch:
    """One start of one program: some sizes of one library in one mode."""

    library: str
    mode: str
    iterations: int
    warmup: int
    sizes: list[int]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def libraries_of(plan: Plan, setting: Setting, repetition: int) -> list[str]:
    """Another one begins in each repetition, so that none always follows the same neighbor."""
    chosen = [library for library in setting.libraries if library in plan.libraries]
    left_out = {"allgather": (), "allgatherv": (BARE,)}.get(plan.collective, ONLY_ALLGATHER)
    chosen = [library for library in chosen if library not in left_out]
    first = repetition % max(1, len(chosen))
    return chosen[first:] + chosen[:first]


def plan_launches(plan: Plan, setting: Setting, repetition: int, done: set) -> list[Launch]:
    """The launches of one repetition; done holds (mode, library, size) that need none."""
    launches = []
    for mode in (mode for mode in MODES if mode in plan.modes):
        for calls, warmup, sizes in group_sizes(setting, mode, plan.sizes, plan.iterations):
            for library in libraries_of(plan, setting, repetition):
                open_sizes = [size for size in sizes if (mode, library, size) not in done]
                if open_sizes:
                    launches.append(Launch(library, mode, calls, warmup, open_sizes))
    return launches


def launch_line(plan: Plan, setting: Setting, number: int, launch: Launch, folder: str) -> str:
    words = peers.start_words(launch.library, setting)
    counts = (launch.mode, launch.iterations, launch.warmup, launch.sizes)
    words += peers.program_words(launch.library, setting, plan.collective, *counts, plan.shape)
    if launch.library in MEMORY_OF:
        words += ["--algorithm", plan.algorithm, "--json", f"{folder}/{number}.json"]
    return shlex.join(["launch", str(number), str(plan.limit_s), *words])


def read_rows(folder: pathlib.Path, number: int, launch: Launch) -> list[dict]:
    """What the program wrote; empty where it wrote nothing."""
    if launch.library in MEMORY_OF:
        file = folder / f"{number}.json"
        return json.loads(file.read_text())["results"] if file.exists() else []
    lines = (folder / f"{number}.out").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def judge_launch(folder: pathlib.Path, number: int, launch: Launch, code: int):
    """(rows, None), or ([], why they do not count)."""
    if code != 0:
        last = (folder / f"{number}.err").read_text().strip().splitlines()[-1:]
        ended = "did not end in time" if code in (124, 137) else f"ended with code {code}"
        return [], ended + "".join(f": {line}" for line in last)
    rows = read_rows(folder, number, launch)
    if [row["bytes_per_rank"] for row in rows] != launch.sizes:
        return [], "did not report every size"
    # None: there was nothing to check.
    wrong = [row for row in rows if row["wrong_bytes"] not in (0, None)]
    return (rows, None) if not wrong else ([], "delivered wrong bytes")


def run_session(plan: Plan, setting: Setting, launches: list[Launch], programs: pathlib.Path):
    """Yields (launch, rows, reason) in one cluster that lives as long as the session."""
    folder = programs / "session"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    inside = f"{peers.PROGRAMS}/session"
    lines = [
        launch_line(plan, setting, number, launch, inside) for number, launch in enumerate(launches)
    ]
    (folder / "launches").write_text("\n".join(lines) + "\n")
    script = ["perf/compare_lib/session.sh", f"{inside}/launches", inside]
    limit_s = 60 + (plan.limit_s + 10) * len(launches)
    words = peers.cluster_words(setting, limit_s, script, plan.congestion)
    reported = set()
    with subprocess.Popen(
        words, cwd=peers.ROOT, env=peers.LAB, stdout=subprocess.PIPE, text=True
    ) as session:
        try:
            for line in session.stdout:
                words = line.split()
                if len(words) != 2 or not all(word.isdigit() for word in words):
                    continue
                number, code = (int(word) for word in words)
                reported.add(number)
                yield launches[number], *judge_launch(folder, number, launches[number], code)
            session.wait()
        finally:
            # An interrupt; every process of the cluster ends with it.
            if session.poll() is None:
                session.kill()
    for number, launch in enumerate(launches):
        if number not in reported:
            yield launch, [], f"its session ended with code {session.returncode}"


def done_launches(results: list[dict], setting: Setting, repetition: int) -> set:
    return {
        (sample["mode"], sample["library"], sample["bytes_per_rank"])
        for sample in results
        if sample["setting"] == setting.name and sample["repetition"] == repetition
    }


def continue_document(earlier: dict, context: dict) -> dict:
    """What an earlier run has measured and started, with what this one is about to."""
    before = earlier["context"]
    # In one setting either run may start peers that the other one leaves out.
    started = {
        setting: before["peers"].get(setting, {}) | context["peers"].get(setting, {})
        for setting in before["peers"] | context["peers"]
    }
    dates = f"{before['date']} and {context['date']}"
    context = {**context, "peers": started, "date": dates, "load": before["load"]}
    return {"context": context, "results": earlier["results"], "failed": earlier["failed"]}


def without_launch(failed: list[dict], key: dict, sizes: list[int]) -> list[dict]:
    """The failures that are left after a launch has tried these sizes again."""
    left = []
    for failure in failed:
        if all(failure[name] == value for name, value in key.items()):
            failure = {**failure, "sizes": [s for s in failure["sizes"] if s not in sizes]}
        if failure["sizes"]:
            left.append(failure)
    return left


def measure(plan: Plan, document: dict, programs: pathlib.Path, save) -> None:
    """Adds to document["results"] and ["failed"]; save() is called after every session."""
    # Repetitions outside: what is cut short has seen every setting.
    for repetition in range(plan.repetitions):
        for setting in plan.settings:
            done = done_launches(document["results"], setting, repetition)
            launches = plan_launches(plan, setting, repetition, done)
            where = f"repetition {repetition + 1} of {plan.repetitions}, {setting.name}"
            if not launches:
                say(f"{where}: nothing to do")
                continue
            outcomes = run_session(plan, setting, launches, programs)
            for number, (launch, rows, reason) in enumerate(outcomes, 1):
                key = {"setting": setting.name, "library": launch.library, "mode": launch.mode}
                key["repetition"] = repetition
                sizes = ",".join(str(size) for size in launch.sizes)
                what = f"{where}: {number} of {len(launches)}: {launch.library} {launch.mode}"
                say(f"{what} {sizes}" + (f": {reason}" if reason else ""))
                document["results"] += [{**key, **row} for row in rows]
                document["failed"] = without_launch(document["failed"], key, launch.sizes)
                if reason:
                    document["failed"].append({**key, "sizes": launch.sizes, "reason": reason})
            save()
