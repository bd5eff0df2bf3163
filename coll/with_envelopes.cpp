#include "coll/with_envelopes.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace allrail::coll {
namespace {

/// Of those that begin there the last: the ones before are empty.
int envelope_at(const std::vector<std::uint64_t>& offsets, std::uint64_t offset) {
  return static_cast<int>(std::ranges::upper_bound(offsets, offset) - offsets.begin()) - 1;
}

}  // namespace

schedule::Schedule with_envelopes(schedule::Schedule schedule, const schedule::PairShape& shape,
                                  int rank) {
  std::vector<schedule::Step> steps;
  for (schedule::Step step : schedule.steps) {
    const bool packs = step.from == schedule::Memory::Send;
    const bool unpacks = step.to == schedule::Memory::Receive;
    if (step.kind != schedule::StepKind::Copy || packs == unpacks) {
      steps.push_back(step);
      continue;
    }
    // Copies that go on where the one before ended are one.
    step.kind = packs ? schedule::StepKind::Pack : schedule::StepKind::Unpack;
    for (std::uint64_t left = step.bytes; left > 0; left -= step.bytes) {
      step.peer = packs ? envelope_at(shape.send_offsets, step.from_offset)
                        : envelope_at(shape.receive_offsets, step.to_offset);
      step.bytes = packs ? shape.bytes(rank, step.peer) : shape.bytes(step.peer, rank);
      steps.push_back(step);
      step.from_offset += step.bytes;
      step.to_offset += step.bytes;
    }
  }
  schedule.steps = std::move(steps);
  return schedule;
}

}  // namespace allrail::coll
