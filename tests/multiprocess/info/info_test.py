"""What allrail-info says of settings that depend on the system, alone and in a job.

SCRIPT ALLRAIL_RUN ALLRAIL_INFO BEHAVIOUR
Exit code 0: it holds; 1: it does not, and why is printed; 77: cannot be tried here.
"""

import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launcher"))

from harness import BEHAVIOUR, PROBE, RUN, Skip, environment, expect, run

ALONE = (PROBE,)
JOB = (RUN, "-n", "2", "--nodes", "1", PROBE)
NOT_MOUNTED = 97


def in_mount(policy, setting, command):
    """The result of a command that has a /dev/shm with this mount option huge= of its own."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    mount = "mount -t tmpfs -o size=256m,huge=%s none /dev/shm || exit %d" % (policy, NOT_MOUNTED)
    script = mount + '; exec "$@"'
    result = run(
        ["unshare", *user, "--mount", "sh", "-c", script, "sh", *command],
        env=environment(ALLRAIL_HUGE_PAGES=setting),
    )
    if result.code == NOT_MOUNTED or "unshare" in result.err:
        raise Skip("no /dev/shm of one's own with huge=%s: %s" % (policy, result.err))
    return result


def shown(result):
    """What a segment does, how much a trial got, and how much of the job's segment is huge."""
    if "this kernel has none" in result.out or "shmem_enabled is deny" in result.out:
        raise Skip("this kernel gives none")
    found = re.search(
        r"mounted with huge=(\S+), .* with ALLRAIL_HUGE_PAGES=(\S+) a segment (.+)\n"
        r"  a trial got (\S+) of (\S+) in huge pages\n",
        result.out,
    )
    touched = re.search(r"  (\S+) of what rank 0 has touched of it is in huge pages", result.out)
    expect(found and touched, "huge pages are not shown", result)
    return (*found.groups(), touched[1])


def test_huge_pages():
    """Every word with every answer of the system: it works, and is quiet about what is refused."""
    for command in (ALONE, JOB):
        for policy in ("never", "advise"):
            for setting in ("auto", "on", "off", None):
                result = in_mount(policy, setting, command)
                what = "huge=%s, ALLRAIL_HUGE_PAGES=%s: " % (policy, setting)
                expect(result.code == 0 and result.err == "", what + "not quiet", result)
                mount, word, does, got, tried, touched = shown(result)
                expect((mount, word) == (policy, setting or "auto"), what + "shown", result)
                if "force" in result.out:
                    continue  # then the kernel gives them whatever the mount says
                asks = setting == "on" or (setting != "off" and policy == "advise")
                expect(does.startswith("asks for none") != asks, what + does, result)
                expect(asks or got == "0", what + "unasked", result)
                if command == JOB:
                    # One memory has them or has not, whoever asks: a trial and a segment alike.
                    expect((touched != "0") == (asks and got != "0"), what + "segment", result)
                print(what + "%s; %s of %s, segment %s" % (does, got, tried, touched))


def test_huge_pages_misspelt():
    """A word that is none is an error that names those that are."""
    for command in (ALONE, JOB):
        for word in ("nonsense", "ON", ""):
            result = run(command, env=environment(ALLRAIL_HUGE_PAGES=word))
            said = "ALLRAIL_HUGE_PAGES is '%s', which is not allowed; use auto, on or off" % word
            expect(result.code not in (0, None) and said in result.err, "taken", result)


def test_main_page():
    """Rails and why not, the map of the job, its memory, and where each setting comes from."""
    rails = "127.0.0.1,127.0.0.2"
    settings = environment(ALLRAIL_RAILS=rails, ALLRAIL_NODE_MEMORY="8M", ALLRAIL_PORTS=None)
    result = run([RUN, "-n", "3", "--nodes", "2+1", PROBE], env=settings)
    expect(result.code == 0, "a job of three ranks", result)
    for pattern in (
        r"  lo +tcp +\S+ +rate unknown +not taken: loopback, .+",
        r"  127\.0\.0\.2 +tcp +127\.0\.0\.2 +\S.* taken",
        r"Job: 3 ranks on 2 nodes",
        r"  rank 1 +node 0 +rails 127\.0\.0\.1 127\.0\.0\.2",
        r"  rank 2 +node 1 +rails 127\.0\.0\.1 127\.0\.0\.2",
        r"  ALLRAIL_RAILS +%s \(environment\) .+; allowed: .+" % re.escape(rails),
        r"  ALLRAIL_PORTS +\S+ +\(default\) .+; allowed: .+",
        r"  smp-ring +over nodes +\S.*",
    ):
        expect(re.search("(?m)^%s$" % pattern, result.out), "no line '%s'" % pattern, result)
    pattern = r"Node memory: \d+ bytes: (\d+) slots of (\d+)K for small calls, (\d+) of (\d+)K for"
    memory = re.search(pattern, result.out)
    expect(memory, "no line '%s'" % pattern, result)
    few, small, many, large = map(int, memory.groups())
    expect(0 < few * small + many * large <= 8 << 10, "slots are within their bound", result)
    # Other tests say less, since many of them run beside each other.
    del settings["ALLRAIL_NODE_MEMORY"]
    result = run([PROBE], env=settings)
    line = r"(?m)^  ALLRAIL_NODE_MEMORY +64M +\(default\)"
    expect(result.code == 0 and re.search(line, result.out), "no default of 64M", result)


def test_counters():
    """Of a finished run, out of its JSON file; another file is an error that says so."""
    bench = os.path.join(os.path.dirname(PROBE), "allrail-bench")
    settings = environment(ALLRAIL_RAILS="127.0.0.1,127.0.0.2")
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "results.json")
        words = ("allgather", "--sizes", "1M", "--iterations", "3", "--json", file)
        result = run([RUN, "-n", "2", "--nodes", "2", bench, *words], env=settings)
        expect(result.code == 0, "the run", result)
        with open(file, encoding="utf-8") as stream:
            rails = json.load(stream)["rail_counters_of_rank_0"]
        result = run((PROBE, "counters", file), env=settings)
        expect(result.code == 0 and "2 ranks on 2 nodes" in result.out, "counters", result)
        sent = sum(rail["bytes_sent"] for rail in rails)
        for rail in rails:
            share = "%.1f%%" % (100 * rail["bytes_sent"] / sent)
            words = (rail["name"], rail["bytes_sent"], share, rail["bytes_received"])
            words += (rail["chunks_sent"], rail["chunks_received"], rail["replays"])
            line = " +".join(re.escape(str(word)) for word in words)
            expect(re.search("(?m)^" + line, result.out), "no line %s" % line, result)
        for other, said in ((file + "x", "cannot be read"), (__file__, "is no file of")):
            result = run((PROBE, "counters", other), env=settings)
            expect(result.code == 1 and said in result.err, "%s is taken" % other, result)


if __name__ == "__main__":
    try:
        globals()["test_" + BEHAVIOUR]()
    except Skip as reason:
        print("skipped:", reason)
        sys.exit(77)
