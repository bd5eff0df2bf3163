// Wrong calls of gather, scatter, broadcast and alltoall. A barrier follows where a rank may be
// done with its part before another one sees the mistake.
#include <span>

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
      {"alltoallv-overlap",
       [](Case& c) {
         Bytes other(c.receive.size());
         c.communicator.alltoallv(c.receive, c.odd ? c.receive : other, c.counts(), c.counts());
       }},
      {"alltoallv-outside",
       [](Case& c) {
         Bytes other(c.receive.size());
         auto counts = c.counts();
         if (c.odd) counts.back() += 1;
         c.communicator.alltoallv(c.receive, other, counts, c.counts());
       }},
  };
  return kTable;
}

const Table& gather_and_scatter_cases() {
  static const Table kTable = {
      {"root-negative", [](Case& c) { gather_to(c, c.odd ? -1 : kRoot); }},
      {"root-too-large",
       [](Case& c) { broadcast_from(c, c.odd ? static_cast<int>(c.ranks) : kRoot); }},
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
      {"gatherv-outside",
       [](Case& c) {
         std::vector<std::size_t> places(c.ranks);
         for (std::size_t rank = 0; rank < c.ranks; ++rank) places[rank] = rank * kBytes;
         if (c.odd) places.back() += 1;
         c.communicator.gatherv(c.send, c.receive, c.counts(), places, kRoot);
         c.communicator.barrier();
       }},
      {"scatter-size",
       [](Case& c) {
         if (c.odd) c.receive.pop_back();
         c.communicator.scatter(c.receive, c.send, kRoot);
         c.communicator.barrier();
       }},
      {"scatterv-counts-length",
       [](Case& c) {
         auto counts = c.counts();
         if (c.odd) counts.pop_back();
         c.communicator.scatterv(c.receive, c.send, counts, kRoot);
         c.communicator.barrier();
       }},
  };
  return kTable;
}

}  // namespace

const Table& rooted_local_cases() {
  static const Table kTable = [] {
    Table table = gather_and_scatter_cases();
    table.merge(Table(broadcast_and_alltoall_cases()));
    return table;
  }();
  return kTable;
}

const Table& rooted_mismatches() {
  static const Table kTable = {
      {"gather-roots", [](Case& c) { gather_to(c, c.odd ? 2 : 0); }},
      {"broadcast-roots", [](Case& c) { broadcast_from(c, c.odd ? 2 : 0); }},
      {"broadcast-sizes",
       [](Case& c) {
         if (c.odd) c.send.resize(kBytes + 1);
         broadcast_from(c, 0);
       }},
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
      {"alltoall-block-sizes",
       [](Case& c) {
         Bytes one((kBytes + (c.odd ? 1 : 0)) * c.ranks);
         Bytes other(one.size());
         c.communicator.alltoall(one, other);
       }},
      {"alltoallv-counts",
       [](Case& c) {
         Bytes other(c.receive.size());
         auto counts = c.counts();
         if (c.odd) counts[0] -= 1;
         c.communicator.alltoallv(c.receive, other, counts, c.counts());
       }},
  };
  return kTable;
}

}  // namespace probe
