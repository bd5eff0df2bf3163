"""Draws the samples of a comparison as SVG, with matplotlib.

    python3 -m perf.compare_lib.plot compare.json FOLDER

writes FOLDER/times.svg and FOLDER/ratios.svg. perf/compare runs it here or, where this machine has
no matplotlib, in the lab.
"""

import json
import pathlib
import sys

from .results import Samples, Spread
from .settings import MEMORY_OF, MODES, SETTINGS, Setting, format_bytes, rail_limit_us

COLORS = {
    "allrail": "#0b5fa5",
    "allrail-buffer": "#2a9d8f",
    "allrail-node": "#6a3d9a",
    "openmpi-ob1": "#d1495b",
    "openmpi-told": "#8f2d56",
    "openmpi-ucx": "#edae49",
    "mpich": "#8d6e63",
    "bare": "#9e9e9e",
    "rail limit": "#555555",
}

Line = list[tuple[int, Spread]]
Panel = tuple[str, dict[str, Line]]


def time_lines(samples: Samples, setting: Setting, mode: str) -> dict[str, Line]:
    sizes = samples.sizes(setting.name, mode)
    lines = {
        library: [
            (size, spread)
            for size in sizes
            if (spread := samples.spread(setting.name, mode, size, library))
        ]
        for library in samples.libraries(setting, mode)
    }
    # A barrier moves no bytes: nothing limits it, on shaped rails either.
    lines["rail limit"] = [
        (size, Spread(limit, limit, limit))
        for size in sizes
        if (limit := rail_limit_us(setting, size, samples.collective, samples.shape)) is not None
    ]
    return lines


def ratio_lines(samples: Samples, setting: Setting, mode: str) -> dict[str, Line]:
    return {
        library: [
            (size, spread)
            for size in samples.sizes(setting.name, mode)
            if (spread := samples.ratio(setting, mode, size, library))
        ]
        for library in samples.libraries(setting, mode)
        if library in MEMORY_OF
    }


def panels(samples: Samples, lines_of) -> list[Panel]:
    """One panel for each setting and mode that was measured, as a title and its lines."""
    found = []
    for setting in SETTINGS.values():
        for mode in MODES:
            lines = {name: line for name, line in lines_of(samples, setting, mode).items() if line}
            if lines:
                found.append((f"{setting.title}\n{mode}", lines))
    return found


def draw_panel(axes, panel: Panel, unit: str) -> None:
    title, lines = panel
    for name, line in lines.items():
        sizes = [size for size, _ in line]
        middle = [spread.median for _, spread in line]
        least, most = ([getattr(spread, of) for _, spread in line] for of in ("least", "most"))
        style = {"linestyle": "--"} if name == "rail limit" else {"marker": "o", "markersize": 3}
        axes.plot(sizes, middle, color=COLORS[name], label=name, linewidth=1.2, **style)
        # A band and not bars: lines stay readable, and the file small.
        axes.fill_between(sizes, least, most, color=COLORS[name], alpha=0.15, linewidth=0)
    axes.set_title(title, fontsize=9)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({size for line in lines.values() for size, _ in line})
    axes.set_xticks(ticks, [format_bytes(size) for size in ticks], rotation=45, fontsize=7)
    axes.minorticks_off()
    if unit == "ratio":
        axes.axhline(1, color="black", linewidth=0.8)
        axes.yaxis.set_major_locator(ratio_locator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(True, linewidth=0.3)
    axes.legend(fontsize=7)


def ratio_locator():
    from matplotlib.ticker import LogLocator

    return LogLocator(base=10, subs=(1, 1.5, 2, 3, 5, 7))


def draw(file: pathlib.Path, title: str, unit: str, chosen: list[Panel]) -> None:
    import matplotlib

    matplotlib.use("svg")
    # The same samples give the same file, and text stays text, in one of two fonts.
    matplotlib.rcParams.update({"svg.hashsalt": "allrail", "svg.fonttype": "none"})
    matplotlib.rcParams.update({"font.sans-serif": ["DejaVu Sans", "Arial"]})
    from matplotlib import pyplot

    rows = (len(chosen) + 1) // 2
    figure, axes = pyplot.subplots(rows, 2, figsize=(11, 3.4 * rows + 0.6), squeeze=False)
    for place, axis in enumerate(axes.flat):
        if place < len(chosen):
            draw_panel(axis, chosen[place], unit)
        else:
            axis.set_visible(False)
    figure.suptitle(title)
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def main(arguments: list[str]) -> None:
    source, folder = (pathlib.Path(argument) for argument in arguments)
    document = json.loads(source.read_text(encoding="utf-8"))
    name, shape = document["context"]["collective"], document["context"].get("blocks")
    samples = Samples(document["results"], name, shape)
    size = f"mean bytes per rank, {shape} blocks" if shape else "bytes per rank"
    for file, title, unit, lines_of in (
        ("times.svg", f"{name}: microseconds over {size}", "us", time_lines),
        ("ratios.svg", f"{name}: the best peer's time over Allrail's", "ratio", ratio_lines),
    ):
        chosen = panels(samples, lines_of)
        if chosen:
            draw(folder / file, title, unit, chosen)


if __name__ == "__main__":
    main(sys.argv[1:])
