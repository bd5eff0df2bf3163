#include "lib/rail_directory.hpp"

#include <algorithm>
#include <cstring>

#include "lib/base/error.hpp"
#include "lib/base/wire.hpp"

namespace allrail {
namespace {

// First, for every rank and once more, where its entry begins; then the entries; at the end the
// places of the ranks, whose bytes can stand anywhere.
static_assert(alignof(topology::RankPlace) == 1);
using Place = std::uint64_t;

std::vector<std::byte> entry_of(const Card& card) {
  base::WireWriter writer;
  writer.text(card.host);
  write_rails(writer, card.rail_ends, card.rail_addresses);
  return writer.bytes();
}

/// The end of the memory for a rank that the job does not have.
Place place_at(std::span<const std::byte> memory, std::size_t index) {
  Place first = 0;
  if (memory.size() < sizeof first) return memory.size();
  std::memcpy(&first, memory.data(), sizeof first);  // where the places end
  if (index >= std::min<Place>(first, memory.size()) / sizeof first) return memory.size();
  Place place = 0;
  std::memcpy(&place, memory.data() + index * sizeof place, sizeof place);
  return std::min<Place>(place, memory.size());
}

}  // namespace

std::uint64_t RailDirectory::bytes_for(std::span<const Card> cards) {
  std::uint64_t bytes = (cards.size() + 1) * sizeof(Place);
  for (const Card& card : cards) bytes += entry_of(card).size() + sizeof card.place;
  return bytes;
}

void RailDirectory::write(std::span<const Card> cards, std::span<std::byte> memory) {
  Place at = (cards.size() + 1) * sizeof(Place);
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const std::vector<std::byte> entry = entry_of(cards[rank]);
    std::memcpy(memory.data() + rank * sizeof at, &at, sizeof at);
    std::memcpy(memory.data() + at, entry.data(), entry.size());
    at += entry.size();
  }
  std::memcpy(memory.data() + cards.size() * sizeof at, &at, sizeof at);
  for (const Card& card : cards) {
    std::memcpy(memory.data() + at, &card.place, sizeof card.place);
    at += sizeof card.place;
  }
}

std::span<const topology::RankPlace> RailDirectory::places(int ranks) const {
  const std::uint64_t bytes = static_cast<std::uint64_t>(ranks) * sizeof(topology::RankPlace);
  if (memory_.size() < bytes) return {};
  const std::byte* const begin = memory_.data() + (memory_.size() - bytes);
  return {reinterpret_cast<const topology::RankPlace*>(begin), static_cast<std::size_t>(ranks)};
}

RankRails RailDirectory::rails_of(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  const Place begin = place_at(memory_, index);
  const Place end = std::max(begin, place_at(memory_, index + 1));
  base::WireReader reader(memory_.subspan(begin, end - begin));
  RankRails rails;
  rails.host = reader.text();
  const bool ends_fit = read_rails(reader, rails.ends, rails.addresses);
  if (rank < 0 || !ends_fit || !reader.at_end()) {
    base::fail_with_peer(Code::Internal, rank,
                         "the directory of rails in the node segment has no entry of rank {}",
                         rank);
  }
  return rails;
}

}  // namespace allrail
