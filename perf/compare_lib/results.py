"""Samples of a comparison, and the figures that are read from them. Pure: nothing is measured."""

import dataclasses
import statistics

from .settings import MEMORY_OF, PEERS, Setting, rail_limit_us

# Both programs define them alike: the mean over ranks of each rank's median, and the largest.
MEAN = "p50"
SLOWEST = "p50_slowest_rank"


@dataclasses.dataclass(frozen=True)
class Spread:
    """The median of the repetitions, and the least and the most of them."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(values) -> "Spread":
        values = list(values)
        return Spread(statistics.median(values), min(values), max(values))


class Samples:
    """Times in microseconds by setting, mode, size, library and repetition."""

    def __init__(
        self, samples: list[dict], collective: str = "allgather", shape: str | None = None
    ):
        self.collective = collective
        self.shape = shape  # of a v-form's blocks
        self._times: dict[tuple, dict[int, dict]] = {}
        for sample in samples:
            key = (
                sample["setting"],
                sample["mode"],
                sample["bytes_per_rank"],
                sample["library"],
            )
            self._times.setdefault(key, {})[sample["repetition"]] = sample["time_us"]

    def times(
        self, setting: str, mode: str, size: int, library: str, which: str = MEAN
    ) -> dict[int, float]:
        found = self._times.get((setting, mode, size, library), {})
        return {repetition: time[which] for repetition, time in found.items()}

    def spread(
        self, setting: str, mode: str, size: int, library: str, which: str = MEAN
    ) -> Spread | None:
        values = self.times(setting, mode, size, library, which).values()
        return Spread.of(values) if values else None

    def sizes(self, setting: str, mode: str) -> list[int]:
        return sorted({key[2] for key in self._times if key[:2] == (setting, mode)})

    def repetitions(self) -> tuple[int, int]:
        """The least and the most that anything was measured: a run may have been cut short."""
        counts = [len(times) for times in self._times.values()]
        return min(counts, default=0), max(counts, default=0)

    def libraries(self, setting: Setting, mode: str) -> list[str]:
        found = {key[3] for key in self._times if key[:2] == (setting.name, mode)}
        return [library for library in setting.libraries if library in found]

    def best_peer(self, setting: Setting, mode: str, size: int, which: str = MEAN) -> str | None:
        """The fastest library that is not ours, by its median."""
        spreads = {
            library: spread
            for library in setting.libraries
            if library in PEERS
            and (spread := self.spread(setting.name, mode, size, library, which))
        }
        return min(spreads, key=lambda library: spreads[library].median, default=None)

    def ratio(
        self, setting: Setting, mode: str, size: int, ours: str, which: str = MEAN
    ) -> Spread | None:
        """The best peer's time over ours, of each repetition: above 1 ours is faster."""
        peer = self.best_peer(setting, mode, size, which)
        if peer is None:
            return None
        theirs = self.times(setting.name, mode, size, peer, which)
        mine = self.times(setting.name, mode, size, ours, which)
        both = sorted(theirs.keys() & mine.keys())
        return Spread.of(theirs[r] / mine[r] for r in both) if both else None

    def share_of_limit(self, setting: Setting, mode: str, size: int, library: str) -> float | None:
        """The rail limit over the median call: 1 is what no algorithm can be better than."""
        limit = rail_limit_us(setting, size, self.collective, self.shape)
        # Ranks that only send, or that receive first, are done long before the call is.
        ends_alike = self.collective == "allgather" or (
            self.collective == "allgatherv" and self.shape == "even"
        )
        which = MEAN if ends_alike else SLOWEST
        spread = self.spread(setting.name, mode, size, library, which)
        return limit / spread.median if limit and spread else None


def summarize_ratios(samples: Samples, settings, modes) -> list[dict]:
    """Every ratio of the tables, for the JSON file."""
    rows = []
    for setting in settings:
        for mode in modes:
            for ours in (lib for lib in samples.libraries(setting, mode) if lib in MEMORY_OF):
                for size in samples.sizes(setting.name, mode):
                    row = {"setting": setting.name, "mode": mode, "bytes_per_rank": size}
                    row |= {"library": ours, "peer": samples.best_peer(setting, mode, size)}
                    for name, which in (("ratio", MEAN), ("ratio_slowest_rank", SLOWEST)):
                        spread = samples.ratio(setting, mode, size, ours, which)
                        row[name] = dataclasses.asdict(spread) if spread else None
                    if row["ratio"]:
                        rows.append(row)
    return rows
