"""The blocks of v-forms, as allrail-bench and mpi_collective lay them out. Pure."""

V_FORMS = ("allgatherv", "gatherv", "scatterv", "alltoallv")
# How sizes differ; the second is measured unless --blocks names another.
SHAPES = ("even", "ramp", "single")
DEFAULT_SHAPE = SHAPES[1]


def blocks_of_ranks(shape: str, mean_bytes: int, ranks: int) -> list[int]:
    """Of every rank, with rank 0 as the root where there is one; see perf/blocks.hpp."""
    if shape == "even":
        return [mean_bytes] * ranks
    if shape == "single":
        return [ranks * mean_bytes * (rank == ranks // 2) for rank in range(ranks)]
    begins = [mean_bytes * rank**2 // ranks for rank in range(ranks + 1)]
    return [end - begin for begin, end in zip(begins, begins[1:])]


def busiest_bytes(collective: str, shape: str, mean_bytes: int, hosts: int, per_host: int) -> int:
    """What the rails of that host must carry one way whose rails have most to carry."""
    ranks = hosts * per_host
    sizes = blocks_of_ranks(shape, mean_bytes, ranks)
    if collective == "alltoallv":
        # As much leaves a host as comes to it.
        found = [0] * hosts
        for one in range(ranks):
            for other in range(ranks):
                if one // per_host != other // per_host:
                    found[one // per_host] += sizes[(one + other) % ranks]
        return max(found)
    # The root's host takes what it has not, or gives it; of an allgather every host takes that, and
    # no other has less than the first one.
    return sum(sizes[per_host:])
