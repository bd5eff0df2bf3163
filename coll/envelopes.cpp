#include "coll/envelopes.hpp"

#include <algorithm>
#include <cstring>

#include "lib/base/copy.hpp"

namespace allrail::coll {
namespace {

constexpr std::uint32_t kDoesNotFit = UINT32_MAX;

/// Envelopes hold much less than what is said at most.
std::uint32_t said(std::uint64_t bytes) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, kDoesNotFit - 1));
}

/// What of [offset, offset + bytes) of an envelope is of its prefix.
std::uint64_t prefix_part(std::uint64_t offset, std::uint64_t bytes) {
  return offset < Envelopes::kPrefixBytes ? std::min(bytes, Envelopes::kPrefixBytes - offset) : 0;
}

}  // namespace

void Envelopes::lay_out(std::span<const std::uint64_t> lengths, std::size_t ranks,
                        std::size_t own) {
  own_ = own;
  sent_.assign(ranks, {});
  awaited_.assign(ranks, {});
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (rank == own) continue;
    sent_[rank].room_bytes = lengths[own * ranks + rank] - kPrefixBytes;
    awaited_[rank].room_bytes = lengths[rank * ranks + own] - kPrefixBytes;
  }
}

bool Envelopes::fit(std::span<const PlacedBlock> blocks) const {
  for (std::size_t to = 0; to < blocks.size(); ++to) {
    if (to != own_ && blocks[to].bytes > sent_[to].room_bytes) return false;
  }
  return true;
}

void Envelopes::begin(std::span<const std::byte> send, std::span<const PlacedBlock> sent,
                      std::span<std::byte> receive, std::span<const PlacedBlock> awaited) {
  all_fit_ = fit(sent);
  std::uint64_t total_bytes = 0;
  std::uint64_t longest_bytes = 0;
  for (std::size_t to = 0; to < sent.size(); ++to) {
    if (to != own_) total_bytes += sent[to].bytes;
    longest_bytes = std::max(longest_bytes, sent[to].bytes);
  }
  for (std::size_t to = 0; to < sent.size(); ++to) {
    const bool travels = all_fit_ && to != own_;
    sent_[to].bytes = travels ? sent[to].bytes : 0;
    sent_[to].block = sent_[to].bytes == 0 ? nullptr : send.data() + sent[to].offset;
    sent_[to].prefix = {all_fit_ ? said(sent_[to].bytes) : kDoesNotFit, said(awaited[to].bytes),
                        said(total_bytes), said(longest_bytes)};
  }
  for (std::size_t from = 0; from < awaited.size(); ++from) {
    const std::uint64_t bytes = std::min(awaited[from].bytes, awaited_[from].room_bytes);
    awaited_[from].bytes = bytes;
    awaited_[from].place = bytes == 0 ? nullptr : receive.data() + awaited[from].offset;
  }
  awaited_[own_].prefix = sent_[own_].prefix;
  in_place_ = !send.empty() && send.data() == receive.data();
  if (in_place_) save();
}

/// What arrives would overwrite what has not left.
void Envelopes::save() {
  std::uint64_t total_bytes = 0;
  for (const Sent& each : sent_) total_bytes += each.bytes;
  if (saved_.size() < total_bytes) saved_.resize(total_bytes);
  std::byte* next = saved_.data();
  for (Sent& each : sent_) {
    if (each.bytes == 0) continue;
    base::copy_block(next, each.block, each.bytes);
    each.block = next;
    next += each.bytes;
  }
}

void Envelopes::take_back(std::span<std::byte> send, std::span<const PlacedBlock> sent) const {
  if (!in_place_) return;
  for (std::size_t to = 0; to < sent.size(); ++to) {
    if (sent_[to].bytes == 0) continue;
    base::copy_block(send.data() + sent[to].offset, sent_[to].block, sent_[to].bytes);
  }
}

void Envelopes::pack(std::size_t to, std::uint64_t offset, std::uint64_t bytes,
                     std::byte* target) const noexcept {
  const Sent& sent = sent_[to];
  const std::uint64_t words = prefix_part(offset, bytes);
  if (words > 0) {
    std::memcpy(target, reinterpret_cast<const std::byte*>(&sent.prefix) + offset, words);
  }
  const std::uint64_t begin = offset + words - kPrefixBytes;
  if (words == bytes || begin >= sent.bytes) return;
  base::copy_block(target + words, sent.block + begin, std::min(bytes - words, sent.bytes - begin));
}

void Envelopes::unpack(std::size_t from, std::uint64_t offset, std::uint64_t bytes,
                       const std::byte* source) noexcept {
  Awaited& awaited = awaited_[from];
  const std::uint64_t words = prefix_part(offset, bytes);
  if (words > 0) {
    std::memcpy(reinterpret_cast<std::byte*>(&awaited.prefix) + offset, source, words);
  }
  // A call in which a block of this rank does not fit will be made again, and what it is to send is
  // nowhere else in place. Of others what is said may come behind the blocks.
  const std::uint64_t begin = offset + words - kPrefixBytes;
  if (words == bytes || !all_fit_ || begin >= awaited.bytes) return;
  base::copy_block(awaited.place + begin, source + words,
                   std::min(bytes - words, awaited.bytes - begin));
}

std::optional<Envelopes::Sums> Envelopes::sums() const {
  Sums sums;
  for (const Awaited& each : awaited_) {
    if (each.prefix.bytes == kDoesNotFit) return std::nullopt;
    sums.total_bytes += each.prefix.total_bytes;
    sums.longest_bytes = std::max<std::uint64_t>(sums.longest_bytes, each.prefix.longest_bytes);
  }
  return sums;
}

Envelopes::Pair Envelopes::pair_of(std::size_t other) const {
  const Prefix& prefix = awaited_[other].prefix;
  return {prefix.bytes, prefix.awaited_bytes};
}

}  // namespace allrail::coll
