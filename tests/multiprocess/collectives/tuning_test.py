"""Tuning files: what they change in whole jobs, and that ranks with different ones do not start."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile

from bad_input_test import check_start
from support import RUN, Skip, check_clean, environment, expect, files, job, main

PROGRAMS = os.path.join(os.path.dirname(RUN), "..", "..", "perf")
INFO = os.path.join(PROGRAMS, "allrail-info")
BENCH = os.path.join(PROGRAMS, "allrail-bench")
DOCUMENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "docs")
# What rank 1 does otherwise than the others.
ODD_WORDS = ("sh", "-c", 'if [ "$PMIX_RANK" = 1 ]; then exec "$@" %s; fi; exec "$@"', "sh")
ODD_FILE = (
    "sh",
    "-c",
    'if [ "$PMIX_RANK" = 1 ]; then %s; fi; exec "$@"',
    "sh",
)
# The rule of each collective stands in a line of its own.
RULES = """{
"format": 1, "rules": {
"allgather": [
{"bytes": {"max": 1000}, "nodes": 1, "algorithm": "smp-bruck", "ports": 2},
{"nodes": 2, "rails": 2, "bytes": {"max": "1K"}, "algorithm": "smp-direct", "ports": 3},
{"nodes": 2, "ranks": {"min": 5}, "algorithm": "ring"}
],
"gather": [
{"ranks_per_node": 2, "algorithm": "binomial", "ports": 1}
]}}
"""


@contextlib.contextmanager
def folder_of(**contents):
    """A folder with these files, NAME.json each, which is not what a job left behind."""
    with tempfile.TemporaryDirectory(prefix="tuning-") as folder:
        for name, text in contents.items():
            with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
                file.write(text)
        check_clean.before = files()
        yield folder


def program(name, ranks, nodes, *words, file=None):
    """What rank 0 of a job of one of our programs prints."""
    result = subprocess.run(
        [RUN, "-n", str(ranks), "--nodes", nodes, name, *words],
        env=environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2", ALLRAIL_TUNING_FILE=file),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=90,
    )
    text = result.stdout.decode()
    expect(result.returncode == 0, "%s %s\n%s" % (name, words, text))
    return text


def choice(text):
    """Algorithm, ports and reason that `explain` prints."""
    line = r"^choice: (\S+) with (\d+) ports and \d+ leaders per node: (.*)$"
    match = re.search(line, text, re.MULTILINE)
    expect(match is not None, text)
    return match[1], int(match[2]), match[3]


def test_tuning_is_explained():
    """In the job that runs, and in one that is imagined."""
    with folder_of(tuning=RULES) as folder:
        path = os.path.join(folder, "tuning.json")
        for (ranks, nodes, collective, size), expected, line in (
            ((3, "1", "allgather", "1000"), ("smp-bruck", 2), 4),
            ((4, "2", "allgather", "1000"), ("smp-direct", 3), 5),
            ((5, "2", "allgather", "1025"), ("ring", 2), 6),
            ((4, "2", "gather", "7"), ("binomial", 1), 9),
            ((4, "2", "allgather", "1025"), None, None),
            ((5, "2", "gather", "7"), None, None),
            ((4, "2", "scatter", "7"), None, None),
        ):
            what = "%d ranks, %s nodes, %s of %s" % (ranks, nodes, collective, size)
            words = ("explain", collective, size)
            built_in = choice(program(INFO, ranks, nodes, *words))
            imagined = choice(
                program(
                    INFO, 1, "1", *words, "--ranks", str(ranks), "--nodes", nodes, file=path
                )
            )
            found = choice(program(INFO, ranks, nodes, *words, file=path))
            expect(found == imagined, "%s: %s, imagined %s" % (what, found, imagined))
            if expected is None:
                expect(found == built_in, "%s: %s instead of %s" % (what, found, built_in))
                continue
            expect(found[:2] == expected, "%s: %s" % (what, found))
            expect("%s:%d " % (path, line) in found[2], "%s: line %d: %s" % (what, line, found))
            expect(built_in[0] != found[0], "%s: the file changes nothing" % what)
        text = program(INFO, 2, "1", file=path)
        expect("%s: 4 rules (allgather 3, gather 1)" % path in text, text)
        expect("none: the built-in table" in program(INFO, 1, "1"), "no file")


def test_tuning_is_obeyed():
    """Ranks that follow the file match a rank that names what it says, and no other."""
    with folder_of(tuning=RULES, empty='{"format": 1, "rules": {}}') as folder:
        for file, words, agrees in (
            ("tuning", "algorithm=smp-bruck ports=2", True),
            ("tuning", "algorithm=smp-bruck ports=1", False),
            ("tuning", "algorithm=smp-direct ports=1", False),
            ("empty", "algorithm=smp-direct ports=1", True),
            ("empty", "algorithm=smp-bruck ports=2", False),
        ):
            result = job(
                3,
                None,
                "loop",
                "bytes=1000",
                "seconds=0.2",
                env={"ALLRAIL_TUNING_FILE": os.path.join(folder, file + ".json")},
                wrapper=[*ODD_WORDS[:2], ODD_WORDS[2] % words, ODD_WORDS[3]],
            )
            what = "%s and a rank with %s" % (file, words)
            expect((result.code == 0) == agrees, what, result)
            if not agrees:
                expect(" mismatch " in result.out, what, result)
            check_clean()


def test_tuning_is_measured_by():
    """What the benchmark says it measured, with a setting and an option that go first."""
    with folder_of(tuning=RULES) as folder:
        path = os.path.join(folder, "tuning.json")
        out = os.path.join(folder, "out.json")
        for words, algorithm in (
            (("gather",), "binomial"),
            (("gather", "--algorithm", "direct"), "direct"),
            (("allgather",), "smp-direct"),
        ):
            options = ("--sizes", "64", "--iterations", "2", "--json", out)
            program(BENCH, 4, "2", *words, *options, file=path)
            with open(out, encoding="utf-8") as file:
                row = json.load(file)["results"][0]
            expect(row["algorithm"] == algorithm, "%s: %s" % (words, row))
            expect(row["wrong_bytes"] == 0, str(row))


def test_tuning_by_a_model():
    """Where no rule fits, the algorithm that the model in the file takes to be the fastest."""
    costly = '"message_us": 1000, "rail_MBps": [10000]'
    rules = '"rules": {"gather": [{"algorithm": "direct"}]}'
    with folder_of(
        tuning='{"format": 1, %s,\n"model": {%s}}' % (rules, costly),
        quick='{"format": 1, "model": {"message_us": 0.01, "rail_MBps": [1]}}',
    ) as folder:
        path = os.path.join(folder, "%s.json")
        chosen = set()
        for file, collective in (
            ("tuning", "allgather"),
            ("quick", "allgather"),
            ("tuning", "alltoall"),
            ("quick", "alltoall"),
            ("tuning", "scatter"),
        ):
            words = ("explain", collective, "4096")
            text = program(INFO, 8, "8", *words, file=path % file)
            found = choice(text)
            imagined = choice(
                program(INFO, 1, "1", *words, "--ranks", "8", "--nodes", "8", file=path % file)
            )
            what = "%s of %s: %s" % (collective, file, found)
            expect(found == imagined, "%s, imagined %s" % (what, imagined))
            match = re.match(r"by the cost model in (\S+) .*: ([0-9.]+) us; next is", found[2])
            expect(match is not None and match[1] == path % file, what)
            expect("time of the call by the cost model in %s: %s us" % match.groups() in text, text)
            chosen.add((collective, found[0]))
        expect(len(chosen) > 3, "the models differ: %s" % chosen)
        by_rule = choice(program(INFO, 8, "8", "explain", "gather", "4096", file=path % "tuning"))
        expect("tuning.json:1 " in by_rule[2], str(by_rule))
        out = os.path.join(folder, "out.json")
        options = ("--sizes", "8,4K", "--iterations", "2", "--json", out)
        program(BENCH, 8, "8", "alltoall", *options, file=path % "tuning")
        with open(out, encoding="utf-8") as file:
            rows = json.load(file)["results"]
        expect(("alltoall", rows[1]["algorithm"]) in chosen, str(rows))
        expect(all(row["wrong_bytes"] == 0 for row in rows), str(rows))


def test_tuning_files_differ():
    """No rank starts, and each names both ranks; equal files may lie anywhere."""
    other = RULES.replace('"ports": 3', '"ports": 2')
    with folder_of(tuning=RULES, same=RULES, other=other) as folder:
        path = os.path.join(folder, "%s.json")
        env = {"ALLRAIL_TUNING_FILE": path % "tuning"}
        for nodes in (None, "3"):
            for action in (
                "export ALLRAIL_TUNING_FILE=" + path % "other",
                "unset ALLRAIL_TUNING_FILE",
            ):
                check_start(
                    "mismatch",
                    ("rank 0", "rank 1", "ALLRAIL_TUNING_FILE", "4 rules"),
                    nodes=nodes,
                    env=env,
                    wrapper=[*ODD_FILE[:2], ODD_FILE[2] % action, ODD_FILE[3]],
                )
        result = job(
            3,
            "3",
            "loop",
            "bytes=64",
            "seconds=0.2",
            env=env,
            wrapper=[
                *ODD_FILE[:2],
                ODD_FILE[2] % ("export ALLRAIL_TUNING_FILE=" + path % "same"),
                ODD_FILE[3],
            ],
        )
        expect(result.code == 0, "the same contents at another place", result)


def test_tuning_file_is_wrong():
    """On all ranks, on one of them, and in a job of one rank: file, line and what is allowed."""
    wrong = RULES.replace("binomial", "brook")
    with folder_of(tuning=RULES, wrong=wrong) as folder:
        path = os.path.join(folder, "%s.json")
        said = (path % "wrong" + ":9: ", "'brook'", "smp-binomial")
        for ranks in (1, 3):
            check_start(
                "bad-configuration",
                said,
                ranks=ranks,
                env={"ALLRAIL_TUNING_FILE": path % "wrong"},
            )
        for file, words in (("wrong", said), ("none", (path % "none", "No such file"))):
            action = "export ALLRAIL_TUNING_FILE=" + path % file
            check_start(
                "bad-configuration",
                words,
                nodes="3",
                env={"ALLRAIL_TUNING_FILE": path % "tuning"},
                wrapper=[*ODD_FILE[:2], ODD_FILE[2] % action, ODD_FILE[3]],
            )


def test_tuning_schema():
    """The schema takes what Allrail takes, and refuses what it refuses."""
    try:
        import jsonschema
    except ImportError as error:
        raise Skip("needs python3-jsonschema") from error
    with open(os.path.join(DOCUMENTS, "tuning.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    rule = {"algorithm": "binomial"}
    documents = [json.loads(RULES), {"format": 1, "rules": {}}]
    members = (
        '{} {"bytes": 0} {"bytes": "8k"} {"bytes": "8Q"} {"bytes": -1} {"bytes": {}} '
        '{"bytes": {"min": "1K"}} {"bytes": {"least": 1}} {"ranks": 0} {"rails": 64} '
        '{"rails": 65} {"nodes": {"max": 1.5}} {"leaders": 1} {"ports": 64} {"ports": 65} '
        '{"comment": ""} {"comment": 1} {"algorithm": "ring"} {"algorithm": null} {"x": 1}'
    )
    for more in re.sub(r"\} \{", "}\n{", members).splitlines():
        documents.append({"format": 1, "rules": {"gather": [{**rule, **json.loads(more)}]}})
    documents += [{"format": 2, "rules": {}}, {"format": 1}, {"rules": {}}, []]
    documents += [{"format": 1, "rules": {"reduce": []}}, {"format": 1, "rules": {"gather": {}}}]
    taken = 0
    for document in documents:
        with folder_of(document=json.dumps(document)) as folder:
            path = os.path.join(folder, "document.json")
            words = ["explain", "gather", "8", "--ranks", "2"]
            result = subprocess.run(
                [INFO, *words],
                env=environment(ALLRAIL_TUNING_FILE=path),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=60,
            )
        text = "%s: %s" % (document, result.stdout.decode())
        expect(validator(schema).is_valid(document) == (result.returncode == 0), text)
        taken += result.returncode == 0
    expect(2 < taken < len(documents) - 2, "%d of %d" % (taken, len(documents)))


if __name__ == "__main__":
    sys.exit(main(globals()))
