"""Turns the logs of one `meson test` run into result lines of ./check: BUILD LEG EXIT_CODE.

Every gtest case counts, and every other test as one. meson's own verdict stands above the cases: a
test that crashed, leaked or ran out of time after its last case is one more failure.
"""

import json
import pathlib
import sys
import xml.etree.ElementTree


def one_line(text: str) -> str:
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1].replace("\t", " ").removeprefix("skipped: ") if lines else "no reason given"


def failure_reason(failure: xml.etree.ElementTree.Element) -> str:
    """Place and first words; the whole text has been printed by meson."""
    return " ".join(failure.get("message", "").split("\n")[:2]).replace("\t", " ")


def skip_reason(skipped: xml.etree.ElementTree.Element) -> str:
    # The message starts with the file and line of the GTEST_SKIP.
    return one_line(skipped.get("message") or skipped.text or "")


def gtest_cases(build: pathlib.Path, test: str) -> list[tuple[str, str, str]]:
    """The cases in the report that meson made the test write, if it came to writing it."""
    report = build / f"{test}.xml"
    if not report.exists():
        return []
    cases = []
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{test}: {case.get('classname')}.{case.get('name')}"
        failure, skipped = case.find("failure"), case.find("skipped")
        if failure is not None:
            cases.append(("fail", name, failure_reason(failure)))
        elif skipped is not None:
            cases.append(("skip", name, skip_reason(skipped)))
        elif case.get("status") == "notrun":
            cases.append(("skip", name, "disabled in its source"))
        else:
            cases.append(("pass", name, ""))
    return cases


def results_of(build: pathlib.Path, entry: dict) -> list[tuple[str, str, str]]:
    # `project:suite / name` when a suite was asked for, else the name alone.
    test = entry["name"].rsplit(" / ", 1)[-1]
    verdict = entry["result"]
    cases = gtest_cases(build, test)
    if verdict in ("OK", "EXPECTEDFAIL"):
        return cases or [("pass", test, "")]
    if verdict == "SKIP":
        return cases or [("skip", test, one_line(entry.get("stderr") or entry.get("stdout", "")))]
    if not any(case[0] == "fail" for case in cases):
        cases.append(("fail", test, f"meson says {verdict}"))
    return cases


def main() -> None:
    build, leg, exit_code = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    results = []
    for log in build.glob("meson-logs/testlog*.json"):
        for line in log.read_text().splitlines():
            results += results_of(build, json.loads(line))
    if not results:
        results.append(("fail", "meson test", "it left no log of any test"))
    if exit_code != 0 and not any(result[0] == "fail" for result in results):
        results.append(("fail", "meson test", f"it ended with exit code {exit_code}"))
    for state, name, reason in results:
        print(f"{state}\t{leg}: {name}\t{reason}")


main()
