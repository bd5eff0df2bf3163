"""What the launcher makes of signals: behaviours of launcher_test.py."""

import signal
import time

from harness import (
    PROBE,
    RUN,
    expect,
    finish,
    marked_processes,
    read_line,
    start,
    wait_until,
)


def test_signals_forwarded():
    process = start([RUN, "-n", "2", PROBE, "trap:10", "trap:12", "print:ready\n", "sleep:1500"])
    began = time.monotonic()
    for _ in range(2):
        read_line(process.stdout, "ready")
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        process.send_signal(number)
        for _ in range(2):
            read_line(process.stdout, "caught %d" % number)
    result = finish(process, began)
    expect(result.code == 0, "USR1 and USR2 end nothing", result)


def test_interrupt():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = start([RUN, "-n", "3", PROBE, "print:ready\n", "sleep:30000"])
        for _ in range(3):
            read_line(process.stdout, "ready")
        began = time.monotonic()
        process.send_signal(number)
        result = finish(process, began)
        expect(result.code == 128 + number and result.seconds < 1.5, "ends by %s" % number, result)
        expect(len(result.err.splitlines()) == 1, "one line", result)


def test_ignored_signals():
    """What nohup, or a shell that starts it in the background, had ignored ends nothing."""
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)

    def ignore():
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    process = start([RUN, "-n", "2", PROBE, "print:ready\n", "sleep:1000"], preexec_fn=ignore)
    began = time.monotonic()
    for _ in range(2):
        read_line(process.stdout, "ready")
    for number in ignored:
        process.send_signal(number)
    result = finish(process, began)
    expect(result.code == 0 and result.err == "", "it goes on", result)


def test_ignored_child_signal():
    """What a daemon may have ignored: the kernel would tell nobody of ranks that end."""

    def ignore():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    process = start([RUN, "-n", "2", PROBE, "exit:0"], preexec_fn=ignore)
    result = finish(process, time.monotonic())
    expect(result.code == 0 and result.err == "", "it ends", result)
    process = start([RUN, "-n", "2", PROBE, "exit:3"], preexec_fn=ignore)
    result = finish(process, time.monotonic())
    expect(result.code == 3, "it ends with the code of a rank", result)


def test_stubborn_interrupt():
    arguments = [RUN, "-n", "2", PROBE, "trap:2", "print:ready\n", "sleep:30000"]
    for signals, low, high in ((1, 1.8, 4), (2, 0, 1.5)):
        process = start(arguments)
        for _ in range(2):
            read_line(process.stdout, "ready")
        began = time.monotonic()
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
            for _ in range(2 if signals == 1 or _ == 0 else 0):
                read_line(process.stdout, "caught 2")
        result = finish(process, began)
        expect(result.code == 130 and low <= result.seconds < high, "%d SIGINT" % signals, result)


def test_suspend():
    process = start([RUN, "-n", "2", PROBE, "print:ready\n", "sleep:1000"])
    began = time.monotonic()
    for _ in range(2):
        read_line(process.stdout, "ready")
    process.send_signal(signal.SIGTSTP)

    def stopped():
        states = []
        for pid, line in marked_processes():
            with open("/proc/%d/stat" % pid) as file:
                states.append((line, file.read().rsplit(")", 1)[1].split()[0]))
        return sum(state == "T" for _, state in states) == 3

    wait_until(stopped, "launcher and ranks stopped")
    process.send_signal(signal.SIGCONT)
    result = finish(process, began)
    expect(result.code == 0, "goes on after SIGCONT", result)
