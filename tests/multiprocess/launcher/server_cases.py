"""The PMIx server of allrail-run, its settings and its end: behaviours of launcher_test.py."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time

from harness import (
    PROBE,
    RUN,
    Skip,
    environment,
    expect,
    finish,
    helper_process,
    marked_processes,
    read_line,
    run,
    start,
    wait_until,
)


def test_server_settings():
    """The server keeps the job's data in its memory, unless the user says otherwise."""
    result = run([RUN, "-n", "1", "env"])
    expect("PMIX_GDS_MODULE=hash\n" in result.out, "a store without files", result)
    result = run([RUN, "-n", "1", "env"], env=environment(PMIX_MCA_gds="^nothing"))
    expect("PMIX_GDS_MODULE=" in result.out, "every store that there is", result)
    expect("PMIX_GDS_MODULE=hash\n" not in result.out, "the user's setting goes before", result)


def tcp_sockets_of(pid):
    """Copies of those of another process."""
    system = ctypes.CDLL(None, use_errno=True)
    pidfd_getfd = 438
    process = os.pidfd_open(pid)
    found = []
    for fd in os.listdir("/proc/%d/fd" % pid):
        if not os.readlink("/proc/%d/fd/%s" % (pid, fd)).startswith("socket:"):
            continue
        copy = system.syscall(pidfd_getfd, process, int(fd), 0)
        if copy < 0:
            raise Skip("no socket of another process: " + os.strerror(ctypes.get_errno()))
        found.append(socket.socket(fileno=copy))
    os.close(process)
    return [one for one in found if one.type == socket.SOCK_STREAM and one.family != socket.AF_UNIX]


def test_server_answers_at_once():
    """No answer waits until the kernel of the rank acknowledges the one before."""
    process = start([RUN, "-n", "1", PROBE, "print:ready\n", "cat"], stdin=subprocess.PIPE)
    began = time.monotonic()
    read_line(process.stdout, "ready")
    server = helper_process("allrail-pmix")
    # The one that accepts, and that of the rank.
    expect(len(tcp_sockets_of(server)) >= 2, "sockets of the server")
    for one in tcp_sockets_of(server):
        expect(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0, "not held back")
    result = finish(process, began, b"")
    expect(result.code == 0, "the job ends", result)


def test_server_killed():
    """The PMIx library may fail: no job hangs for it, and it takes the blame only if it has to."""
    waiting = [RUN, "-n", "2", PROBE, "print:ready\n", "1@sleep:60000", "0@sleep:2000"]
    for go_on in (False, True):
        command = [*waiting[:3], "--keep-going", *waiting[3:]] if go_on else waiting
        command[-2] = "1@sleep:2000" if go_on else command[-2]
        process = start(command)
        began = time.monotonic()
        for _ in range(2):
            read_line(process.stdout, "ready")
        os.kill(helper_process("allrail-pmix"), signal.SIGSEGV)
        result = finish(process, began)
        expect(result.code == (0 if go_on else 1), "go on: %s" % go_on, result)
        expect("the PMIx server (pid " in result.err and "signal 11" in result.err, "why", result)
        expect(result.seconds < 5, "at once", result)


def test_server_killed_with_a_rank():
    """The rank is the cause, in whatever order the two ends are seen."""
    for rank_first in (False, True):
        process = start([RUN, "-n", "3", PROBE, "print:ready\n", "sleep:60000"])
        began = time.monotonic()
        for _ in range(3):
            read_line(process.stdout, "ready")
        ranks = [pid for pid, line in marked_processes() if line.startswith(PROBE)]
        server = helper_process("allrail-pmix")
        if rank_first:
            os.kill(ranks[0], signal.SIGKILL)
            # The launcher ends all others at once, and may have been quicker.
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
        else:
            os.kill(server, signal.SIGKILL)
            os.kill(ranks[0], signal.SIGKILL)
        result = finish(process, began)
        expect(result.code == 137 and "rank " in result.err, "first: %s" % rank_first, result)
        expect("PMIx server" not in result.err, "only the cause is told", result)


def test_server_killed_in_start():
    """Whatever step it dies in: an error of the launcher or a rank, or a job as it would be."""
    for step in range(25):
        process = start([RUN, "-n", "4", PROBE, "--timeout", "3000", "sleep:50"])
        began = time.monotonic()
        time.sleep(0.003 * step)
        try:
            os.kill(helper_process("allrail-pmix"), signal.SIGKILL)
        except (AssertionError, OSError):
            pass
        result = finish(process, began)
        expect(result.code in (0, 1, 5) and result.seconds < 10, "step %d" % step, result)
        expect(result.code == 0 or "PMIx" in result.err, "step %d says why" % step, result)


def has_ended(pid):
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "Z"


def test_server_killed_at_the_end():
    """All ranks end well beside it, before the launcher looks: so does the job."""
    process = start([RUN, "-n", "1", PROBE, "print:ready\n", "cat"], stdin=subprocess.PIPE)
    began = time.monotonic()
    read_line(process.stdout, "ready")
    rank = next(pid for pid, line in marked_processes() if line.startswith(PROBE))
    server = helper_process("allrail-pmix")
    process.send_signal(signal.SIGSTOP)
    os.kill(server, signal.SIGKILL)
    process.stdin.close()
    process.stdin = None
    wait_until(lambda: has_ended(rank) and has_ended(server), "both have ended")
    process.send_signal(signal.SIGCONT)
    result = finish(process, began)
    expect(result.code == 0 and not result.err, "nobody needed it any more", result)
