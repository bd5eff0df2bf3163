"""Every byte of every collective: grids of shapes and sizes, and random sequences of calls."""

import sys
import time

from support import ALGORITHMS, LONG, Skip, end_job, expect, job, main, seeds, start_job

SIZES = "0,1,7,8,100,4096,16385,70000,300001"


def grid(ranks, nodes, every, first=0, env=None, **words):
    values = {
        "algorithms": ",".join(ALGORITHMS),
        "sizes": SIZES,
        "ports": "1,2,3",
        "leaders": "1,2",
        "every": 1 if LONG else every,
        "first": first,
        **words,
    }
    result = job(ranks, nodes, "grid", *("%s=%s" % pair for pair in values.items()), env=env)
    what = "%d ranks on nodes %s, settings %s, sample %d of every %d" % (
        ranks,
        nodes,
        env,
        first,
        every,
    )
    expect(result.code == 0 and "grid done" in result.out, what, result)
    met = "of %d sizes" % len(values["sizes"].split(","))
    expect(met in result.out, "%s: not %s" % (what, met), result)
    print("%s: %.1f s, %s" % (what, result.seconds, result.out.strip()))


def test_grid_one_node():
    for ranks, every in ((1, 1), (2, 1), (3, 2), (5, 3), (8, 6)):
        grid(ranks, None, every, ranks)


def test_grid_one_rank_per_node():
    for ranks, every in ((2, 1), (3, 2), (4, 3), (5, 4)):
        grid(ranks, str(ranks), every, 2 * ranks)


def test_grid_uneven_nodes():
    for nodes, every in (("3+1+2", 5), ("cyclic:3", 5), ("0,1,0,2,1,1", 5)):
        grid(6, nodes, every, len(nodes))


def test_grid_more_ranks():
    for ranks, nodes, every in ((4, "2", 3), (7, "3", 5), (8, "4", 6), (9, "cyclic:4", 7)):
        grid(ranks, nodes, every, ranks)


def test_grid_many_ranks():
    for ranks, nodes, every in ((12, "5", 11), (16, "4", 13), (16, "cyclic:5", 15)):
        grid(ranks, nodes, every, 3 * ranks, sizes="0,7,100,4096,16385,70000")


def test_grid_local_puts_by_rail():
    for ranks, nodes, every in ((4, None, 3), (4, "2", 4), (6, "3+1+2", 6), (8, "cyclic:4", 9)):
        grid(ranks, nodes, every, ranks, env={"ALLRAIL_LOCAL_PUTS": "rail"})


def test_grid_little_memory():
    for ranks, nodes, every in ((3, None, 3), (4, "4", 4), (6, "0,1,0,2,1,1", 6), (8, "4", 9)):
        grid(ranks, nodes, every, ranks, env={"ALLRAIL_NODE_MEMORY": "1M"})
    # Many slices of one call, more than there are slots.
    grid(
        4,
        "2",
        1,
        env={"ALLRAIL_NODE_MEMORY": "1M"},
        sizes="3000001",
        ports="2",
        leaders="1",
        algorithms="auto,ring,smp-bruck",
    )


def test_grid_small_chunks():
    settings = {
        "ALLRAIL_CHUNK": "4K",
        "ALLRAIL_STRIPE_THRESHOLD": "0",
        "ALLRAIL_RAILS": "127.0.0.1,127.0.0.2,127.0.0.3",
    }
    for ranks, nodes, every in ((3, "3", 3), (6, "3+1+2", 8), (8, "4", 10)):
        grid(ranks, nodes, every, ranks, env=settings)


MAPS = (
    (2, None),
    (2, "2"),
    (3, "2"),
    (4, None),
    (4, "2"),
    (4, "4"),
    (5, "3+1+1"),
    (6, "cyclic:3"),
    (6, "0,1,0,2,1,1"),
    (8, "4"),
    (7, "5"),
    (9, "3"),
)
SETTINGS = (
    {},
    {"ALLRAIL_NODE_MEMORY": "1M"},
    {"ALLRAIL_LOCAL_PUTS": "rail"},
    {"ALLRAIL_NODE_MEMORY": "1M", "ALLRAIL_LOCAL_PUTS": "rail"},
    {"ALLRAIL_CHUNK": "8K", "ALLRAIL_BROADCAST_SEGMENT": "3000"},
)


def sequences(first, step):
    for seed in seeds(20, 400):
        if len(seeds(20, 400)) > 1 and seed % step != first:
            continue
        ranks, nodes = MAPS[seed % len(MAPS)]
        settings = SETTINGS[seed % len(SETTINGS)]
        calls = 400 if LONG else 150
        result = job(
            ranks, nodes, "sequence", "seed=%d" % seed, "calls=%d" % calls, env=settings, limit=100
        )
        what = "seed %d: %d ranks on nodes %s, settings %s" % (seed, ranks, nodes, settings)
        expect(result.code == 0 and "sequence done, seed %d\n" % seed in result.out, what, result)
        print("%s: %.1f s" % (what, result.seconds), flush=True)


def test_sequences_a():
    sequences(0, 2)


def test_sequences_b():
    sequences(1, 2)


def test_ring_wraps_around():
    """Slots and their done counts: many calls through small and large rings without a pause."""
    for nodes in (None, "4"):
        for size in (8, 4096, 60000):
            words = ("loop", "bytes=%d" % size, "seconds=0.7", "least=200")
            result = job(4, nodes, *words, env={"ALLRAIL_NODE_MEMORY": "1M"})
            expect(result.code == 0, "%s bytes on nodes %s" % (size, nodes), result)
            calls = {
                line.split("calls ")[1] for line in result.out.splitlines() if "calls " in line
            }
            same = len(calls) == 1 and int(*calls) >= 200
            expect(same, "the same many calls on all ranks", result)


def test_beyond_four_gigabytes():
    """One block that 32 bits cannot count, and after it one whose place they cannot count. Straight
    between user memory, and with --long through slots in slices, and on one node by reading each
    other and through the segment."""
    with open("/proc/meminfo") as file:
        memory = dict(line.split(":") for line in file)
    available = int(memory["MemAvailable"].split()[0]) * 1024
    if available < 16 << 30:
        raise Skip("16 GiB of free memory are needed, %.1f are there" % (available / 2**30))
    words = ("huge", "first=%d" % (4200 << 20), "bytes=%d" % (300 << 20))
    ways = [("2", "", {})]
    if LONG:
        ways += [("2", "smp-bruck", {}), (None, "", {}), (None, "", {"ALLRAIL_SINGLE_COPY": "off"})]
    for nodes, algorithm, env in ways:
        began = time.monotonic()
        process = start_job(2, nodes, *words, "algorithm=" + algorithm, env=env)
        result = end_job(process, began, 400)
        what = "a block of 4.1 GiB, nodes %s, '%s', %s" % (nodes, algorithm, env)
        expect(result.code == 0 and "huge done" in result.out, what, result)
        print("%s: %.1f s" % (what, result.seconds))


if __name__ == "__main__":
    sys.exit(main(globals()))
