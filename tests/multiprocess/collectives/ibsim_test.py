"""Leaf switches of fat trees that ibsim simulates, as the real ibnetdiscover finds them.

ibsim answers the management datagrams of a fabric that is a text file, and libumad2sim takes the
place of the kernel in ibnetdiscover: so what Allrail reads is what it would read on such cables.
"""

import contextlib
import glob
import os
import re
import shutil
import subprocess
import sys

from support import Skip, environment, expect, job, main, start, wait_until
from switches_test import HOST, folder, info

DISCOVER = shutil.which("ibnetdiscover") or "/usr/sbin/ibnetdiscover"
LIBRARY = "/usr/lib/*/umad2sim/libumad2sim.so"
PACKAGES = "ibsim-utils, libumad2sim0 and infiniband-diags"


class Net:
    """Switches and hosts with the cables between them, as a net file of ibsim."""

    def __init__(self):
        self.ports = {}  # of every device: the cables, in port order

    def cable(self, one, other):
        mine, theirs = self.ports.setdefault(one, []), self.ports.setdefault(other, [])
        mine.append((other, len(theirs) + 1))
        theirs.append((one, len(mine)))

    def text(self):
        lines = []
        for name, cables in self.ports.items():
            kind = "Hca" if name.startswith(HOST) else "Switch"
            lines.append('%s\t%d "%s"' % (kind, len(cables) if kind == "Hca" else 36, name))
            for port, (other, its_port) in enumerate(cables, 1):
                lines.append('[%d]\t"%s"[%d]' % (port, other, its_port))
            lines.append("")
        return "\n".join(lines)


def host(node):
    return "%s-%d" % (HOST, node)


def as_virtual(listing):
    """ibsim keeps the sign for itself with which Allrail numbers the nodes of one host."""
    return re.sub('"%s-([0-9]+)' % re.escape(HOST), r'"%s#\1' % HOST, listing)


def is_listening(simulator, name):
    if simulator.poll() is not None:
        expect(False, "ibsim ended: %s" % b"".join(simulator.communicate()).decode())
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as sockets:
        return "@%s:ctl" % name in sockets.read()


@contextlib.contextmanager
def fabric(net):
    """Runs ibsim on it; the value is what programs on host 0 need in their environment."""
    libraries = glob.glob(LIBRARY)
    if not libraries or shutil.which("ibsim") is None or not os.path.exists(DISCOVER):
        if os.geteuid() != 0:
            raise Skip("the packages %s are not installed" % PACKAGES)
        expect(False, "install %s, which are in tests/lab/packages" % PACKAGES)
    name = "allrail-%d" % os.getpid()  # of sockets that are no files
    with folder() as (path, write):
        simulator = start(
            ["ibsim", "-s", write("net", net.text())],
            env=environment(IBSIM_SOCKNAME=name),
            stdin=subprocess.PIPE,  # it ends with its console
        )
        try:
            wait_until(lambda: is_listening(simulator, name), "ibsim listens", 20)
            yield path, write, {"IBSIM_SOCKNAME": name, "LD_PRELOAD": libraries[0]}
        finally:
            simulator.kill()
            simulator.communicate()


def check_leaves(text, expected, what):
    found = {
        name: nodes.split()
        for name, nodes in re.findall(r"^  \S+ \((\S+)\): nodes (.*)$", text, re.MULTILINE)
    }
    expect(found == expected, "%s: leaves %s, not %s\n%s" % (what, found, expected, text))


def check_tree(net, leaf_of):
    """`leaf_of`: the name of the switch that every host hangs on."""
    expected = {}
    for node, leaf in enumerate(leaf_of):
        expected.setdefault(leaf, []).append(str(node))
    nodes = str(len(leaf_of))
    with fabric(net) as (path, write, variables):
        listing = subprocess.run(
            [DISCOVER, "-g"],
            env=environment(SIM_HOST=host(0), **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
        ).stdout.decode()
        for name in net.ports:
            expect('"%s"' % name in listing, "%s is in the listing:\n%s" % (name, listing))
        saved = write("listing", as_virtual(listing))
        check_leaves(info(len(leaf_of), nodes, saved), expected, "a saved listing")
        # Allrail runs this one, on every node.
        settings = " ".join("%s=%s" % pair for pair in variables.items())
        script = (
            '#!/bin/sh\necho "$@" >>%s/runs\nlisting=$(env %s SIM_HOST=%s %s "$@") || exit'
            "\nprintf '%%s\\n' \"$listing\" | sed 's/\"%s-\\([0-9]*\\)/\"%s#\\1/'\n"
        )
        words = (path, settings, host(0), DISCOVER, HOST, HOST)
        write("ibnetdiscover", script % words, 0o755)
        os.environ["PATH"] = path + ":" + os.environ["PATH"]
        check_leaves(info(len(leaf_of), nodes, "ibnetdiscover"), expected, "it runs ibnetdiscover")
        result = job(
            len(leaf_of),
            nodes,
            "rooted-grid",
            "algorithms=topology,topology-direct",
            "every=5",
            env={"ALLRAIL_SWITCH_MAP": "ibnetdiscover"},
        )
        expect(result.code == 0 and "rooted-grid done" in result.out, "gathers over it", result)
        expect("switch" not in result.err, "nothing to warn of", result)
        with open(os.path.join(path, "runs"), encoding="utf-8") as runs:
            calls = runs.read().split()
        expect(calls == ["-g"] * 2 * len(leaf_of), "it ran once per node and job: %s" % calls)


def test_ibsim_two_leaves():
    """Two leaves under two spines, with two cables to each, and hosts that alternate."""
    net = Net()
    for leaf in ("leaf-a", "leaf-b"):
        for spine in ("spine-0", "spine-1", "spine-0", "spine-1"):
            net.cable(leaf, spine)
    leaf_of = ["leaf-b", "leaf-a", "leaf-b", "leaf-a", "leaf-a"]
    for node, leaf in enumerate(leaf_of):
        net.cable(host(node), leaf)
    check_tree(net, leaf_of)


def test_ibsim_three_levels():
    """Two pods of two leaves and two switches above them, and two switches above the pods."""
    net = Net()
    for pod in range(2):
        for above in range(2):
            for core in range(2):
                net.cable("core-%d" % core, "pod-%d-%d" % (pod, above))
            for leaf in range(2):
                net.cable("pod-%d-%d" % (pod, above), "leaf-%d-%d" % (pod, leaf))
    leaf_of = ["leaf-1-1", "leaf-0-0", "leaf-1-0", "leaf-0-0", "leaf-0-1", "leaf-1-1", "leaf-1-0"]
    for node, leaf in enumerate(leaf_of):
        net.cable(host(node), leaf)
    check_tree(net, leaf_of)


if __name__ == "__main__":
    sys.exit(main(globals()))
