// Wrong calls of alltoallv, the only one whose ranks know no counts but their own.
#include <limits>
#include <span>
#include <utility>

#include "tests/multiprocess/collectives/bad_input.hpp"

namespace probe {
namespace {

void repeat_alltoallv(Case& c, const std::vector<std::size_t>& counts) {
  Bytes other(c.receive.size());
  for (int time = 0; time < 3; ++time) {
    c.communicator.alltoallv(c.receive, other, counts, counts);
  }
}

/// What is sent and what is received lies at these places.
void alltoallv_at(Case& c, const std::vector<std::size_t>& sent,
                  const std::vector<std::size_t>& received) {
  Bytes other(c.receive.size());
  if (c.planned) {
    run(c.communicator.plan_alltoallv(c.receive, other, c.counts(), sent, c.counts(), received));
  } else {
    c.communicator.alltoallv(c.receive, other, c.counts(), sent, c.counts(), received);
  }
}

}  // namespace

const Table& alltoallv_local_cases() {
  static const Table kTable = {
      {"alltoallv-overlap",
       [](Case& c) {
         Bytes both(c.receive.size() + 1);
         const auto send = std::span(both).first(c.receive.size());
         const auto overlapping = std::span(both).last(c.receive.size());
         c.odd ? c.communicator.alltoallv(send, overlapping, c.counts(), c.counts())
               : c.communicator.alltoallv(send, c.receive, c.counts(), c.counts());
       }},
      {"alltoallv-counts-length",
       [](Case& c) {
         Bytes other(c.receive.size());
         auto counts = c.counts();
         if (c.odd) counts.pop_back();
         c.communicator.alltoallv(c.receive, other, c.counts(), counts);
       }},
      {"alltoallv-send-place-outside",
       [](Case& c) {
         auto moved = places(c);
         if (c.odd) moved.back() += 1;
         alltoallv_at(c, moved, places(c));
       }},
      {"alltoallv-receive-place-outside",
       [](Case& c) {
         auto moved = places(c);
         if (c.odd) moved.back() += 1;
         alltoallv_at(c, places(c), moved);
       }},
      {"alltoallv-far-outside",
       [](Case& c) {
         auto moved = places(c);
         if (c.odd) moved.front() = std::numeric_limits<std::size_t>::max() - 5;
         alltoallv_at(c, places(c), moved);
       }},
      {"alltoallv-blocks-overlap",
       [](Case& c) {
         auto moved = places(c);
         if (c.odd) moved[2] -= 1;
         alltoallv_at(c, places(c), moved);
       }},
      {"alltoallv-places-length",
       [](Case& c) {
         auto fewer = places(c);
         if (c.odd) fewer.pop_back();
         alltoallv_at(c, fewer, places(c));
       }},
      {"alltoallv-in-place-elsewhere",
       [](Case& c) {
         auto moved = places(c);
         if (c.odd) std::swap(moved.front(), moved.back());
         auto& both = c.receive;
         c.communicator.alltoallv(both, both, c.counts(), places(c), c.counts(), moved);
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

const Table& alltoallv_mismatches() {
  static const Table kTable = {
      {"alltoallv-counts",
       [](Case& c) {
         Bytes other(c.receive.size());
         auto counts = c.counts();
         if (c.odd) counts[0] -= 1;
         c.communicator.alltoallv(c.receive, other, counts, c.counts());
       }},
      // After some calls whose counts are the same everywhere, which later ones go by.
      {"repeated-alltoallv-counts",
       [](Case& c) {
         repeat_alltoallv(c, c.counts());
         auto counts = c.counts();
         if (c.odd) counts[(c.me + 1) % c.ranks] -= 1;
         Bytes other(c.receive.size());
         c.communicator.alltoallv(c.receive, other, counts, c.counts());
         c.communicator.barrier();
       }},
      {"repeated-alltoallv-and-allgather",
       [](Case& c) {
         repeat_alltoallv(c, c.counts());
         c.odd ? c.right() : repeat_alltoallv(c, c.counts());
       }},
      {"repeated-alltoallv-and-plan",
       [](Case& c) {
         repeat_alltoallv(c, c.counts());
         if (!c.odd) return repeat_alltoallv(c, c.counts());
         Bytes other(c.receive.size());
         run(c.communicator.plan_alltoallv(c.receive, other, c.counts(), c.counts()));
       }},
      // The plan's blocks are as long as what those of the calls travel in.
      {"repeated-alltoallv-in-a-plan-of-its-lengths",
       [](Case& c) {
         auto long_counts = c.counts(256);
         auto counts = c.counts(200);
         long_counts[c.me] = counts[c.me] = 0;
         Bytes other(c.receive.size());
         auto plan = c.communicator.plan_alltoallv(c.receive, other, long_counts, long_counts);
         repeat_alltoallv(c, counts);
         if (!c.odd) return repeat_alltoallv(c, counts);
         plan.start();
         plan.wait();
       }},
  };
  return kTable;
}

}  // namespace probe
