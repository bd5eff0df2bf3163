#include "coll/schedule/replay_memory.hpp"

#include <algorithm>

namespace allrail::schedule {

Origins::Origins(std::span<const ReplayCall> calls) {
  Origin next = 1;
  for (const ReplayCall& call : calls) {
    starts_.push_back(next);
    std::vector<Origin> blocks;
    blocks.reserve(call.purpose.send_bytes.size());
    for (const std::uint64_t bytes : call.purpose.send_bytes) {
      blocks.push_back(next);
      next += static_cast<Origin>(bytes);
    }
    blocks_.push_back(std::move(blocks));
    headers_.push_back(next);
    next += static_cast<Origin>(call.shape.bytes.size() * kHeaderBytes);
  }
  starts_.push_back(next);
}

ReplayMemory::ReplayMemory(std::span<const ReplayCall> calls, int slots)
    : calls_(calls), origins_(calls), slots_(slots), lines_(slots) {
  const NodeMap& map = calls.front().shape.map;
  for (int slot = 0; slot < slots; ++slot) {
    slots_[slot].resize(map.nodes());
    for (int rank = 0; rank < map.ranks(); ++rank) {
      std::vector<Origin>& memory = slots_[slot][map.node_of[rank]];
      std::uint64_t bytes = memory.size();
      for (std::size_t call = slot; call < calls.size(); call += slots) {
        bytes = std::max(bytes, calls[call].schedules[rank].slot_bytes);
      }
      memory.resize(bytes);
    }
    for (int node = 0; node < map.nodes(); ++node) {
      lines_[slot].emplace_back(static_cast<std::uint64_t>(map.node_size(node)) * kLineStride);
    }
  }
  for (const ReplayCall& call : calls) {
    std::uint64_t bytes = 0;
    for (const std::vector<Received>& received : call.purpose.received) {
      for (const Received& part : received) bytes = std::max(bytes, part.to_offset + part.bytes);
    }
    receive_bytes_.push_back(bytes);
    receive_.emplace_back(call.node_shared ? 0 : call.shape.bytes.size(),
                          std::vector<Origin>(bytes));
  }
  shared_.assign(map.nodes(), std::vector<Origin>(*std::ranges::max_element(receive_bytes_)));
}

Range ReplayMemory::range(int call, int rank, Memory memory, std::uint64_t offset,
                          std::uint64_t bytes) {
  const auto within = [&](std::uint64_t limit) {
    return offset <= limit && bytes <= limit - offset;
  };
  const Shape& shape = calls_[call].shape;
  if (memory == Memory::Send) {
    return {nullptr, origins_.block_byte(call, rank, offset),
            within(calls_[call].purpose.send_bytes[rank])};
  }
  if (memory == Memory::Receive) {
    std::vector<Origin>& receive =
        calls_[call].node_shared ? shared_[shape.map.node_of[rank]] : receive_[call][rank];
    return within(receive_bytes_[call]) ? Range{receive.data() + offset, 0, true} : Range{};
  }
  if (memory == Memory::Lines) {
    std::vector<Origin>& lines = lines_[call % lines_.size()][shape.map.node_of[rank]];
    const bool in_line = offset % kLineStride + bytes <= kLineBytes;
    return in_line && within(lines.size()) ? Range{lines.data() + offset, 0, true} : Range{};
  }
  std::vector<Origin>& slot = slots_[call % slots_.size()][shape.map.node_of[rank]];
  return within(calls_[call].schedules[rank].slot_bytes) ? Range{slot.data() + offset, 0, true}
                                                         : Range{};
}

}  // namespace allrail::schedule
