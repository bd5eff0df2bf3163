"""Where ranks stay that outnumber the cpus that they may run on, and that they wait by yielding."""

import os
import pathlib
import re
import sys

from support import Skip, expect, job, main


def core_of(cpu):
    folder = pathlib.Path("/sys/devices/system/cpu/cpu%d/topology" % cpu)
    try:
        return [(folder / name).read_text() for name in ("physical_package_id", "core_id")]
    except OSError:
        return None


def test_homes():
    """Two ranks for each of two cpus: neighbours stay together, and nobody is bound."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2 or None in map(core_of, cpus) or core_of(cpus[0]) == core_of(cpus[1]):
        raise Skip("needs two cpus of two cores")
    prefix = ("taskset", "--cpu-list", ",".join(map(str, cpus)))
    for setting, ranks, homes in (("on", 4, "0011"), ("on", 2, ""), ("off", 4, "")):
        env = {"ALLRAIL_LOG": "info", "ALLRAIL_HOME_CPUS": setting}
        words = ("grid", "algorithms=auto", "sizes=8,4096", "ports=1", "leaders=1")
        result = job(ranks, "2", *words, env=env, prefix=prefix)
        expect(result.code == 0 and "grid done" in result.out, "ends", result)
        said = dict(re.findall(r"rank (\d+).* is at home on cpu (\d+)", result.err))
        told = {str(rank): str(cpus[int(home)]) for rank, home in enumerate(homes)}
        expect(said == told, "%d ranks, %s: %r" % (ranks, setting, said), result)
        yields = set(re.findall(r"rank (\d+).*: waits yield and do not spin", result.err))
        expected = set(map(str, range(ranks))) if ranks > len(cpus) else set()
        expect(yields == expected, "%d ranks on two cpus yield: %s" % (ranks, yields), result)


if __name__ == "__main__":
    sys.exit(main(globals()))
