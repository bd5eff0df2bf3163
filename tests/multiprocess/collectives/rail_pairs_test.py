"""Ranks whose rails differ in number, order and kind: they find each other, or say who does not."""

import re
import subprocess
import sys

from bad_input_test import check_start
from support import Skip, expect, in_namespaces, job, main, reports

SIZES = "sizes=0,8,4096,70000,300001"
SUMMARY = {"ALLRAIL_LOG": "warning,summary"}


def by_rank(*rails):
    """A wrapper that gives each rank rails of its own."""
    cases = " ".join('%d) ALLRAIL_RAILS="%s";;' % item for item in enumerate(rails))
    script = 'case "$PMIX_RANK" in %s esac; export ALLRAIL_RAILS; exec "$@"' % cases
    return ("sh", "-c", script, "sh")


def grid(*rails, env=None):
    ranks = len(rails)
    words = ("grid", "algorithms=auto,ring,direct", SIZES, "ports=1,2", "every=1")
    result = job(ranks, str(ranks), *words, wrapper=by_rank(*rails), env={**SUMMARY, **(env or {})})
    what = "rails %s" % " ".join(rails)
    expect(result.code == 0 and "grid done" in result.out, what, result)
    expect("is down" not in result.err, "no link was lost: " + what, result)
    print("%s: %.1f s" % (what, result.seconds))
    return result


def test_pairs_in_other_order():
    grid("127.0.0.1,127.0.0.2", "127.0.0.2,127.0.0.1")
    grid(
        "127.0.0.1,127.0.0.2,127.0.0.3",
        "127.0.0.3,127.0.0.1,127.0.0.2",
        "127.0.0.2,127.0.0.3,127.0.0.1",
    )


def test_pairs_of_unequal_numbers():
    """A rail without partner is no lost link, and nothing waits for it."""
    for rails in (
        ("127.0.0.1,127.0.0.2", "127.0.0.3"),
        ("127.0.0.3", "127.0.0.1,127.0.0.2"),
        ("127.0.0.1,127.0.0.2,127.0.0.3", "127.0.0.4,127.0.0.5", "127.0.0.6"),
    ):
        result = grid(*rails)
        expect(result.seconds < 25, "nothing is waited for", result)


def test_pairs_by_setting():
    env = {"ALLRAIL_RAIL_PAIRS": "127.0.0.1=127.0.0.4,127.0.0.2=127.0.0.3"}
    grid("127.0.0.1,127.0.0.2", "127.0.0.3,127.0.0.4", env=env)
    grid("127.0.0.1,127.0.0.2", "127.0.0.3,127.0.0.4", env={"ALLRAIL_RAIL_PAIRS": "1=1"})


def check_no_start(code, words, rails, env=None):
    ranks = len(rails)
    check_start(code, words, ranks, str(ranks), env, wrapper=by_rank(*rails))


def test_pairs_of_two_kinds():
    """Rails that can never be joined are found out before anything is connected."""
    if subprocess.run(["sh", "-c", "grep -q 00000001 /proc/net/if_inet6"]).returncode != 0:
        raise Skip("no IPv6 here")
    check_no_start(
        "mismatch",
        ("rank 0", "rank 1", "127.0.0.1", "::1", "TCP over IPv6", "ALLRAIL_RAILS", "host"),
        ("127.0.0.1", "::1"),
    )
    check_no_start(
        "mismatch",
        ("rank 1", "rank 2", "127.0.0.1", "::1", "ALLRAIL_RAILS"),
        ("127.0.0.1,::1", "::1", "127.0.0.1"),
    )


def test_pairs_setting_is_wrong():
    two = ("127.0.0.1,127.0.0.2", "127.0.0.3")
    for value in ("0-1", "0", "0=", "=1", "0=1,", "0=1=2", "0=1,1=0", "0 = 1"):
        check_no_start(
            "bad-configuration",
            ("ALLRAIL_RAIL_PAIRS", "'%s'" % value, "eth0=eth1"),
            two,
            {"ALLRAIL_RAIL_PAIRS": value},
        )
    check_no_start(
        "bad-configuration",
        ("ALLRAIL_RAIL_PAIRS", "no rank has a rail 'eth7'", "127.0.0.1"),
        two,
        {"ALLRAIL_RAIL_PAIRS": "0=eth7"},
    )
    check_no_start(
        "mismatch",
        ("ALLRAIL_RAIL_PAIRS", "rank 0", "rank 1", "127.0.0.3"),
        two,
        {"ALLRAIL_RAIL_PAIRS": "1=1"},
    )


def test_pairs_of_one_rank():
    """A rank alone has no rails, so that the setting says nothing about it."""
    result = job(1, None, "loop", "bytes=64", "seconds=0.1", env={"ALLRAIL_RAIL_PAIRS": "0=eth7"})
    expect(result.code == 0, "one rank", result)


def outside_interface():
    """An interface that is up and has an IPv4 address that is not the loopback's."""
    lines = subprocess.run(
        ["ip", "-4", "-br", "address", "show", "up"], stdout=subprocess.PIPE
    ).stdout.decode()
    names = [line.split()[0].split("@")[0] for line in lines.splitlines() if line.split()]
    for name in names:
        if name != "lo":
            return name
    raise Skip("no interface but the loopback here")


def test_pairs_are_probed():
    """Packets that must leave by a real interface never reach the loopback: the next pair does."""
    name = outside_interface()
    env = {"ALLRAIL_RAIL_PAIRS": "%s=127.0.0.3,127.0.0.1=127.0.0.3" % name}
    grid("%s,127.0.0.1" % name, "127.0.0.3", env=env)


def test_pairs_that_do_not_answer():
    name = outside_interface()
    env = {
        "ALLRAIL_RAIL_PAIRS": "%s=127.0.0.3,127.0.0.1=127.0.0.1" % name,
        "ALLRAIL_BOOTSTRAP_TIMEOUT": "4s",
    }
    result = job(
        3,
        "3",
        "loop",
        "bytes=64",
        "seconds=60",
        wrapper=by_rank("%s,127.0.0.1" % name, "127.0.0.3", "127.0.0.1," + name),
        env=env,
    )
    for rank, one in reports(result, 3).items():
        expect(one.code in ("network", "aborted"), "rank %d: %r" % (rank, one), result)
        for word in ("rank 0", "rank 1", "host", "127.0.0.3", name, "ALLRAIL_RAIL_PAIRS"):
            expect(word in one.text, "rank %d says %r: %r" % (rank, word, one), result)
    expect(result.seconds < 30, "soon", result)


def test_rails_excluded():
    """With ^ the rails are all interfaces but the loopback and those that are named."""
    script = "ip link set lo up" + "".join(
        " && ip link add eth%d type veth peer name far%d && ip link set far%d up"
        " && ip address add 10.77.%d.1/24 dev eth%d && ip link set eth%d up" % ((i,) * 6)
        for i in range(3)
    )
    prefix = in_namespaces(script, "--net")
    for setting, rails in (("^eth1", {"eth0", "eth2"}), ("^eth2,^eth0", {"eth1"})):
        env = {"ALLRAIL_RAILS": setting, **SUMMARY}
        words = ("grid", "algorithms=auto", SIZES)
        result = job(2, "2", *words, prefix=prefix, env=env)
        expect(result.code == 0 and "grid done" in result.out, setting, result)
        for rank in (0, 1):
            line = re.search(r"rank %d summary: (.*)" % rank, result.err)
            expect(line, "a summary of rank %d: %s" % (rank, setting), result)
            found = set(re.findall(r"(\S+) sent", line[1]))
            expect(found == rails, "rails of rank %d: %s, %s" % (rank, found, setting), result)
    for setting, words in (
        ("^eth1,eth0", ("not both",)),
        ("eth0,^eth1", ("not both",)),
        ("^eth0,^eth1,^eth2", ("leaves no rail", "allrail-info")),
    ):
        words = ("ALLRAIL_RAILS is '%s'" % setting, *words)
        check_start("bad-configuration", words, env={"ALLRAIL_RAILS": setting}, prefix=prefix)


if __name__ == "__main__":
    sys.exit(main(globals()))
