#include "transport/pair_probe.hpp"

#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace allrail::transport {
namespace {

using Pairs = std::vector<RailPair>;

Pairs all_pairs(int lower, int higher) {
  Pairs pairs;
  for (int i = 0; i < std::min(lower, higher); ++i) pairs.push_back({i, i});
  for (int i = 0; i < lower; ++i) {
    for (int j = 0; j < higher; ++j) {
      if (i != j) pairs.push_back({i, j});
    }
  }
  return pairs;
}

TEST(PairProbe, TriesTheFirstPairsAtOnce) {
  const PairProbe probe(all_pairs(3, 2));
  EXPECT_EQ(probe.assigned(), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_FALSE(probe.none_answers());
}

TEST(PairProbe, GoesOnWhereAPairFails) {
  PairProbe probe(all_pairs(2, 2));
  probe.failed({0, 0});
  EXPECT_EQ(probe.assigned(), (Pairs{{1, 1}, {0, 0}})) << "1-1 is still being tried";
  probe.failed({1, 1});
  EXPECT_EQ(probe.assigned(), (Pairs{{0, 1}, {1, 0}}));
  probe.failed({0, 1});
  probe.failed({1, 0});
  EXPECT_TRUE(probe.none_answers());
  EXPECT_EQ(probe.assigned(), (Pairs{{0, 0}, {1, 1}})) << "and from the start again";
}

TEST(PairProbe, KeepsWhatAnsweredUntilItFails) {
  PairProbe probe(all_pairs(2, 2));
  probe.answered({0, 0});
  probe.failed({1, 1});
  probe.failed({1, 1});
  EXPECT_EQ(probe.assigned(), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_FALSE(probe.none_answers());
  probe.failed({0, 0});
  EXPECT_EQ(probe.assigned(), (Pairs{{0, 1}, {1, 0}}));
}

TEST(PairProbe, KeepsWhatWasUpForGood) {
  PairProbe probe(all_pairs(2, 2));
  probe.went_up({0, 0});
  for (int i = 0; i < 5; ++i) {
    probe.failed({0, 0});
    probe.failed({1, 1});
  }
  EXPECT_EQ(probe.assigned(), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_FALSE(probe.none_answers());
}

/// Whatever is cabled how, and in whichever order attempts end: as many links come up as there can.
TEST(PairProbe, FindsEveryCabling) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 3000; ++round) {
    const int lower = 1 + static_cast<int>(random() % 5);
    const int higher = 1 + static_cast<int>(random() % 5);
    // Rail i of the lower rank is on cable i.
    std::vector<int> cables(static_cast<std::size_t>(higher));
    for (int i = 0; i < higher; ++i) cables[static_cast<std::size_t>(i)] = i;
    std::ranges::shuffle(cables, random);
    const auto reaches = [&](const RailPair& pair) {
      return cables[static_cast<std::size_t>(pair.higher)] == pair.lower;
    };
    const auto possible = std::ranges::count_if(cables, [&](int cable) { return cable < lower; });
    PairProbe probe(all_pairs(lower, higher));
    std::set<int> up;
    for (int attempts = 0; std::ssize(up) < possible; ++attempts) {
      ASSERT_LT(attempts, 500) << lower << "x" << higher;
      Pairs tried = probe.assigned();
      std::erase_if(tried, [&](const RailPair& pair) { return up.contains(pair.lower); });
      ASSERT_FALSE(tried.empty());
      const RailPair pair = tried[random() % tried.size()];
      if (reaches(pair)) {
        probe.went_up(pair);
        up.insert(pair.lower);
      } else {
        probe.failed(pair);
      }
    }
    for (const RailPair& pair : probe.assigned()) {
      ASSERT_EQ(up.contains(pair.lower), reaches(pair));
    }
  }
}

}  // namespace
}  // namespace allrail::transport
