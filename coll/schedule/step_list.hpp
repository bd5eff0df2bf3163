#pragma once

#include <cstdint>

#include "coll/schedule/schedule.hpp"

// Appends steps to a schedule. Used by the lowering only.
namespace allrail::schedule {

class StepList {
 public:
  explicit StepList(Schedule& schedule) : schedule_(schedule) {}

  /// The round that the next steps belong to.
  void enter_round(int round) { round_ = static_cast<std::uint16_t>(round); }

  /// Copies of zero bytes vanish, and a copy that goes on where the step before it ended joins it.
  void copy(Memory from, std::uint64_t from_offset, Memory to, std::uint64_t to_offset,
            std::uint64_t bytes) {
    if (bytes == 0) {
      return;
    }
    if (!schedule_.steps.empty()) {
      Step& last = schedule_.steps.back();
      if (last.kind == StepKind::Copy && last.from == from && last.to == to &&
          last.from_offset + last.bytes == from_offset &&
          last.to_offset + last.bytes == to_offset) {
        last.bytes += bytes;
        return;
      }
    }
    add({StepKind::Copy, from, to, round_, 0, -1, 0, from_offset, to_offset, bytes});
  }

  void stamp(std::uint64_t offset) {
    add({StepKind::Stamp, Memory::Slot, Memory::Slot, round_, 0, -1, 0, 0, offset, kHeaderBytes});
  }

  void put(std::size_t port, int peer, Memory from, std::uint64_t from_offset, Memory to,
           std::uint64_t to_offset, std::uint64_t bytes) {
    add({StepKind::Put, from, to, round_, static_cast<std::uint16_t>(port), peer, 0, from_offset,
         to_offset, bytes});
  }

  void await(std::size_t port, int peer, Memory to, std::uint64_t header_offset,
             std::uint64_t to_offset, std::uint64_t bytes) {
    add({StepKind::Await, to, to, round_, static_cast<std::uint16_t>(port), peer, 0, header_offset,
         to_offset, bytes});
  }

  void publish(std::uint32_t stage) {
    add({StepKind::Publish, Memory::Slot, Memory::Slot, round_, 0, -1, stage, 0, 0, 0});
  }

  void await_local(int local, std::uint32_t stage) {
    add({StepKind::AwaitLocal, Memory::Slot, Memory::Slot, round_, 0, local, stage, 0, 0, 0});
  }

  void offer(std::uint32_t stage, Memory from, std::uint64_t from_offset, std::uint64_t bytes) {
    add({StepKind::Offer, from, from, round_, 0, -1, stage, from_offset, 0, bytes});
  }

  /// The whole block that a local rank has offered. Nothing of zero bytes is read.
  void read(int local, std::uint64_t to_offset, std::uint64_t bytes) {
    if (bytes == 0) return;
    add({StepKind::Read, Memory::Send, Memory::Receive, round_, 0, local, 0, 0, to_offset, bytes});
  }

  void once() { add({StepKind::Once, Memory::Slot, Memory::Receive, round_, 0, -1, 0, 0, 0, 0}); }

  void await_sent() {
    add({StepKind::AwaitSent, Memory::Slot, Memory::Slot, round_, 0, -1, 0, 0, 0, 0});
  }

 private:
  void add(const Step& step) { schedule_.steps.push_back(step); }

  Schedule& schedule_;
  std::uint16_t round_ = 0;
};

}  // namespace allrail::schedule
