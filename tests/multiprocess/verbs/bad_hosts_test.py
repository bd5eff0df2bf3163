"""Hosts whose RDMA ports do not fit: an error on every rank, which names both ends and the setting
to change. Every rank has ports of its own, in software: see fake_host.cpp."""

import os
import sys

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "collectives")
)

from support import check_clean, expect, in_namespaces, job, main, reports

SOON_S = 20.0  # waiting for those that never come would last 60


def addresses(*hosts):
    """For ports with IP addresses: loopback addresses are none for RDMA."""
    script = "ip link set lo up"
    for host in hosts:
        script += " && ip address add %s/24 dev lo" % host[0].split(":")[2]
    return in_namespaces(script, "--net")


def start(hosts, env=None, prefix=()):
    """A job with one rank per host; each host is its ports, and the ALLRAIL_RAILS of its rank."""
    cases = " ".join(
        '%d) export FAKE_PORTS="%s" ALLRAIL_RAILS="%s";;' % (rank, ports, rails)
        for rank, (ports, rails) in enumerate(hosts)
    )
    script = 'case "$PMIX_RANK" in %s esac; exec "$@"' % cases
    return job(
        len(hosts),
        str(len(hosts)),
        "loop",
        "bytes=64",
        "seconds=60",
        wrapper=("sh", "-c", script, "sh"),
        env=env,
        prefix=prefix,
    )


def check(hosts, code, words, env=None, codes_elsewhere=(), prefix=()):
    """Every rank says all of the words, with this code."""
    result = start(hosts, env, prefix)
    for rank, one in reports(result, len(hosts)).items():
        expect(
            one.code == code or one.code in codes_elsewhere,
            "rank %d: %r; %s" % (rank, one, hosts),
            result,
        )
        for word in words:
            expect(word in one.text, "rank %d says %r: %r; %s" % (rank, word, one, hosts), result)
    expect(result.seconds < SOON_S, "soon: %s" % (hosts,), result)
    check_clean()
    return result


def check_one(bad, words, code="bad-configuration", good=("roce1:roce:127.0.0.2", "verbs")):
    """What is wrong with one host is said on all, with the name of that rank."""
    for hosts in ((good, bad), (bad, good), (good, good, bad)):
        result = check(hosts, code, words)
        rank = hosts.index(bad)
        for number, one in reports(result, len(hosts)).items():
            if number != rank:
                expect(
                    "rank %d on host " % rank in one.text and one.peer == rank,
                    "rank %d names the other: %r" % (number, one),
                    result,
                )
    # And where all are alike.
    check((bad, bad), code, words)


def test_link_layers_differ():
    infiniband = ("ib0:ib:127.0.0.1", "verbs")
    roce = ("roce0:roce:127.0.0.2", "verbs")
    words = ("on host ", "ib0:1 (InfiniBand)", "roce0:1 (RoCE v2 over ", "ALLRAIL_RAILS")
    check((infiniband, roce), "mismatch", (*words, "rank 0 ", "rank 1 "))
    check((roce, roce, infiniband), "mismatch", (*words, "rank 0 ", "rank 2 "))
    # Both have both: InfiniBand is taken on the one, and the setting takes RoCE on the other.
    both = "ib0:ib:127.0.0.1,roce0:roce:127.0.0.2"
    check(((both, "verbs"), (both, "roce0")), "mismatch", (*words, "rank 0 ", "rank 1 "))


def test_a_host_without_rdma():
    with_port = ("roce0:roce:127.0.0.2", "verbs")
    # Where `auto` falls to TCP, no rail there is of the kind of the others'.
    words = ("rank 0 ", "rank 1 ", "on host ", "roce0:1 (RoCE v2 over ", "TCP over IPv4")
    for other in (("", "auto"), ("", "tcp"), ("w0:iwarp:127.0.0.3", "auto")):
        check((with_port, other), "mismatch", (*words, "ALLRAIL_RAILS"))
    check_one(("", "verbs"), ("ALLRAIL_RAILS is 'verbs'", "none at all", "tcp"))
    check_one(("w0:iwarp:127.0.0.3", "verbs"), ("ALLRAIL_RAILS is 'verbs'", "iWARP", "tcp"))


def test_ports_that_are_not_there():
    ports = "roce0:roce:127.0.0.3"
    check_one((ports, "nosuch0:1"), ("ALLRAIL_RAILS is 'nosuch0:1'", "'nosuch0'", "roce0:1"))
    check_one((ports, "roce0:2"), ("ALLRAIL_RAILS is 'roce0:2'", "no port '2'", "roce0:1"))


def test_ports_that_are_down():
    ports = "roce0:roce:127.0.0.3:down"
    check_one((ports, "roce0"), ("ALLRAIL_RAILS is 'roce0'", "roce0:1", "port is down"))
    check_one((ports, "verbs"), ("ALLRAIL_RAILS is 'verbs'", "roce0:1", "port is down", "tcp"))


def test_ports_without_gid():
    ports = "roce0:roce:127.0.0.3:no-gid"
    check_one((ports, "roce0"), ("ALLRAIL_RAILS is 'roce0'", "roce0:1", "GID"))
    check_one((ports, "verbs"), ("ALLRAIL_RAILS is 'verbs'", "roce0:1", "GID", "tcp"))


def test_gid_index_of_no_port():
    hosts = (("roce0:roce:127.0.0.2", "verbs"), ("roce1:roce:127.0.0.3", "verbs"))
    result = check(
        hosts,
        "bad-configuration",
        ("ALLRAIL_GID_INDEX is 7", "has no such GID", "3 = "),
        env={"ALLRAIL_GID_INDEX": "7"},
    )
    for rank, one in reports(result, 2).items():
        expect("roce%d:1" % rank in one.text, "rank %d: %r" % (rank, one), result)


def test_no_pair_answers():
    hosts = (("roce0:roce:10.9.0.1", "verbs"), ("roce1:roce:10.9.0.2", "verbs"))
    words = ("rank 0 ", "rank 1 ", "on host ", "roce0:1 to roce1:1", "ALLRAIL_RAIL_PAIRS")
    for connect in ("cm", "direct"):
        env = {"ALLRAIL_CONNECT": connect, "ALLRAIL_BOOTSTRAP_TIMEOUT": "4s"}
        # Whoever hears of it from the other says so.
        check(
            hosts,
            "network",
            (*words, "ALLRAIL_RAILS"),
            env,
            codes_elsewhere=("aborted",),
            prefix=addresses(*hosts),
        )


def test_mtus_differ():
    """librdmacm would take one end's for both; without ALLRAIL_CONNECT=cm it is not asked."""
    hosts = (("roce0:roce:10.9.0.1", "verbs"), ("roce1:roce:10.9.0.2:mtu-4096", "verbs"))
    words = ("MTU", "1024", "4096", "rank ", "ALLRAIL_CONNECT")
    env = {"ALLRAIL_CONNECT": "cm"}
    prefix = addresses(*hosts)
    check(hosts, "mismatch", words, env, codes_elsewhere=("aborted",), prefix=prefix)


def test_protocol_versions_differ():
    newer = os.environ["NEXT_VERSION_PROBE"]
    for ranks, odd in ((2, 0), (2, 1), (3, 2)):
        script = 'if [ "$PMIX_RANK" = %d ]; then exec "%s"; fi; exec "$@"' % (odd, newer)
        result = job(
            ranks,
            str(ranks),
            "loop",
            "bytes=64",
            "seconds=60",
            wrapper=("sh", "-c", script, "sh"),
        )
        for rank, one in reports(result, ranks).items():
            expect(one.code == "mismatch", "rank %d: %r" % (rank, one), result)
            other = odd if rank != odd else one.peer
            expect(other != rank and one.peer == other, "rank %d: %r" % (rank, one), result)
            for word in ("rank %d uses" % rank, "rank %d uses" % other, "99.0", "same build"):
                expect(word in one.text, "rank %d says %r: %r" % (rank, word, one), result)
        expect(result.seconds < SOON_S, "soon", result)
        check_clean()


if __name__ == "__main__":
    sys.exit(main(globals()))
