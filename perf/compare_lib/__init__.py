"""The parts of perf/compare: what is measured, by which programs, and how it is reported."""
