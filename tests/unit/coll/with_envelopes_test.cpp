// The plan of an alltoallv in envelopes is that of one whose blocks are the envelopes, but for the
// copies between slot memory and the user's.
#include "coll/with_envelopes.hpp"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "coll/alltoall/alltoall.hpp"
#include "coll/plan.hpp"

namespace allrail::coll {
namespace {

using schedule::Memory;
using schedule::Step;
using schedule::StepKind;

struct Job {
  std::vector<int> node_of;
  std::vector<std::uint64_t> lengths;  // by from * ranks + to

  std::size_t ranks() const { return node_of.size(); }
  std::uint64_t length(int from, int to) const {
    return lengths[static_cast<std::size_t>(from) * ranks() + static_cast<std::size_t>(to)];
  }
};

Job random_job(std::mt19937& random) {
  Job job;
  const std::size_t ranks = 2 + random() % 7;
  const int nodes = 1 + static_cast<int>(random() % std::min<std::size_t>(ranks, 4));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const int at = static_cast<int>(rank);
    job.node_of.push_back(at < nodes ? at : static_cast<int>(random()) & 1 ? 0 : at % nodes);
  }
  for (std::size_t pair = 0; pair < ranks * ranks; ++pair) {
    const bool is_own = pair / ranks == pair % ranks;
    job.lengths.push_back(is_own ? 0 : 64 * (1 + random() % 5));
  }
  return job;
}

PlanRequest request_of(const Job& job, int rank, const std::string& algorithm) {
  PlanRequest request;
  request.operation = Operation::Alltoallv;
  request.algorithm = algorithm;
  request.ports = 2;
  request.matrix = job.lengths;
  request.bytes.assign(job.ranks(), *std::ranges::max_element(job.lengths));
  std::uint64_t sent = 0;
  std::uint64_t awaited = 0;
  for (int other = 0; other < static_cast<int>(job.ranks()); ++other) {
    request.send_offsets.push_back(sent);
    request.receive_offsets.push_back(awaited);
    sent += job.length(rank, other);
    awaited += job.length(other, rank);
  }
  return request;
}

/// Copies that go on where the one before ended are one, as they were in the plan of blocks.
std::vector<Step> without_envelopes(const schedule::Schedule& schedule) {
  std::vector<Step> steps;
  for (Step step : schedule.steps) {
    const bool is_copy = step.kind == StepKind::Pack || step.kind == StepKind::Unpack;
    if (is_copy) {
      step.kind = StepKind::Copy;
      step.peer = -1;
      Step* const last = steps.empty() ? nullptr : &steps.back();
      if (last != nullptr && last->kind == StepKind::Copy && last->from == step.from &&
          last->to == step.to && last->from_offset + last->bytes == step.from_offset &&
          last->to_offset + last->bytes == step.to_offset) {
        last->bytes += step.bytes;
        continue;
      }
    }
    steps.push_back(step);
  }
  return steps;
}

/// That each envelope is packed and unpacked once, or the part of it in a slice.
void expect_each_once(const schedule::Schedule& schedule, const Job& job, int rank,
                      std::uint64_t begin, const std::vector<std::uint64_t>& send_offsets,
                      const std::vector<std::uint64_t>& receive_offsets) {
  std::vector<int> packed(job.ranks(), 0);
  std::vector<int> unpacked(job.ranks(), 0);
  for (const Step& step : schedule.steps) {
    const auto peer = static_cast<std::size_t>(step.peer);
    if (step.kind == StepKind::Copy) {
      EXPECT_TRUE(step.from == Memory::Slot && step.to == Memory::Slot);
    } else if (step.kind == StepKind::Pack) {
      ++packed.at(peer);
      EXPECT_EQ(step.from_offset, send_offsets.at(peer));
      EXPECT_LE(step.bytes, job.length(rank, step.peer) - begin);
    } else if (step.kind == StepKind::Unpack) {
      ++unpacked.at(peer);
      EXPECT_EQ(step.to_offset, receive_offsets.at(peer));
      EXPECT_LE(step.bytes, job.length(step.peer, rank) - begin);
    }
  }
  for (int other = 0; other < static_cast<int>(job.ranks()); ++other) {
    const auto at = static_cast<std::size_t>(other);
    EXPECT_EQ(packed[at], job.length(rank, other) > begin) << "to " << other;
    EXPECT_EQ(unpacked[at], job.length(other, rank) > begin) << "from " << other;
  }
}

TEST(WithEnvelopes, EveryCopyIsOfOneEnvelope) {
  std::mt19937 random(20261130);
  int cut = 0;
  for (int trial = 0; trial < 150; ++trial) {
    const Job job = random_job(random);
    for (const alltoall::Algorithm& algorithm : alltoall::algorithms()) {
      const int rank = static_cast<int>(random() % job.ranks());
      const Roster roster(schedule::NodeMap(job.node_of), rank);
      PlanRequest request = request_of(job, rank, std::string(algorithm.name));
      // Some do not fit at once: headers and a byte of each block have to.
      const CallPlan whole(request, roster, {.large_slot_bytes = 1 << 20});
      std::ranges::fill(request.bytes, 1);
      request.matrix.assign(job.lengths.size(), 1);
      const CallPlan of_bytes(request, roster, {.large_slot_bytes = 1 << 20});
      request = request_of(job, rank, std::string(algorithm.name));
      const std::uint64_t least = of_bytes.slot_bytes();
      const PlanLimits limits{.large_slot_bytes =
                                  least + random() % (whole.slot_bytes() - least + 1)};
      const CallPlan of_blocks(request, roster, limits);
      request.longest_in_envelope = 300;
      const CallPlan plan(request, roster, limits);
      EXPECT_NE(plan.hash(), of_blocks.hash());
      ASSERT_EQ(plan.slices(), of_blocks.slices());
      cut += plan.slices() > 1 ? 1 : 0;
      for (std::uint64_t slice = 0; slice < plan.slices(); ++slice) {
        const auto schedule = plan.schedule(slice);
        EXPECT_EQ(without_envelopes(*schedule), of_blocks.schedule(slice)->steps);
        EXPECT_EQ(schedule->slot_bytes, of_blocks.schedule(slice)->slot_bytes);
        expect_each_once(*schedule, job, rank, plan.slice_begin(slice), request.send_offsets,
                         request.receive_offsets);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(cut, 100) << "plans of several slices";
}

}  // namespace
}  // namespace allrail::coll
