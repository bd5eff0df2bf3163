"""The measuring programs: how they are built in the lab, and started with which settings."""

import os
import pathlib
import subprocess
import sys

from .settings import BARE, MEMORY_OF, TOLD, Setting

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTER = str(ROOT / "tests/lab/cluster")
ENTER = str(ROOT / "tests/lab/enter")
# Open MPI belongs to the lab's root; MPICH and matplotlib are in the packages of this group.
LAB = {**os.environ, "ALLRAIL_LAB_EXTRA": "peers"}
PROGRAMS = "/build/perf-compare"  # as seen inside the lab's root
RAILS = "eth0,eth1"

BUILD_OURS = (
    "[ -e /build/build.ninja ] || meson setup /build -Dtests=true\n"
    "ninja -C /build perf/allrail-bench\n"
)
BUILD_PEERS = f"""
cd perf/compare_lib
for library in openmpi mpich; do
  mpicc.$library -O2 -Wall -o {PROGRAMS}/mpi_collective.$library mpi_collective.c
done
gcc -O2 -Wall -shared -fPIC -o {PROGRAMS}/mpich_yield.so mpich_yield.c -ldl
gcc -O2 -Wall -o {PROGRAMS}/bare_allgather bare_allgather.c
"""
# One line each: what the reports call the libraries.
VERSIONS = """
printf 'gcc %s\\n' "$(gcc -dumpfullversion)"
for package in openmpi-bin mpich libucx0; do
  dpkg-query --show --showformat '${Package} ${Version}\\n' $package
done
"""


class LabError(Exception):
    """The lab cannot be made or entered, or a program does not build in it."""


def in_lab(script: str) -> str:
    command = [ENTER, "bash", "-ec", script]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT, env=LAB
    )
    if done.returncode != 0:
        raise LabError(f"exit code {done.returncode} in the lab of: {script.strip()}")
    return done.stdout


def install_packages() -> None:
    """What the machine itself needs: to make the lab and its hosts."""
    listing = [str(ROOT / "tests/lab/package-list"), "--missing", "compare"]
    missing = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()
    if not missing:
        return
    print(f"perf/compare: installing {' '.join(missing)}", file=sys.stderr, flush=True)
    apt = ["apt-get", "-qq", "-y", "-o", "Dpkg::Use-Pty=0", "--no-install-recommends", "install"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "-qq", "update"], [*apt, *missing]):
        if subprocess.run(command, stdout=2, check=False, env=environment).returncode != 0:
            raise LabError(f"apt-get could not install {' '.join(missing)}; install them")


def build_programs(needs_ours: bool) -> pathlib.Path:
    """Makes the lab if need be, builds in it, and returns the folder of PROGRAMS from outside."""
    install_packages()
    directory = subprocess.run([ENTER, "--build-dir"], capture_output=True, text=True, check=True)
    folder = pathlib.Path(directory.stdout.strip()) / pathlib.PurePath(PROGRAMS).name
    folder.mkdir(exist_ok=True)
    in_lab("exec >&2\n" + (BUILD_OURS if needs_ours else "") + BUILD_PEERS)
    return folder


def read_versions() -> dict[str, str]:
    return dict(line.split(" ", 1) for line in in_lab(VERSIONS).splitlines() if " " in line)


def outnumbers(setting: Setting) -> bool:
    """Whether ranks have to share cores: peers must then yield while they wait."""
    cores = len(os.sched_getaffinity(0))
    return setting.ranks > min(cores, setting.cores or cores)


def environment_of(library: str, setting: Setting) -> dict[str, str]:
    """The peers' best settings for these rails, as far as they are known; ours needs none."""
    many_hosts = setting.hosts > 1
    found: dict[str, str] = {}
    if library in ("openmpi-ob1", TOLD):
        found = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm" + ",tcp" * many_hosts}
        if many_hosts:
            found["OMPI_MCA_btl_tcp_if_include"] = "10.77.0.0/16"
        if library == TOLD:
            for rail, rate in zip(RAILS.split(","), setting.rates):
                found[f"OMPI_MCA_btl_tcp_bandwidth_{rail}"] = str(rate)
    elif library == "openmpi-ucx":
        # Without `any` twice its component refuses transports that are no InfiniBand.
        found = {"OMPI_MCA_pml": "ucx"}
        found |= {"OMPI_MCA_pml_ucx_tls": "any", "OMPI_MCA_pml_ucx_devices": "any"}
        if not many_hosts:
            found["UCX_TLS"] = "self,sysv,posix,cma"
    if library in ("openmpi-ucx", "mpich") and many_hosts:
        found |= {"UCX_TLS": "tcp,self,sysv,posix,cma", "UCX_NET_DEVICES": RAILS}
    if outnumbers(setting):
        if library.startswith("openmpi"):
            found["OMPI_MCA_mpi_yield_when_idle"] = "1"
        elif library == "mpich":
            found["LD_PRELOAD"] = f"{PROGRAMS}/mpich_yield.so"
    return found


def start_words(library: str, setting: Setting) -> list[str]:
    """What starts a program on all hosts; prun and mpich are functions of session.sh."""
    found = environment_of(library, setting)
    ranks = ["-n", str(setting.ranks)]
    if library == "mpich":
        preloaded = found.pop("LD_PRELOAD", "")
        binding = ["-bind-to", "core"] if setting.pinned else []
        exports = [word for name, value in found.items() for word in ("-genv", name, value)]
        return ["mpich", preloaded, *ranks, *binding, *exports]
    exports = [word for name, value in found.items() for word in ("-x", f"{name}={value}")]
    # Else the daemons make a session per host. Linux schedules sessions as groups (autogroup), and
    # a rank that yields gives its core to nobody on another of these hosts that share the cores.
    return ["prun", "--leave-session-attached", *ranks, *exports]


def program_words(
    library: str,
    setting: Setting,
    collective: str,
    mode: str,
    iterations: int,
    warmup: int,
    sizes: list[int],
    shape: str | None = None,
) -> list[str]:
    counts = [str(iterations), str(warmup)]
    if library == BARE:
        waiting = "yield" if outnumbers(setting) else "spin"
        words = [f"{PROGRAMS}/bare_allgather", str(setting.hosts), str(setting.per_host), waiting]
        return [*words, mode, *counts, *(str(size) for size in sizes)]
    if library not in MEMORY_OF:
        program = f"{PROGRAMS}/mpi_collective.{library.split('-')[0]}"
        what = f"{collective}:{shape}" if shape else collective
        return [program, what, mode, *counts, *(str(size) for size in sizes)]
    return [
        *("/build/perf/allrail-bench", collective, *(["--blocks", shape] if shape else [])),
        *("--memory", MEMORY_OF[library], "--mode", mode),
        *("--iterations", counts[0], "--warmup", counts[1]),
        *("--sizes", ",".join(str(size) for size in sizes)),
    ]


def read_congestion() -> str:
    """What TCP does on this machine, and in hosts that are not told otherwise."""
    file = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return file.read_text(encoding="utf-8").strip()


def cluster_words(
    setting: Setting, timeout_s: int, script: list[str], congestion: str | None = None
) -> list[str]:
    words = [CLUSTER, "--hosts", str(setting.hosts), "--per-host", str(setting.per_host)]
    words += ["--timeout", str(timeout_s)]
    if congestion:
        words += ["--congestion", congestion]
    if setting.rates:
        # Bursts of 256k: with less, cutting frames costs more time than the rail does.
        words += ["--rate", f"{setting.rates[0]}mbit", "--rate1", f"{setting.rates[1]}mbit"]
        words += ["--burst", "256k"]
    if setting.pinned:
        words += ["--prterun-options", "--bind-to core --map-by core"]
    if setting.cores:
        # The same cores for all, also where the machine has more.
        cores = sorted(os.sched_getaffinity(0))[: setting.cores]
        words = ["taskset", "--cpu-list", ",".join(str(core) for core in cores), *words]
    return [*words, "--shell-in-hosts", *script]
