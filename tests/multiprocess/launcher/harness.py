"""Starting jobs, and looking for what they left behind."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid

RUN, PROBE, BEHAVIOUR = [os.path.abspath(path) for path in sys.argv[1:3]] + [sys.argv[3]]
MARK = "ALLRAIL_TEST_MARK=" + uuid.uuid4().hex
PRIVATE = "ALLRAIL_TEST_PRIVATE_TMP"
# What a script or nohup starts ignores Ctrl-C or the end of a session, and so would the jobs.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Skip(Exception):
    pass


def expect(condition, text, result=None):
    if condition:
        return
    if result is not None:
        text += "\n%r" % (result,)
    raise AssertionError(text)


class Result:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def __repr__(self):
        return "code %s after %.2f s\nstdout: %s\nstderr: %s" % (
            self.code,
            self.seconds,
            self.out[-3000:],
            self.err[-3000:],
        )


# hwloc loads these into every process that asks it for the cores: a third of the time of a job that
# only starts and ends, for devices that no test looks at. That of PCI asks a hypervisor, an eighth
# of what tests take that start many jobs. allrail-run leaves them out by itself.
UNUSED_PLUGINS = (
    "hwloc_gl.so,hwloc_levelzero.so,hwloc_opencl.so,hwloc_pci.so,hwloc_xml_libxml.so"
)
# Reserving a segment of the default size for every node is another third. Tests that go by it ask
# for it (DEFAULT_MEMORY, collectives/support.py).
NODE_MEMORY = "16M"


def environment(**extra):
    result = {name: value for name, value in os.environ.items() if not name.startswith("PMIX_")}
    name, value = MARK.split("=")
    result[name] = value
    result.setdefault("HWLOC_PLUGINS_BLACKLIST", UNUSED_PLUGINS)
    result.setdefault("ALLRAIL_NODE_MEMORY", NODE_MEMORY)
    result.update({name: value for name, value in extra.items() if value is not None})
    return result


def start(command, **options):
    options.setdefault("env", environment())
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def finish(process, began, text=None, limit=60):
    out, err = process.communicate(text, timeout=limit)
    code = process.returncode
    return Result(
        code, out.decode(errors="replace"), err.decode(errors="replace"), time.monotonic() - began
    )


def run(command, text=None, limit=60, **options):
    began = time.monotonic()
    if text is not None:
        options["stdin"] = subprocess.PIPE
    return finish(start(command, **options), began, text, limit)


def job(ranks, *arguments, options=(), **others):
    return run([RUN, "-n", str(ranks), *options, PROBE, *arguments], **others)


def expect_within(seconds, attempt):
    """A promise about time: `attempt` returns how long something took, and anything that tells what
    it was. A machine that is busy or stalls is late once; what is broken is late in all tries.
    Returns what the last try did."""
    late = []
    for _ in range(3):
        took, what = attempt()
        if took < seconds:
            return what
        late.append("%.2f s: %r" % (took, what))
    raise AssertionError("more than %s s in three tries:\n%s" % (seconds, "\n".join(late)))


def run_within(seconds, *arguments, **options):
    def attempt():
        result = run(*arguments, **options)
        return result.seconds, result

    return expect_within(seconds, attempt)


def marked_processes():
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open("/proc/%s/environ" % entry, "rb") as file:
                if MARK.encode() not in file.read():
                    continue
            with open("/proc/%s/cmdline" % entry, "rb") as file:
                found.append((int(entry), file.read().replace(b"\0", b" ").decode()))
        except OSError:
            continue
    return found


def helper_process(name):
    """The process of the launcher that has this name."""
    for pid, _ in marked_processes():
        with open("/proc/%d/comm" % pid) as file:
            if file.read().startswith(name):
                return pid
    raise AssertionError("there is no " + name)


def files():
    found = set()
    for folder in ("/tmp", "/dev/shm"):
        for name in os.listdir(folder):
            if os.environ.get(PRIVATE) or may_be_left(name):
                found.add(os.path.join(folder, name))
    return found


def may_be_left(name):
    """In a shared /tmp only names that this job could have made count, and not those of jobs that
    run: other tests do at the same time."""
    if not re.search("allrail|pmix|PMIX|dstore|gds|hwloc", name):
        return False
    launcher = re.match(r"allrail-run-(\d+)-", name)
    return launcher is None or not os.path.exists("/proc/" + launcher.group(1))


def wait_until(condition, what, seconds=10):
    limit = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < limit, "waited %s s for: %s" % (seconds, what))
        time.sleep(0.01)


def wait_for_ranks(count):
    wait_until(
        lambda: sum(1 for _, line in marked_processes() if line.startswith(PROBE)) >= count,
        "%d running ranks" % count,
    )


def read_line(stream, expected):
    line = stream.readline().decode()
    expect(expected in line, "expected %r in the line %r" % (expected, line))
    return line


def enter_private_tmp():
    """Gives this test its own empty /tmp and /dev/shm where the system allows it, so that not a
    single new file escapes the check. Programs under /tmp would vanish with it."""
    if os.environ.get(PRIVATE) is not None:
        return
    os.environ[PRIVATE] = ""
    if any(
        path.startswith("/tmp/") for path in (RUN, PROBE, os.getcwd(), os.path.abspath(sys.argv[0]))
    ):
        return
    prefix = (
        ["unshare", "--mount"]
        if os.geteuid() == 0
        else ["unshare", "--user", "--map-root-user", "--mount"]
    )
    mounts = "mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm"
    try:
        if subprocess.run([*prefix, "sh", "-c", mounts], stderr=subprocess.DEVNULL).returncode != 0:
            return
    except OSError:
        return
    os.environ[PRIVATE] = "1"
    again = [sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]]
    os.execvp(prefix[0], [*prefix, "sh", "-c", mounts + ' && exec "$@"', "sh", *again])
