// Wrong calls of gather, scatter, broadcast and alltoall; those of alltoallv are in a file of their
// own. A barrier follows where a rank may be done with its part before another one sees the
// mistake.
#include <span>
#include <utility>

#include "tests/multiprocess/collectives/bad_input.hpp"

namespace probe {
namespace {

std::span<unsigned char> null_bytes(std::size_t bytes) {
  return {static_cast<unsigned char*>(nullptr), bytes};
}

/// Rank 1 is the one that does it differently in the tests, so it is the root.
constexpr int kRoot = 1;

void gather_to(Case& c, int root) {
  c.communicator.gather(c.send, c.receive, root);
  c.communicator.barrier();
}

void broadcast_from(Case& c, int root) {
  c.communicator.broadcast(c.send, root);
  c.communicator.barrier();
}

void scatterv_from_root(Case& c, const std::vector<std::size_t>& counts,
                        const std::vector<std::size_t>& displacements) {
  if (c.planned) {
    run(c.communicator.plan_scatterv(c.receive, c.send, counts, displacements, kRoot));
  } else {
    c.communicator.scatterv(c.receive, c.send, counts, displacements, kRoot);
  }
  c.communicator.barrier();
}

void gatherv_to_root(Case& c, const std::vector<std::size_t>& counts,
                     const std::vector<std::size_t>& displacements) {
  if (c.planned) {
    run(c.communicator.plan_gatherv(c.send, c.receive, counts, displacements, kRoot));
  } else {
    c.communicator.gatherv(c.send, c.receive, counts, displacements, kRoot);
  }
  c.communicator.barrier();
}

/// One that is not its default.
CallOptions by(const char* algorithm) {
  CallOptions options;
  options.algorithm = algorithm;
  return options;
}

const Table& broadcast_and_alltoall_cases() {
  static const Table kTable = {
      {"broadcast-null",
       [](Case& c) {
         c.odd ? c.communicator.broadcast(null_bytes(kBytes), kRoot) : broadcast_from(c, kRoot);
       }},
      {"broadcast-algorithm",
       [](Case& c) {
         CallOptions options;
         options.algorithm = c.odd ? "ring" : "chain";
         c.communicator.broadcast(c.send, kRoot, options);
         c.communicator.barrier();
       }},
      {"alltoall-sizes",
       [](Case& c) {
         Bytes other(c.receive.size() - (c.odd ? 1 : 0));
         c.communicator.alltoall(c.receive, other);
       }},
      {"alltoall-blocks",
       [](Case& c) {
         Bytes one(kBytes * c.ranks + (c.odd ? 1 : 0));
         Bytes other(one.size());
         c.communicator.alltoall(one, other);
       }},
      // All bytes are a multiple of the number of ranks, and blocks are no whole elements.
      {"alltoall-elements",
       [](Case& c) {
         std::vector<std::uint64_t> one(c.odd ? c.ranks + c.ranks / 2 : c.ranks);
         std::vector<std::uint64_t> other(one.size());
         c.communicator.alltoall(one, other);
       }},
      {"alltoall-null",
       [](Case& c) {
         Bytes other(c.receive.size());
         c.odd ? c.communicator.alltoall(c.receive, null_bytes(other.size()))
               : c.communicator.alltoall(c.receive, other);
       }},
      {"alltoall-overlap",
       [](Case& c) {
         Bytes both(c.receive.size() + 1);
         const auto send = std::span(both).first(c.receive.size());
         const auto overlapping = std::span(both).last(c.receive.size());
         c.odd ? c.communicator.alltoall(send, overlapping)
               : c.communicator.alltoall(send, c.receive);
       }},
      {"alltoall-algorithm",
       [](Case& c) {
         Bytes other(c.receive.size());
         c.communicator.alltoall(c.receive, other, by(c.odd ? "ring" : "bruck"));
       }},
  };
  return kTable;
}

const Table& gather_cases() {
  static const Table kTable = {
      {"gather-size",
       [](Case& c) {
         if (c.odd) c.receive.pop_back();
         gather_to(c, kRoot);
       }},
      {"gather-overlap",
       [](Case& c) {
         const auto overlapping = std::span(c.receive).subspan(kRoot * kBytes + 1, kBytes);
         c.odd&& c.me == kRoot ? c.communicator.gather(overlapping, c.receive, kRoot)
                               : c.communicator.gather(c.send, c.receive, kRoot);
         c.communicator.barrier();
       }},
      {"gatherv-own-count",
       [](Case& c) {
         auto counts = c.counts();
         if (c.odd) counts[c.me] -= 1;
         c.communicator.gatherv(c.send, c.receive, counts, kRoot);
         c.communicator.barrier();
       }},
      {"gather-null",
       [](Case& c) {
         c.odd ? c.communicator.gather(null_bytes(kBytes), c.receive, kRoot)
               : c.communicator.gather(c.send, c.receive, kRoot);
         c.communicator.barrier();
       }},
      {"gather-algorithm",
       [](Case& c) {
         c.communicator.gather(c.send, c.receive, kRoot, by(c.odd ? "bruck" : "binomial"));
         c.communicator.barrier();
       }},
      {"gatherv-outside",
       [](Case& c) {
         auto moved = places(c);
         if (c.odd) moved.back() += 1;
         gatherv_to_root(c, c.counts(), moved);
       }},
      {"gatherv-far-outside",
       [](Case& c) {
         auto moved = places(c);
         if (c.odd) moved.back() = std::numeric_limits<std::size_t>::max() - 5;
         gatherv_to_root(c, c.counts(), moved);
       }},
      {"gatherv-blocks-overlap",
       [](Case& c) {
         auto moved = places(c);
         if (c.odd) moved[2] -= 1;
         gatherv_to_root(c, c.counts(), moved);
       }},
      {"gatherv-places-length",
       [](Case& c) {
         auto fewer = places(c);
         if (c.odd) fewer.pop_back();
         gatherv_to_root(c, c.counts(), fewer);
       }},
  };
  return kTable;
}

const Table& scatter_cases() {
  static const Table kTable = {
      {"scatter-size",
       [](Case& c) {
         if (c.odd) c.receive.pop_back();
         c.communicator.scatter(c.receive, c.send, kRoot);
         c.communicator.barrier();
       }},
      {"scatter-overlap",
       [](Case& c) {
         const auto overlapping = std::span(c.receive).subspan(kRoot * kBytes + 1, kBytes);
         c.odd&& c.me == kRoot ? c.communicator.scatter(c.receive, overlapping, kRoot)
                               : c.communicator.scatter(c.receive, c.send, kRoot);
         c.communicator.barrier();
       }},
      {"scatter-null",
       [](Case& c) {
         c.odd ? c.communicator.scatter(c.receive, null_bytes(kBytes), kRoot)
               : c.communicator.scatter(c.receive, c.send, kRoot);
         c.communicator.barrier();
       }},
      {"scatter-algorithm",
       [](Case& c) {
         c.communicator.scatter(c.receive, c.send, kRoot, by(c.odd ? "chain" : "binomial"));
         c.communicator.barrier();
       }},
      {"scatterv-counts-length",
       [](Case& c) {
         auto counts = c.counts();
         if (c.odd) counts.pop_back();
         c.communicator.scatterv(c.receive, c.send, counts, kRoot);
         c.communicator.barrier();
       }},
      {"scatterv-own-count",
       [](Case& c) {
         auto counts = c.counts();
         if (c.odd) counts[c.me] -= 1;
         scatterv_from_root(c, counts, places(c));
       }},
      {"scatterv-outside",
       [](Case& c) {
         auto moved = places(c);
         if (c.odd) moved.back() += 1;
         scatterv_from_root(c, c.counts(), moved);
       }},
      {"scatterv-far-outside",
       [](Case& c) {
         auto moved = places(c);
         if (c.odd) moved.back() = std::numeric_limits<std::size_t>::max() - 5;
         scatterv_from_root(c, c.counts(), moved);
       }},
      {"scatterv-places-length",
       [](Case& c) {
         auto more = places(c);
         if (c.odd) more.push_back(0);
         scatterv_from_root(c, c.counts(), more);
       }},
      {"allgatherv-places-length",
       [](Case& c) {
         auto fewer = places(c);
         if (c.odd) fewer.pop_back();
         c.communicator.allgatherv(c.send, c.receive, c.counts(), fewer);
       }},
  };
  return kTable;
}

/// Of plans, too: at which places blocks may not lie.
Table planned(const Table& calls) {
  Table plans;
  for (const char* const name :
       {"alltoallv-send-place-outside", "alltoallv-receive-place-outside", "alltoallv-far-outside",
        "alltoallv-blocks-overlap", "gatherv-outside", "gatherv-far-outside",
        "gatherv-blocks-overlap", "scatterv-own-count", "scatterv-outside"}) {
    plans[std::string("plan-of-") + name] = [wrong = calls.at(name)](Case& c) {
      c.planned = true;
      wrong(c);
    };
  }
  return plans;
}

}  // namespace

const Table& rooted_local_cases() {
  static const Table kTable = [] {
    Table table = gather_cases();
    table.merge(Table(scatter_cases()));
    table.merge(Table(alltoallv_local_cases()));
    table.merge(Table(broadcast_and_alltoall_cases()));
    table.merge(planned(table));
    return table;
  }();
  return kTable;
}

const Table& rooted_mismatches() {
  static const Table kTable = {
      {"gather-and-scatter",
       [](Case& c) {
         Bytes mine(kBytes);
         c.odd ? c.communicator.scatter(c.receive, mine, 0)
               : c.communicator.gather(c.send, c.receive, 0);
         c.communicator.barrier();
       }},
      {"gather-and-allgather", [](Case& c) { c.odd ? c.right() : gather_to(c, 0); }},
      {"gatherv-counts",
       [](Case& c) {
         auto counts = c.counts();
         if (c.odd) counts[(c.me + 1) % c.ranks] -= 1;
         c.communicator.gatherv(c.send, c.receive, counts, 0);
         c.communicator.barrier();
       }},
  };
  return kTable;
}

}  // namespace probe
