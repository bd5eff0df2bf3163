"""Wrong calls, wrong settings and missing resources: each a clear Error on every rank, soon."""

import os
import sys

from support import (
    DEFAULT_MEMORY,
    LONG,
    PROBE,
    RUN,
    Skip,
    check_clean,
    environment,
    expect,
    expect_within,
    in_namespaces,
    job,
    jobs_at_once,
    main,
    part_of,
    reports,
)
from harness import run

SOON_S = 1.0  # what is promised to whoever makes a mistake


def names_of(mode, every):
    """`every`: of what is made alike of every collective."""
    result = job(1, None, mode, "every=%d" % every)
    expect(result.code == 0, "the list of cases", result)
    return result.out.split()


def check_case(*arguments, **options):
    """Returns what ranks said in the last try."""

    def attempt():
        tried = try_case(*arguments, **options)
        # Not of a rank that was told while it was still in the call before.
        return max((one.after or 0 for one in tried[0].values()), default=0), tried

    return expect_within(SOON_S, attempt)


def try_case(mode, name, ranks, nodes, odd, before=3, every=False):
    what = "%s %s, rank %d of %d on nodes %s, after %d calls" % (
        mode,
        name,
        odd,
        ranks,
        nodes,
        before,
    )
    words = ("case=" + name, "rank=%d" % odd, "before=%d" % before, "every=%d" % every)
    result = job(ranks, nodes, mode, *words, limit=20)
    found = reports(result, ranks)
    for rank, one in found.items():
        expect(one.code is not None, "rank %d: %r; %s" % (rank, one, what), result)
        if one.after is None:
            continue  # told while it was still in the call before
        expect(len(one.text) > 20, "a sentence: rank %d: %r; %s" % (rank, one, what), result)
        expect(
            one.again in ("aborted", "invalid-argument", "mismatch"),
            "dead afterwards: rank %d: %r; %s" % (rank, one, what),
            result,
        )
    check_clean()
    return found, what, result


def check_local_cases(nodes, part=0, parts=1, every=False):
    for name in part_of(names_of("bad", every), part, parts):
        found, what, result = check_case("bad", name, 4, nodes, 1, every=every)
        expect(found[1].code == "invalid-argument", "%r; %s" % (found[1], what), result)
        for rank in (0, 2, 3):
            one = found[rank]
            expect(
                one.code == "aborted" and "rank 1" in one.text,
                "rank %d: %r; %s" % (rank, one, what),
                result,
            )
            expect(
                found[1].text in one.text,
                "the same reason: rank %d: %r; %s" % (rank, one, what),
                result,
            )


def test_wrong_arguments_one_node():
    check_local_cases(None, 0, 3)


def test_wrong_arguments_four_nodes():
    check_local_cases("4", 1, 3)


def test_wrong_arguments_and_left():
    """The error of who calls wrongly unwinds and destroys the communicator: that is no leaving."""
    words = ("case=receive-size", "rank=1", "leaves=1", "late=0")
    for algorithm in ("ring", "direct"):
        env = {"ALLRAIL_ALGORITHM_ALLGATHER": algorithm}
        result = job(4, "2", "bad", *words, limit=20, env=env)
        found = reports(result, 4)
        expect(found[1].code == "invalid-argument", repr(found[1]), result)
        for rank in (0, 2, 3):
            one = found[rank]
            told = one.code == "aborted" and found[1].text in one.text
            expect(told, "rank %d: %r" % (rank, one), result)


def test_wrong_arguments_everywhere():
    """The same mistake on all ranks, as a program makes it."""
    for name in part_of(names_of("bad", False), 2, 3):
        found, what, result = check_case("bad", name, 3, "2", -1)
        for rank, one in found.items():
            expect(
                one.code in ("invalid-argument", "aborted"),
                "rank %d: %r; %s" % (rank, one, what),
                result,
            )


def test_wrong_roots():
    check_local_cases("2", every=True)


def check_mismatches(ranks, nodes, odd, before, part=0, parts=1, every=False, large=False):
    names = [name for name in names_of("mismatch", every) if name.startswith("large-") == large]
    for name in part_of(names, part, parts):
        if name == "leaders" and nodes not in (None, "2"):
            continue  # more leaders than there are ranks on a node mean the same as one
        found, what, result = check_case("mismatch", name, ranks, nodes, odd, before, every)
        codes = {one.code for one in found.values()}
        expect(codes == {"mismatch"}, "%s; %s" % (codes, what), result)
        expect(
            any("every rank must make the same" in one.text for one in found.values()), what, result
        )
        expect(all("rank" in one.text for one in found.values()), "names ranks: " + what, result)


def test_mismatch_one_node():
    check_mismatches(4, None, 1, 3)


def test_mismatch_four_nodes():
    check_mismatches(4, "4", 2, 3, 1, 2)


def test_mismatch_two_nodes():
    check_mismatches(6, "2", 4, 0, 0, 2)


def test_mismatch_many_calls():
    check_mismatches(5, "3+1+1", 0, 40, 1, 2)


def test_mismatch_of_every_collective():
    check_mismatches(4, "2+1+1", 1, 3, 0, 2, every=True)


def test_mismatch_of_large_collectives():
    """Blocks that go straight between user buffers have no header; their tokens have."""
    for odd in (0, 2):
        check_mismatches(3, "3", odd, 3, every=True, large=True)
    check_mismatches(4, "2", 3, 4, every=True, large=True)


def test_mismatch_of_every_collective_one_node():
    check_mismatches(3, None, 2, 0, 1, 2, every=True)


COLLECTIVES = (
    "barrier",
    "allgather",
    "allgatherv",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "broadcast",
    "alltoall",
    "alltoallv",
)


def test_two_threads():
    # The jobs sleep most of the time, so they run side by side.
    cases = [(nodes, name) for nodes in (None, "3") for name in COLLECTIVES]
    words = [(nodes, "two-threads", "collective=" + name) for nodes, name in cases]
    for (_, name), result in zip(cases, jobs_at_once(3, words)):
        found = reports(result, 3)
        expect(
            found[0].code == "invalid-argument" and "two threads" in found[0].text,
            "%r" % found[0],
            result,
        )
        expect(
            result.code == 0 and result.out.count(" goes on") == 3,
            "and nothing else happens",
            result,
        )


# ---- settings ----


def check_start(code, words, ranks=3, nodes=None, env=None, **others):
    """No rank starts: each says why."""

    def attempt():
        what = "%s, nodes %s, ranks %d" % (env, nodes, ranks)
        result = job(ranks, nodes, "loop", "bytes=64", "seconds=1", env=env, **others)
        found = reports(result, ranks)
        for rank, one in found.items():
            text = "rank %d: %r; %s" % (rank, one, what)
            expect(one.code == code, text, result)
            for word in words:
                expect(word in one.text, "says %r: %s" % (word, text), result)
        check_clean()
        return max(one.after for one in found.values()), what

    expect_within(SOON_S, attempt)


def test_bad_settings():
    check_start("bad-configuration", ("nosuch0", "ALLRAIL_RAILS"), env={"ALLRAIL_RAILS": "nosuch0"})
    check_start(
        "bad-configuration", ("192.0.2.77", "ALLRAIL_RAILS"), env={"ALLRAIL_RAILS": "192.0.2.77"}
    )
    check_start("bad-configuration", ("ALLRAIL_RAILS", "twice"), env={"ALLRAIL_RAILS": "lo,lo"})
    check_start("bad-configuration", ("ALLRAIL_PORTS", "many"), env={"ALLRAIL_PORTS": "many"})
    check_start(
        "bad-configuration", ("ALLRAIL_NODE_MEMORY", "1K"), env={"ALLRAIL_NODE_MEMORY": "1K"}
    )
    check_start("bad-configuration", ("ALLRAIL_TIMEOUT", "soon"), env={"ALLRAIL_TIMEOUT": "soon"})
    check_start("bad-configuration", ("ALLRAIL_NODES",), env={"ALLRAIL_NODES": "7"})
    for nodes in ("3+1+2", "0,1", "cyclic:4", "1+0+2", "0,2,0", "x", "cyclic:0"):
        check_start("bad-configuration", ("ALLRAIL_NODES", nodes), env={"ALLRAIL_NODES": nodes})
    result = job(2, None, "loop", "bytes=64", "seconds=0.1", env={"ALLRAIL_RALIS": "lo"})
    expect(
        result.code == 0 and "ALLRAIL_RALIS" in result.err,
        "an unknown setting is a warning",
        result,
    )


def test_bad_algorithm_setting():
    result = job(
        3, None, "loop", "bytes=64", "seconds=1", env={"ALLRAIL_ALGORITHM_ALLGATHER": "quickest"}
    )
    for rank, one in reports(result, 3).items():
        expect(
            one.code in ("bad-configuration", "invalid-argument", "aborted")
            and "quickest" in one.text
            and "smp-ring" in one.text,
            "rank %d: %r" % (rank, one),
            result,
        )


def test_settings_differ():
    script = 'if [ "$PMIX_RANK" = 1 ]; then export %s; fi; exec "$@"'
    for setting in (
        "ALLRAIL_PORTS=3",
        "ALLRAIL_NODES=3",
        "ALLRAIL_CHUNK=8K",
        "ALLRAIL_NODE_MEMORY=2M",
        "ALLRAIL_ALGORITHM_ALLGATHER=ring",
    ):
        check_start(
            "mismatch",
            ("rank 0", "rank 1", setting.split("=")[0]),
            env={"ALLRAIL_NODES": None},
            wrapper=("sh", "-c", script % setting, "sh"),
        )


def test_rails_differ():
    """A number of rails that is not the same everywhere is allowed: the smaller one counts."""
    script = 'if [ "$PMIX_RANK" = 1 ]; then export ALLRAIL_RAILS=127.0.0.1; fi; exec "$@"'
    result = job(3, "3", "loop", "bytes=100000", "seconds=1", wrapper=("sh", "-c", script, "sh"))
    expect(result.code == 0, "one rail here, two there", result)


def test_rail_down():
    script = (
        "ip link set lo up && ip link add down0 type veth peer name down1"
        " && ip address add 10.77.0.1/24 dev down0"
    )
    prefix = in_namespaces(script, "--net")
    check_start(
        "bad-configuration", ("down0", "down"), env={"ALLRAIL_RAILS": "down0"}, prefix=prefix
    )
    check_start(
        "bad-configuration",
        ("down0", "down"),
        env={"ALLRAIL_RAILS": "127.0.0.1,down0"},
        prefix=prefix,
    )


def test_shared_memory_full():
    """Every rank says the same, also those that do not make a segment or are on other hosts."""
    words = ("bytes left in /dev/shm", "enlarge /dev/shm", "ALLRAIL_NODE_MEMORY")
    prefix = in_namespaces("mount -t tmpfs -o size=900k none /dev/shm", "--mount")
    for ranks, nodes in ((4, "2"), (3, None), (2, "2")):
        check_start("resource-limit", ("(rank 0)", *words), ranks, nodes, prefix=prefix)
    # A rank with a /dev/shm of its own is on a host of its own.
    small = 'mount -t tmpfs -o size=900k none /dev/shm && exec "$@"'
    script = (
        'if [ "$PMIX_RANK" = 2 ]; then exec unshare --mount sh -c \'%s\' sh "$@"; fi; exec "$@"'
    )
    wrapper = ("sh", "-c", script % small, "sh")
    check_start("resource-limit", ("(rank 2)", *words), 4, wrapper=wrapper)


def test_shared_memory_small():
    # A whole segment is within the least node memory.
    for size, ranks, nodes in (
        ("64m", 4, "2"),
        ("64m", 4, None),
        ("64m", 8, "8"),
        ("1m", 4, None),
    ):
        prefix = in_namespaces("mount -t tmpfs -o size=%s none /dev/shm" % size, "--mount")
        result = job(
            ranks,
            nodes,
            "grid",
            "algorithms=auto,ring,smp-bruck",
            "sizes=8,5000,1000001",
            prefix=prefix,
            env=DEFAULT_MEMORY,
        )
        what = "slots in %s, nodes %s" % (size, nodes)
        expect(result.code == 0 and "grid done" in result.out, what, result)


def test_few_descriptors():
    """Too few open files: an Error, or it works; never a hang or a crash.

    With 24 the ranks start and cannot connect, which takes half a minute to give up.
    """
    for limit in (10, 16, 24, 40) if LONG else (10, 16, 40):
        script = 'ulimit -n %d; exec "$@"' % limit
        result = job(
            4, "4", "loop", "bytes=64", "seconds=0.2", wrapper=("sh", "-c", script, "sh"), limit=40
        )
        for rank, one in reports(result, 4).items():
            done = any(" done" in line for line in one.lines)
            expect(
                done or one.code is not None, "rank %d, %d files: %r" % (rank, limit, one), result
            )
            if one.code == "resource-limit":
                told = "may have %d:" % limit in one.text and "ulimit -n" in one.text
                expect(told, "rank %d, %d files: %r" % (rank, limit, one), result)
        print(
            "%d files: %s, %.1f s"
            % (limit, {one.code for one in reports(result, 4).values()}, result.seconds)
        )
        check_clean()


def test_no_server():
    lines = run([RUN, "-n", "2", "env"]).out.splitlines()
    stale = dict(line.split("=", 1) for line in lines if line.startswith("PMIX_"))
    result = run([PROBE, "loop", "bytes=64", "seconds=0.1"], env=environment(**stale), limit=40)
    expect(
        result.code == 42 and " error: bootstrap " in result.out,
        "stale variables are an error",
        result,
    )
    result = run([PROBE, "loop", "bytes=64", "seconds=0.1"], env=environment(), limit=40)
    expect(
        result.code == 0 and "rank 0 done" in result.out, "no variables: a job of one rank", result
    )


if __name__ == "__main__":
    sys.exit(main(globals()))
