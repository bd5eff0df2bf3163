"""What perf/compare measures: settings, the libraries in each, sizes, and how many calls."""

import dataclasses

from .blocks import V_FORMS, busiest_bytes

# What both measuring programs know; the first is measured unless --collective names another.
COLLECTIVES = ("allgather", "gather", "scatter", "broadcast", "alltoall", "barrier", *V_FORMS)
MODES = ("isolated", "streaming")
DEFAULT_SIZES = "8,64,256,1K,4K,16K,64K,256K,1M"
SIZE_RANGES = (("8 B - 1 KiB", 1, 1 << 10), ("4 - 64 KiB", 4 << 10, 64 << 10)) + (
    ("256 KiB - 1 MiB", 256 << 10, 1 << 20),
)

# Ours by the memory that is sent from and received into; a peer has only its user's memory.
MEMORY_OF = {"allrail": "ordinary", "allrail-buffer": "buffer", "allrail-node": "node"}
# Open MPI over its own TCP, and told the rates of its rails, where these differ: nobody else is.
TOLD = "openmpi-told"
PEERS = ("openmpi-ob1", TOLD, "openmpi-ucx", "mpich")
# No library: an allgather written by hand for this lab alone, which shows what the machine allows.
BARE = "bare"
LIBRARIES = (*MEMORY_OF, *PEERS, BARE)
# The kinds of memory that make a difference to an allgather are nothing special to the others, but
# for its v-form, which the hand-written one is not.
ONLY_ALLGATHER = ("allrail-buffer", "allrail-node", BARE)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A machine to measure on. Rates are Mbit/s of eth0 and eth1; None is not shaped."""

    name: str
    title: str
    hosts: int
    per_host: int
    libraries: tuple[str, ...]
    rates: tuple[int, int] | None = None
    pinned: bool = False
    cores: int | None = None  # all ranks share so many; None is all of the machine

    @property
    def ranks(self) -> int:
        return self.hosts * self.per_host


# Everywhere the better one of Open MPI's two paths counts, its own and UCX.
OTHERS = (*(peer for peer in PEERS if peer != TOLD), BARE)
HOST_LIBRARIES = ("allrail", *OTHERS)
SHAPES = (
    ("hosts", "four hosts, rails unshaped", None),
    ("shaped", "four hosts, rails of 2 x 500 Mbit/s", (500, 500)),
    ("unequal", "four hosts, rails of 500 + 250 Mbit/s", (500, 250)),
)
SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("node2", "one node, 2 pinned ranks", 1, 2, (*MEMORY_OF, *OTHERS), pinned=True),
        *(
            Setting(
                f"node{ranks}",
                f"one node, {ranks} ranks on 2 cores",
                1,
                ranks,
                ("allrail", "allrail-node", *OTHERS),
                cores=2,
            )
            for ranks in (4, 8)
        ),
        # As on hosts of their own: nobody waits for a core, however few the machine has.
        Setting("pair", "two hosts, a core for each, rails unshaped", 2, 1, HOST_LIBRARIES),
        *(
            Setting(
                f"{name}-x{per_host}",
                f"{title}, {per_host} rank{'s' * (per_host > 1)} each",
                4,
                per_host,
                (*HOST_LIBRARIES, TOLD) if name == "unequal" else HOST_LIBRARIES,
                rates,
            )
            for name, title, rates in SHAPES
            for per_host in (1, 2)
        ),
    )
}


def parse_bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not number.isdigit():
        raise ValueError(f"{text!r} is no size; use bytes, or with K or M, such as 64K")
    return int(number) * unit


def parse_sizes(text: str) -> list[int]:
    """`LOW:HIGH` in steps of 4, or sizes with commas between them."""
    if ":" not in text:
        return sorted({parse_bytes(size) for size in text.split(",")})
    low, high = (parse_bytes(size) for size in text.split(":"))
    if not 0 < low <= high:
        raise ValueError(f"{text!r} names no sizes")
    sizes = []
    while low < high:
        sizes.append(low)
        low *= 4
    return [*sizes, high]


def format_bytes(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def choose_settings(only: str) -> list[Setting]:
    """By name, or by a part of it; all when nothing is named."""
    parts = [part for part in only.split(",") if part]
    unknown = [part for part in parts if not any(part in name for name in SETTINGS)]
    if unknown:
        raise ValueError(f"no setting has {' or '.join(unknown)} in its name")
    return [
        setting
        for name, setting in SETTINGS.items()
        if not parts or any(part in name for part in parts)
    ]


def rail_limit_us(
    setting: Setting, size: int, collective: str = "allgather", shape: str | None = None
) -> float | None:
    """What the node must send or receive that has most of it, over its rails.

    Blocks of all ranks on the other nodes: of an allgather on every node, of a gather or scatter at
    the root, of an alltoall for each rank of the node; of a broadcast only the data. A barrier has
    none. Of a v-form size is the mean, and the shape says what the blocks have.
    """
    if setting.rates is None or collective == "barrier":
        return None
    bytes_per_us = sum(setting.rates) / 8
    if shape is not None:
        counts = (setting.hosts, setting.per_host)
        return busiest_bytes(collective, shape, size, *counts) / bytes_per_us
    blocks = (setting.hosts - 1) * setting.per_host
    if collective == "alltoall":
        blocks *= setting.per_host
    if collective == "broadcast":
        blocks = 1
    return blocks * size / bytes_per_us


def iterations_for(setting: Setting, mode: str, size: int) -> int:
    """Enough calls for a median, few enough that a launch takes about a second."""
    # Streams are timed in eleven batches with a barrier at both ends: ten calls hide the barriers.
    if mode == "streaming":
        return max(110, iterations_for(setting, "isolated", size))
    limit = rail_limit_us(setting, size)
    if limit is not None:
        fitting = [calls for calls in (20, 60, 300) if calls * limit <= 0.5e6]
        return 2000 if size <= 1024 else max(fitting, default=20)
    if size <= 16 << 10:
        return 5000 if setting.hosts == 1 else 4000
    return 500 if setting.hosts == 1 else 300


def warmup_for(setting: Setting, mode: str, size: int) -> int:
    """A tenth of a second or more until the system has spread the processes over the cores."""
    return iterations_for(setting, mode, size) if setting.rates is None else 5


def group_sizes(
    setting: Setting, mode: str, sizes: list[int], iterations: int | None = None
) -> list[tuple[int, int, list[int]]]:
    """(iterations, warm-up, sizes) for each launch: sizes with the same counts share one."""
    groups: dict[tuple[int, int], list[int]] = {}
    for size in sizes:
        counts = (
            (iterations, min(iterations, warmup_for(setting, mode, size)))
            if iterations
            else (iterations_for(setting, mode, size), warmup_for(setting, mode, size))
        )
        groups.setdefault(counts, []).append(size)
    return [(calls, warmup, chosen) for (calls, warmup), chosen in groups.items()]
