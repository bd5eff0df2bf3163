"""What a terminal shows of a job: behaviours of launcher_test.py."""

import contextlib
import os
import pty
import select
import subprocess
import time

from harness import RUN, environment, expect, run


class Terminal:
    """One for a job's standard error, and for its standard output too if so asked."""

    def __init__(self, command, both=False):
        self.fd, inner = pty.openpty()
        options = {"env": environment(), "stdin": subprocess.PIPE, "stderr": inner}
        options["stdout"] = inner if both else subprocess.PIPE
        self.process = subprocess.Popen(command, **options)
        os.close(inner)
        self.text = ""

    def wait_for(self, text, seconds=20):
        limit = time.monotonic() + seconds
        while text not in self.text:
            expect(time.monotonic() < limit, "%r in %r" % (text, self.text))
            self.read(0.1)

    def read(self, seconds):
        """Whether there may be more."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        part = b""
        with contextlib.suppress(OSError):  # the other side is closed
            part = os.read(self.fd, 4096)
        self.text += part.decode()
        return part != b""

    def finish(self, text=b""):
        out, _ = self.process.communicate(text, timeout=30)
        while self.read(5):
            pass
        os.close(self.fd)
        return out.decode() if out is not None else None


TOLD = "echo told ${ALLRAIL_STDERR_IS_TERMINAL-nothing}; "


def test_progress_on_a_terminal():
    """It is there while its line goes on, and whatever comes next takes its place."""
    script = TOLD + "printf '\\r1 of 2\\r' >&2; read x; printf '\\r2 of 2\\rwell\\nlast' >&2"
    for both in (False, True):
        terminal = Terminal([RUN, "-n", "1", "sh", "-c", script], both)
        terminal.wait_for("1 of 2\r")
        out = terminal.finish(b"go on\n")
        expect("told 1" in (terminal.text if both else out), "of the terminal: %s" % out)
        shown = "1 of 2\r\r\033[K2 of 2\r\r\033[Kwell\r\nlast\r\n"
        expect(terminal.text.endswith(shown), repr(terminal.text))


def test_progress_of_a_rank_with_a_tag():
    script = "printf '\\r%s\\r' $PMIX_RANK >&2; read x || true"
    terminal = Terminal([RUN, "-n", "2", "--tag-output", "sh", "-c", script])
    for rank in range(2):
        terminal.wait_for("[%d] %d\r" % (rank, rank))
    terminal.finish(b"\n")
    expect(terminal.text.endswith("\r\033[K"), "gone in the end: %r" % terminal.text)
    # Lines that end with both are no progress, wherever they are cut.
    script = "printf 'one\\r' >&2; sleep 0.1; printf '\\ntwo\\r\\n\\r\\n' >&2"
    terminal = Terminal([RUN, "-n", "1", "sh", "-c", script])
    terminal.finish()
    expect(terminal.text.replace("\r\r\n", "\n") == "one\ntwo\n\n", repr(terminal.text))


def test_no_progress_without_a_terminal():
    """Ranks are not told of one, and what they write all the same stays in its line."""
    script = TOLD + "printf '\\r1 of 2\\rwell\\n' >&2"
    result = run([RUN, "-n", "1", "sh", "-c", script])
    expect(result.out == "told nothing\n", "told", result)
    expect(result.err == "\r1 of 2\rwell\n", repr(result.err), result)
    # The outer launcher's is a terminal, and that of the inner one is not.
    terminal = Terminal([RUN, "-n", "1", RUN, "-n", "1", "sh", "-c", TOLD])
    out = terminal.finish()
    expect(out == "told nothing\n", repr(out))
