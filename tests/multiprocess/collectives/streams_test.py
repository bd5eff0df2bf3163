"""Many small calls of one kind, whose puts leave in batches."""

import sys
import tempfile

from support import expect, job, main


def test_streams():
    """What is held leaves though its sender does not come back, after any number of calls."""
    for kind in ("broadcast", "scatter", "gather"):
        for size in (8, 1024, 5000):
            for calls in (1, 5, 6, 7, 20, 300):
                stream(4, "4", kind=kind, bytes=size, calls=calls)
            stream(6, "3+1+2", kind=kind, bytes=size, calls=101)
        # Sockets are full before anybody reads.
        for size in (8192, 16384):
            stream(4, "4", kind=kind, bytes=size, calls=63, late_ms=100)


def stream(ranks, nodes, **words):
    with tempfile.TemporaryDirectory() as folder:
        values = ["%s=%s" % pair for pair in words.items()]
        result = job(ranks, nodes, "stream", "folder=" + folder, *values)
    what = "stream: %d ranks on nodes %s, %s" % (ranks, nodes, words)
    expect(result.code == 0 and "stream done" in result.out, what, result)


if __name__ == "__main__":
    sys.exit(main(globals()))
