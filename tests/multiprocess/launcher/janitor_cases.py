"""What the janitor of allrail-run takes away: behaviours of launcher_test.py."""

import contextlib
import glob
import os
import struct
import subprocess
import sys
import time

from harness import (
    PROBE,
    RUN,
    environment,
    expect,
    helper_process,
    marked_processes,
    read_line,
    start,
    wait_until,
)

# Its main thread ends and another one does not: such a process is on its way, and not dead.
ENDING = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def state_of(pid):
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rsplit(")", 1)[1].split()


@contextlib.contextmanager
def name_of_an_ending_process():
    """The process, and a name in /dev/shm that it seems to have made."""
    process = start([sys.executable, "-c", ENDING])
    read_line(process.stdout, "ready")
    wait_until(lambda: state_of(process.pid)[0] == "Z", "the end of its main thread")
    identity = struct.pack(
        "<qQQ", process.pid, int(state_of(process.pid)[19]), os.stat("/proc/self/ns/pid").st_ino
    )
    path = "/dev/shm/allrail-%d-%016x" % (os.geteuid(), process.pid)
    with open(path, "wb") as file:
        file.write(identity.ljust(4096, b"\0"))
    try:
        yield process, path
    finally:
        process.kill()
        process.communicate()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def test_janitor_awaits_who_is_ending():
    """A rank that was killed may take a while to give back its memory; its names go then."""
    with name_of_an_ending_process() as (ending, path):
        launcher = start([RUN, "-n", "1", PROBE, "print:ready\n", "sleep:60000"])
        read_line(launcher.stdout, "ready")
        janitor = helper_process("allrail-janitor")
        launcher.kill()
        launcher.communicate()
        folder = "/tmp/allrail-run-%d-*" % launcher.pid
        wait_until(lambda: not glob.glob(folder), "the end of its other work")
        time.sleep(0.1)  # one that does not wait ends meanwhile
        expect(os.path.exists("/proc/%d/exe" % janitor), "the janitor waits")
        expect(os.path.exists(path), "a process that is not dead keeps its name")
        ending.kill()
        wait_until(lambda: not os.path.exists(path), "the end of the name", 5)
        ending.communicate()
        wait_until(lambda: not marked_processes(), "the end of the janitor", 5)


def test_janitor_leaves_names_of_the_living():
    """Of other jobs, which may run at the same time."""
    path = "/dev/shm/allrail-%d-%016x" % (os.geteuid(), os.getpid())
    start_time, namespace = int(state_of(os.getpid())[19]), os.stat("/proc/self/ns/pid").st_ino
    with open(path, "wb") as file:
        file.write(struct.pack("<qQQ", os.getpid(), start_time, namespace).ljust(4096, b"\0"))
    result = subprocess.run([RUN, "-n", "2", "true"], env=environment(), timeout=60)
    expect(result.returncode == 0 and os.path.exists(path), "the name of a living process")
    os.unlink(path)
