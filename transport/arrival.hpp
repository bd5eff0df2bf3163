// What has arrived from one peer: one bit per chunk of every open put, so that a chunk that comes
// twice is harmless. Does not know how puts are cut: a put has arrived when its bytes have.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "transport/fabric.hpp"

namespace allrail::transport {

std::uint32_t make_immediate(std::uint64_t put_number, std::uint32_t chunk_index);
std::uint32_t chunk_index_of(std::uint32_t immediate);

class ArrivalTable {
 public:
  enum class Result {
    New,
    Duplicate,
    Invalid,   // no open put has this number, or the chunk index is out of range
    Mismatch,  // more bytes than the put was announced with
  };

  ArrivalTable();

  Result add(std::uint32_t immediate, std::uint32_t bytes);
  /// Whether add() would return New.
  bool wanted(std::uint32_t immediate) const;
  /// Whether this chunk is here, or was and its put is consumed.
  bool holds(std::uint32_t immediate) const;

  bool can_expect() const { return next_expected_ < lowest_ + kMaxOpenPuts; }
  /// Announces the size of the next put; true in `mismatch` if more than that is here already.
  std::uint64_t expect(std::uint64_t bytes, bool& mismatch);
  bool first_chunk_arrived(std::uint64_t number) const;
  bool arrived(std::uint64_t number) const;
  void consume(std::uint64_t number);

  /// All puts below this one are consumed.
  std::uint64_t lowest() const { return lowest_; }
  /// Puts that were announced and are not here yet.
  int missing() const { return missing_; }

 private:
  struct Entry {
    std::array<std::uint64_t, kMaxChunksPerPut / 64> bits;
    std::uint64_t expected_bytes;
    std::uint64_t arrived_bytes;
    std::uint32_t chunks;
    std::uint32_t used_words;  // of `bits`: the others are zero
    bool expected;
    bool consumed;
  };

  /// The 64-bit number of a put on the wire: the one nearest to the lowest open put.
  std::uint64_t number_of(std::uint32_t immediate) const;
  Entry& entry(std::uint64_t number) const { return entries_[number % kMaxOpenPuts]; }
  bool is_open(std::uint64_t number) const {
    return number >= lowest_ && number < lowest_ + kMaxOpenPuts;
  }
  static bool complete(const Entry& entry) {
    return entry.expected && entry.chunks > 0 && entry.arrived_bytes == entry.expected_bytes;
  }

  std::unique_ptr<Entry[]> entries_;
  std::uint64_t lowest_ = 0;
  std::uint64_t next_expected_ = 0;
  int missing_ = 0;
};

}  // namespace allrail::transport
