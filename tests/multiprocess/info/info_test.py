"""What allrail-info says of settings that depend on the system, alone and in a job.

SCRIPT ALLRAIL_RUN ALLRAIL_INFO BEHAVIOUR
Exit code 0: it holds; 1: it does not, and why is printed; 77: cannot be tried here.
"""

import os
import re
import sys

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


if __name__ == "__main__":
    try:
        globals()["test_" + BEHAVIOUR]()
    except Skip as reason:
        print("skipped:", reason)
        sys.exit(77)
