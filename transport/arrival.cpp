#include "transport/arrival.hpp"

#include <algorithm>

#include "lib/base/error.hpp"

namespace allrail::transport {

namespace {

constexpr std::uint64_t kNumberSpace = 1U << kPutNumberBits;

}  // namespace

std::uint32_t make_immediate(std::uint64_t put_number, std::uint32_t chunk_index) {
  return static_cast<std::uint32_t>(put_number % kNumberSpace) << kChunkIndexBits | chunk_index;
}

std::uint32_t chunk_index_of(std::uint32_t immediate) {
  return immediate & ((1U << kChunkIndexBits) - 1);
}

ArrivalTable::ArrivalTable() : entries_(std::make_unique<Entry[]>(kMaxOpenPuts)) {}

std::uint64_t ArrivalTable::number_of(std::uint32_t immediate) const {
  const std::uint64_t ahead = ((immediate >> kChunkIndexBits) - lowest_) % kNumberSpace;
  // Less than half the number space ahead or behind. Behind zero this wraps, and is never open.
  return ahead < kNumberSpace / 2 ? lowest_ + ahead : lowest_ + ahead - kNumberSpace;
}

bool ArrivalTable::wanted(std::uint32_t immediate) const {
  const std::uint32_t index = chunk_index_of(immediate);
  const std::uint64_t number = number_of(immediate);
  if (index >= kMaxChunksPerPut || !is_open(number)) return false;
  const Entry& put = entry(number);
  return !put.consumed && (put.bits[index / 64] >> (index % 64) & 1) == 0;
}

bool ArrivalTable::holds(std::uint32_t immediate) const {
  const std::uint32_t index = chunk_index_of(immediate);
  const std::uint64_t number = number_of(immediate);
  if (index >= kMaxChunksPerPut) return false;
  if (!is_open(number)) return number < lowest_;
  const Entry& put = entry(number);
  return put.consumed || (put.bits[index / 64] >> (index % 64) & 1) != 0;
}

ArrivalTable::Result ArrivalTable::add(std::uint32_t immediate, std::uint32_t bytes) {
  const std::uint32_t index = chunk_index_of(immediate);
  const std::uint64_t number = number_of(immediate);
  if (index >= kMaxChunksPerPut) return Result::Invalid;
  if (!is_open(number)) return number < lowest_ ? Result::Duplicate : Result::Invalid;
  Entry& put = entry(number);
  const std::uint64_t bit = std::uint64_t{1} << (index % 64);
  if (put.consumed || (put.bits[index / 64] & bit) != 0) return Result::Duplicate;
  if (put.expected && put.arrived_bytes + bytes > put.expected_bytes) return Result::Mismatch;
  put.bits[index / 64] |= bit;
  put.used_words = std::max(put.used_words, index / 64 + 1);
  put.arrived_bytes += bytes;
  ++put.chunks;
  if (complete(put)) --missing_;
  return Result::New;
}

std::uint64_t ArrivalTable::expect(std::uint64_t bytes, bool& mismatch) {
  if (!can_expect())
    base::fail(Code::Internal, "more than {} puts of one peer are expected and not consumed",
               kMaxOpenPuts);
  const std::uint64_t number = next_expected_++;
  Entry& put = entry(number);
  put.expected = true;
  put.expected_bytes = bytes;
  mismatch = put.arrived_bytes > bytes;
  if (!complete(put)) ++missing_;
  return number;
}

bool ArrivalTable::first_chunk_arrived(std::uint64_t number) const {
  if (!is_open(number)) return number < lowest_;
  const Entry& put = entry(number);
  return put.consumed || (put.bits[0] & 1) != 0;
}

bool ArrivalTable::arrived(std::uint64_t number) const {
  if (!is_open(number)) return number < lowest_;
  return complete(entry(number));
}

void ArrivalTable::consume(std::uint64_t number) {
  if (!is_open(number) || !complete(entry(number)) || entry(number).consumed)
    base::fail(Code::Internal, "put {} was consumed twice or before it arrived", number);
  entry(number).consumed = true;
  while (entry(lowest_).consumed) {
    Entry& put = entry(lowest_);
    std::fill_n(put.bits.begin(), put.used_words, 0);
    put.expected_bytes = put.arrived_bytes = 0;
    put.chunks = put.used_words = 0;
    put.expected = put.consumed = false;
    ++lowest_;
  }
}

}  // namespace allrail::transport
