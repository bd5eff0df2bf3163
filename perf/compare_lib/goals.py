"""The goals beside the peers, and whether measurements reach them. Pure."""

import dataclasses

from .blocks import V_FORMS
from .results import Samples
from .settings import DEFAULT_SIZES, PEERS, SETTINGS, SIZE_RANGES, format_bytes, parse_sizes


@dataclasses.dataclass(frozen=True)
class Goal:
    """What one range of sizes must reach; the worst of its sizes and settings decides."""

    least: float  # of the best peer's time over ours, or of the rail limit over our time
    mode: str = "isolated"
    least_at: tuple[tuple[int, float], ...] = ()  # sizes whose goal is another one
    of_limit: bool = False

    def least_for(self, size: int) -> float:
        return dict(self.least_at).get(size, self.least)

    def text(self) -> str:
        if self.of_limit:
            return f">= {100 * self.least:.0f} % of the rail limit"
        others = "".join(f", {least:g} at {format_bytes(size)}" for size, least in self.least_at)
        return f">= {self.least:g}{others}" + (", back to back" * (self.mode == "streaming"))


@dataclasses.dataclass(frozen=True)
class GoalRow:
    title: str
    settings: tuple[str, ...]
    library: str
    goals: tuple[Goal | None, ...]  # one for each of SIZE_RANGES; None: none


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The worst measured figure of a cell; reached is None where sizes are not measured."""

    goal: Goal
    reached: bool | None
    worst: float | None = None
    size: int = 0
    setting: str = ""
    missing: tuple[str, ...] = ()


# On shaped rails small messages wait for nobody and large ones for the rails alone.
_SHAPED = (Goal(1.2), Goal(1.0, "streaming"), Goal(0.93, of_limit=True))
GOALS = (
    GoalRow(
        "2 pinned ranks, private buffers", ("node2",), "allrail", (Goal(1.7), Goal(1.4), Goal(1.15))
    ),
    GoalRow(
        "2 pinned ranks, `Buffer`", ("node2",), "allrail-buffer", (Goal(1.7), Goal(1.6), Goal(1.15))
    ),
    GoalRow(
        "2 pinned ranks, `NodeBuffer`", ("node2",), "allrail-node", (Goal(1.0), Goal(2), Goal(2.2))
    ),
    GoalRow(
        "8 ranks on 2 cores, private", ("node8",), "allrail", (Goal(2.5), Goal(1.8), Goal(1.3))
    ),
    GoalRow(
        "8 ranks on 2 cores, `NodeBuffer`",
        ("node8",),
        "allrail-node",
        (Goal(1.5), Goal(6, least_at=((4096, 4),)), Goal(7)),
    ),
    GoalRow(
        "four hosts x 1, unshaped", ("hosts-x1",), "allrail", (Goal(1.3), Goal(1.2), Goal(1.1))
    ),
    GoalRow(
        "four hosts x 2, unshaped", ("hosts-x2",), "allrail", (Goal(1.5), Goal(1.5), Goal(1.6))
    ),
    GoalRow(
        "four hosts x 1 and x 2, 2 x 500 Mbit/s", ("shaped-x1", "shaped-x2"), "allrail", _SHAPED
    ),
    GoalRow(
        "four hosts x 1 and x 2, 500 + 250 Mbit/s, rates not told",
        ("unequal-x1", "unequal-x2"),
        "allrail",
        _SHAPED,
    ),
)

# Of the other collectives: beside the peers back to back, and large ones by the rail limit too.
_NO_SLOWER = (Goal(1.0, "streaming"),) * 3
_OTHERS = (
    ("four hosts x 1, unshaped", ("hosts-x1",), False),
    ("four hosts x 2, unshaped", ("hosts-x2",), False),
    ("four hosts x 1 and x 2, 2 x 500 Mbit/s", ("shaped-x1", "shaped-x2"), True),
    (
        "four hosts x 1 and x 2, 500 + 250 Mbit/s, rates not told",
        ("unequal-x1", "unequal-x2"),
        True,
    ),
)


def _goals_with_limit(share: float) -> tuple[GoalRow, ...]:
    of_limit = (None, None, Goal(share, of_limit=True))
    beside = [GoalRow(title, names, "allrail", _NO_SLOWER) for title, names, _ in _OTHERS]
    limited = [
        GoalRow(f"{title}, slowest rank", names, "allrail", of_limit)
        for title, names, is_shaped in _OTHERS
        if is_shaped
    ]
    return (*beside, *limited)


GOALS_OF = {
    "allgather": GOALS,
    "gather": _goals_with_limit(0.94),
    "scatter": _goals_with_limit(0.94),
    "broadcast": _goals_with_limit(0.85),
    "alltoall": _goals_with_limit(0.90),
    "barrier": (),
    **{name: () for name in V_FORMS},
}


def measured_figure(samples: Samples, goal: Goal, setting: str, library: str, size: int):
    where = SETTINGS[setting]
    if goal.of_limit:
        return samples.share_of_limit(where, goal.mode, size, library)
    ratio = samples.ratio(where, goal.mode, size, library)
    return ratio.median if ratio else None


def missing_peers(samples: Samples, goal: Goal, setting: str, size: int) -> list[str]:
    """Who might be the best one, and was not measured."""
    if goal.of_limit:
        return []
    return [
        f"{peer} of {format_bytes(size)} in {setting}"
        for peer in SETTINGS[setting].libraries
        if peer in PEERS and not samples.times(setting, goal.mode, size, peer)
    ]


def judge(samples: Samples, row: GoalRow, goal: Goal, low: int, high: int) -> Outcome:
    """One cell: every size of the range in every setting of the row."""
    found, missing = [], []
    for setting in row.settings:
        measured = set(samples.sizes(setting, goal.mode))
        for size in sorted(measured | set(parse_sizes(DEFAULT_SIZES))):
            if not low <= size <= high:
                continue
            figure = measured_figure(samples, goal, setting, row.library, size)
            if figure is None:
                missing.append(f"{format_bytes(size)} in {setting}")
            else:
                missing += missing_peers(samples, goal, setting, size)
                found.append((figure / goal.least_for(size), figure, size, setting))
    if not found:
        return Outcome(goal, None, missing=tuple(missing))
    share, figure, size, setting = min(found)
    reached = False if share < 1 else None if missing else True
    return Outcome(goal, reached, figure, size, setting, tuple(missing))


def judge_all(samples: Samples) -> list[tuple[GoalRow, list[Outcome | None]]]:
    """None where a range has no goal."""
    return [
        (
            row,
            [
                goal and judge(samples, row, goal, low, high)
                for goal, (_, low, high) in zip(row.goals, SIZE_RANGES)
            ],
        )
        for row in GOALS_OF[samples.collective]
    ]


def summarize_goals(samples: Samples) -> list[dict]:
    """Every cell of the goal table, for the JSON file."""
    return [
        {
            "row": row.title,
            "sizes": name,
            "goal": outcome.goal.text(),
            "reached": outcome.reached,
            "worst": outcome.worst,
            "bytes_per_rank": outcome.size or None,
            "setting": outcome.setting or None,
            "missing": list(outcome.missing),
        }
        for row, outcomes in judge_all(samples)
        for outcome, (name, _, _) in zip(outcomes, SIZE_RANGES)
        if outcome
    ]
