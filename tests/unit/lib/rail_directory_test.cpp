// The directory of rails: what was written for every rank is read, and nothing else.
#include "lib/rail_directory.hpp"

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"

namespace allrail {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

/// Rank r has r rails.
std::vector<Card> cards_of(int ranks) {
  std::vector<Card> cards(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    Card& card = cards[static_cast<std::size_t>(rank)];
    card.host = "host" + std::to_string(rank);
    card.place = {static_cast<std::uint8_t>(rank), 1, 2};
    for (int rail = 0; rail < rank; ++rail) {
      card.rail_ends.emplace_back().name = "rail" + std::to_string(rail);
      card.rail_addresses.push_back(
          bytes_of("address " + std::to_string(rail) + " of " + std::to_string(rank)));
    }
  }
  return cards;
}

TEST(RailDirectory, GivesBackTheRailsOfEveryRank) {
  for (const int ranks : {1, 2, 9}) {
    const auto cards = cards_of(ranks);
    std::vector<std::byte> memory(RailDirectory::bytes_for(cards));
    RailDirectory::write(cards, memory);
    const RailDirectory directory(memory);
    for (int rank = 0; rank < ranks; ++rank) {
      const Card& card = cards[static_cast<std::size_t>(rank)];
      const RankRails rails = directory.rails_of(rank);
      EXPECT_EQ(rails.host, card.host);
      EXPECT_EQ(rails.addresses, card.rail_addresses);
      ASSERT_EQ(rails.ends.size(), card.rail_ends.size());
      for (std::size_t i = 0; i < rails.ends.size(); ++i) {
        EXPECT_EQ(rails.ends[i].name, card.rail_ends[i].name);
      }
    }
    const auto places = directory.places(ranks);
    ASSERT_EQ(places.size(), cards.size());
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
      EXPECT_EQ(places[rank], cards[rank].place);
    }
    EXPECT_TRUE(directory.places(1'000'000).empty());
    EXPECT_THROW(directory.rails_of(-1), Error);
    EXPECT_THROW(directory.rails_of(ranks), Error);
    EXPECT_THROW(directory.rails_of(1'000'000), Error);
  }
}

TEST(RailDirectory, FindsNoRailsInMemoryThatIsDamaged) {
  const auto cards = cards_of(4);
  const std::uint64_t bytes = RailDirectory::bytes_for(cards);
  for (std::size_t at = 0; at < 5 * sizeof(std::uint64_t); ++at) {
    std::vector<std::byte> memory(bytes);
    RailDirectory::write(cards, memory);
    memory[at] ^= std::byte{0xFF};
    // Reading stays inside the memory: the sanitizer's builds look at that.
    for (int rank = 0; rank < 4; ++rank) {
      try {
        RailDirectory(memory).rails_of(rank);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::Internal);
      }
    }
  }
  EXPECT_THROW(RailDirectory().rails_of(0), Error);
}

}  // namespace
}  // namespace allrail
