#include "lib/envelopes.hpp"

#include <algorithm>
#include <cstring>

#include "lib/base/copy.hpp"

namespace allrail {
namespace {

constexpr std::uint32_t kDoesNotFit = UINT32_MAX;

/// Envelopes hold much less than what is said at most.
std::uint32_t said(std::uint64_t bytes) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, kDoesNotFit - 1));
}

}  // namespace

void Envelopes::lay_out(std::span<const std::uint64_t> lengths, std::size_t ranks,
                        std::size_t own) {
  own_ = own;
  sent_offsets_.assign(1, 0);
  awaited_offsets_.assign(1, 0);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    sent_offsets_.push_back(sent_offsets_.back() + lengths[own * ranks + rank]);
    awaited_offsets_.push_back(awaited_offsets_.back() + lengths[rank * ranks + own]);
  }
  sent_.resize(sent_offsets_.back());
  awaited_.resize(awaited_offsets_.back());
}

bool Envelopes::fit(std::span<const PlacedBlock> blocks) const {
  for (std::size_t to = 0; to < blocks.size(); ++to) {
    if (to == own_) continue;
    const std::uint64_t length = sent_offsets_[to + 1] - sent_offsets_[to];
    if (blocks[to].bytes > length - sizeof(Prefix)) return false;
  }
  return true;
}

void Envelopes::fill(std::span<const std::byte> send, std::span<const PlacedBlock> blocks,
                     std::span<const PlacedBlock> awaited) {
  const bool all_fit = fit(blocks);
  std::uint64_t total_bytes = 0;
  std::uint64_t longest_bytes = 0;
  for (std::size_t to = 0; to < blocks.size(); ++to) {
    if (to != own_) total_bytes += blocks[to].bytes;
    longest_bytes = std::max(longest_bytes, blocks[to].bytes);
  }
  Prefix prefix{all_fit ? 0 : kDoesNotFit, 0, said(total_bytes), said(longest_bytes)};
  own_prefix_ = prefix;
  for (std::size_t to = 0; to < blocks.size(); ++to) {
    if (to == own_) continue;
    std::byte* const envelope = sent_.data() + sent_offsets_[to];
    prefix.bytes = all_fit ? said(blocks[to].bytes) : kDoesNotFit;
    prefix.awaited_bytes = said(awaited[to].bytes);
    std::memcpy(envelope, &prefix, sizeof prefix);
    if (!all_fit || blocks[to].bytes == 0) continue;
    base::copy_block(envelope + sizeof prefix, send.data() + blocks[to].offset, blocks[to].bytes);
  }
}

Envelopes::Prefix Envelopes::prefix_of(std::size_t from) const {
  if (from == own_) return own_prefix_;
  Prefix prefix;
  std::memcpy(&prefix, awaited_.data() + awaited_offsets_[from], sizeof prefix);
  return prefix;
}

std::optional<Envelopes::Sums> Envelopes::sums() const {
  Sums sums;
  for (std::size_t from = 0; from + 1 < awaited_offsets_.size(); ++from) {
    const Prefix prefix = prefix_of(from);
    if (prefix.bytes == kDoesNotFit) return std::nullopt;
    sums.total_bytes += prefix.total_bytes;
    sums.longest_bytes = std::max<std::uint64_t>(sums.longest_bytes, prefix.longest_bytes);
  }
  return sums;
}

Envelopes::Pair Envelopes::pair_of(std::size_t other) const {
  const Prefix prefix = prefix_of(other);
  return {prefix.bytes, prefix.awaited_bytes};
}

std::uint64_t Envelopes::room_from(std::size_t other) const {
  return awaited_offsets_[other + 1] - awaited_offsets_[other] - sizeof(Prefix);
}

void Envelopes::empty(std::span<std::byte> receive, std::span<const PlacedBlock> blocks) const {
  for (std::size_t from = 0; from < blocks.size(); ++from) {
    if (from == own_ || blocks[from].bytes == 0) continue;
    base::copy_block(receive.data() + blocks[from].offset,
                     awaited_.data() + awaited_offsets_[from] + sizeof(Prefix), blocks[from].bytes);
  }
}

}  // namespace allrail
