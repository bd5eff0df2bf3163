"""The report of a comparison as Markdown. Pure: text out of samples."""

import shlex

from .goals import GOALS_OF, Outcome, judge_all
from .results import MEAN, SLOWEST, Samples, Spread
from .settings import (
    MEMORY_OF,
    MODES,
    SETTINGS,
    SIZE_RANGES,
    Setting,
    format_bytes,
    rail_limit_us,
)

HOW_BLOCKS_DIFFER = {
    "even": "all have the same.",
    "ramp": "of n blocks number r has (2r + 1) / n times the mean.",
    "single": "one of n blocks, number n / 2, has all bytes.",
}
HOW_TO_READ = (
    "Times are microseconds: the mean over the ranks of each rank's median call, of that the "
    "median of the repetitions (and the least and the most), then the slowest rank's median call.",
    "isolated: each call after a barrier. streaming: calls back to back, ten or more between "
    "barriers.",
    "allrail sends from and receives into ordinary memory, allrail-buffer `Buffer`s, allrail-node "
    "receives into a `NodeBuffer`.",
    "Ratios are the best peer's time over Allrail's in the same repetition, median (least - most): "
    "above 1 Allrail is faster. The best peer is the one with the least median at that size.",
    "Rail limit: what the busiest node must receive or send / sum of the rail rates; for an "
    "allgather (nodes - 1) x ranks per node x bytes. Headers leave 95.6 % of it to the payload, "
    "and buckets that filled up between calls let isolated calls beat it. Collectives other than "
    "allgather are held against it by the slowest rank.",
)


def format_us(value: float) -> str:
    """Three digits, as many as noise allows to read."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def format_time(mean: Spread | None, slowest: Spread | None) -> str:
    if mean is None or slowest is None:
        return "-"
    middle, least, most = (format_us(value) for value in (mean.median, mean.least, mean.most))
    return f"{middle} ({least} - {most}); {format_us(slowest.median)}"


def format_ratio(ratio: Spread | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio.median:.2f} ({ratio.least:.2f} - {ratio.most:.2f})"


def format_row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def format_outcome(outcome: Outcome | None) -> str:
    if outcome is None:
        return "-"
    if outcome.worst is None:
        return f"{outcome.goal.text()}: not measured"
    figure = (
        f"{100 * outcome.worst:.0f} %" if outcome.goal.of_limit else f"{outcome.worst:.2f}"
    ) + f" at {format_bytes(outcome.size)}"
    per_host = outcome.setting.rpartition("-")[2]
    if outcome.setting.startswith(("shaped", "unequal")):
        figure += f" {per_host}"
    verdict = {True: "reached", False: "**not reached**", None: "incomplete"}[outcome.reached]
    return f"{figure} ({outcome.goal.text()}): {verdict}"


def goal_table(samples: Samples) -> list[str]:
    rows = judge_all(samples)
    lines = [
        "## Against the goals",
        "",
        "The best peer's time over Allrail's, or the rail limit over Allrail's time: the median at "
        "the worst size of the range. Isolated calls, unless a cell says back to back.",
        "",
        format_row(["setting", *(name for name, _, _ in SIZE_RANGES)]),
        "| --- |" + " --- |" * len(SIZE_RANGES),
    ]
    lines += [format_row([row.title, *map(format_outcome, cells)]) for row, cells in rows]
    every = [outcome.reached for _, cells in rows for outcome in cells if outcome]
    lines += [
        "",
        f"{every.count(True)} reached, {every.count(False)} not reached, "
        f"{every.count(None)} not or not wholly measured.",
    ]
    return lines


def setting_table(samples: Samples, setting: Setting, mode: str) -> list[str]:
    libraries = samples.libraries(setting, mode)
    ours = [library for library in libraries if library in MEMORY_OF]
    compared = ours if len(ours) < len(libraries) else []
    limited = setting.rates is not None and samples.collective != "barrier"
    head = ["mean bytes per rank" if samples.shape else "bytes per rank"]
    head += [*(["rail limit"] if limited else []), *libraries]
    head += [f"{library} of the limit" for library in (libraries if limited else [])]
    head += ["best peer"] if compared else []
    for library in compared:
        head += [f"best peer / {library}", f"of the slowest ranks, / {library}"]
    lines = [
        f"### {setting.name}: {setting.title}, {mode}",
        "",
        format_row(head),
        "|" + " ---: |" * len(head),
    ]
    for size in samples.sizes(setting.name, mode):
        at = (setting.name, mode, size)
        limit = rail_limit_us(setting, size, samples.collective, samples.shape)
        cells = [format_bytes(size), *([format_us(limit)] if limit is not None else [])]
        cells += [
            format_time(samples.spread(*at, library, MEAN), samples.spread(*at, library, SLOWEST))
            for library in libraries
        ]
        if limited:
            shares = [samples.share_of_limit(setting, mode, size, lib) for lib in libraries]
            cells += ["-" if share is None else f"{100 * share:.0f} %" for share in shares]
        if compared:
            cells.append(samples.best_peer(setting, mode, size) or "-")
        for library in compared:
            for which in (MEAN, SLOWEST):
                cells.append(format_ratio(samples.ratio(setting, mode, size, library, which)))
        lines.append(format_row(cells))
    return lines


def format_repetitions(least: int, most: int) -> str:
    counted = str(most) if least == most else f"{least} to {most}"
    return f"{counted} repetition{'s' * (most != 1)}"


def context_lines(context: dict, samples: Samples, failed: list[dict]) -> list[str]:
    repetitions = samples.repetitions()
    versions = ", ".join(f"{name} {version}" for name, version in context["versions"].items())
    lines = [
        f"Made by `{context['command']}` at commit {context['commit']}, {context['date']}, on "
        f"{context['cores']} cores of {context['processor']} with kernel {context['kernel']} and "
        f"{versions}, TCP under {context.get('congestion', 'what is not known')} (Allrail never "
        f"under bbr). {format_repetitions(*repetitions)}, the libraries in turn every few sizes; "
        f"load of the machine {context['load']} before the first.",
    ]
    if repetitions[1] < 5:
        lines.append("**Fewer than five repetitions: this shows that it runs, and no more.**")
    elif repetitions[0] < 5:
        lines.append("**Fewer than five repetitions of some: they show that it runs, no more.**")
    if context["iterations"]:
        lines.append(f"**Only {context['iterations']} calls per size, as asked for.**")
    for failure in failed:
        lines.append(
            f"**Not measured**: {failure['library']} in {failure['setting']}, {failure['mode']}, "
            f"{', '.join(map(format_bytes, failure['sizes']))}, repetition "
            f"{failure['repetition'] + 1}: {failure['reason']}"
        )
    return [line for text in lines for line in (text, "")]


def block_lines(samples: Samples) -> list[str]:
    """What the sizes of a v-form mean."""
    if samples.shape is None:
        return []
    numbered = "ranks"
    if samples.collective == "alltoallv":
        numbered = "pairs of ranks: from s to d goes block (s + d) mod n"
    return [
        f"- Blocks ({samples.shape}) are of {numbered}; sizes are their mean, and "
        + HOW_BLOCKS_DIFFER[samples.shape]
    ]


def peer_lines(peers: dict) -> list[str]:
    """How every peer was started, for who wants to know whether it was at its best."""
    lines = ["## The peers' settings", ""]
    for setting, libraries in peers.items():
        for library, words in libraries.items():
            lines.append(f"- {setting}, {library}: `{shlex.join(words)}`")
    return lines


def write_report(document: dict) -> str:
    context = document["context"]
    samples = Samples(document["results"], context["collective"], context.get("blocks"))
    lines = [f"# {context['collective'].capitalize()}: Allrail beside its peers", ""]
    lines += context_lines(context, samples, document["failed"])
    for text in HOW_TO_READ:
        lines.append(f"- {text}")
    lines += block_lines(samples)
    if GOALS_OF[context["collective"]]:
        lines += ["", *goal_table(samples)]
    lines += ["", "## Every setting"]
    for setting in SETTINGS.values():
        for mode in MODES:
            if samples.sizes(setting.name, mode):
                lines += ["", *setting_table(samples, setting, mode)]
    return "\n".join([*lines, "", *peer_lines(context["peers"])]) + "\n"
