// When an alltoallv goes by the counts of an earlier one, and with how much room.
#include "lib/expected_counts.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace allrail {
namespace {

using Counts = std::vector<std::uint64_t>;

constexpr std::uint64_t kPrefixBytes = ExpectedCounts::kPrefixBytes;

/// All send as much to all others, and nothing to themselves.
Counts uniform(std::size_t ranks, std::uint64_t bytes) {
  Counts counts(ranks * ranks, bytes);
  for (std::size_t rank = 0; rank < ranks; ++rank) counts[rank * ranks + rank] = 0;
  return counts;
}

/// Two ranks that send each other so much.
Counts pair(std::uint64_t to_second, std::uint64_t to_first) { return {0, to_second, to_first, 0}; }

Counts envelopes_of(const ExpectedCounts& expected) {
  return {expected.envelopes().begin(), expected.envelopes().end()};
}

Counts envelopes_for(const Counts& counts, std::size_t ranks) {
  ExpectedCounts expected;
  expected.learn(counts, ranks);
  return envelopes_of(expected);
}

bool is_worth_it(const Counts& counts, std::size_t ranks) {
  ExpectedCounts expected;
  expected.learn(counts, ranks);
  EXPECT_EQ(expected.is_sure(), !expected.envelopes().empty());
  return expected.is_sure();
}

/// A call whose block does not fit, and whose counts are exchanged then.
void fail(ExpectedCounts& expected, const Counts& counts, std::size_t ranks) {
  ASSERT_TRUE(expected.is_sure());
  expected.did_not_fit();
  EXPECT_FALSE(expected.is_sure());
  expected.learn(counts, ranks);
  EXPECT_FALSE(expected.is_sure()) << "they have to fit once more at least";
}

/// How many calls of these counts have to be exchanged until one goes by them.
int calls_until_sure(ExpectedCounts& expected, const Counts& counts, std::size_t ranks) {
  constexpr int kTooMany = 100;
  int calls = 0;
  for (; !expected.is_sure() && calls < kTooMany; ++calls) expected.learn(counts, ranks);
  return calls;
}

TEST(ExpectedCounts, AreSureAsSoonAsOneCallIsKnown) {
  ExpectedCounts expected;
  EXPECT_FALSE(expected.is_sure());
  EXPECT_TRUE(expected.envelopes().empty());
  const std::uint64_t version = expected.version();
  expected.learn(uniform(3, 1000), 3);
  EXPECT_TRUE(expected.is_sure());
  EXPECT_NE(expected.version(), version);
  EXPECT_EQ(envelopes_of(expected), uniform(3, 1024));
  expected.fitted(6 * 1000, 0);
  EXPECT_TRUE(expected.is_sure());
}

TEST(ExpectedCounts, GiveEnvelopesOfWholeLinesThatHoldThePrefixAsWell) {
  for (const std::size_t ranks : {2, 3, 64, 65, 200, 256}) {
    const std::uint64_t least_bytes = ranks <= 64 ? 256 : 64;
    for (const std::uint64_t bytes : {0, 1, 47, 48, 49, 111, 112, 113, 239, 240, 241, 304, 305}) {
      std::uint64_t envelope = least_bytes;
      while (envelope < bytes + kPrefixBytes) envelope += 64;
      EXPECT_EQ(envelopes_for(uniform(ranks, bytes), ranks), uniform(ranks, envelope))
          << bytes << " bytes, " << ranks << " ranks";
    }
  }
}

TEST(ExpectedCounts, GiveEveryPairAnEnvelopeOfItsOwnAndNobodyOneForItself) {
  const Counts counts{5000, 0, 240, 241, 5000, 1000, 3000, 1008, 5000};
  EXPECT_EQ(envelopes_for(counts, 3), (Counts{0, 256, 256, 320, 0, 1024, 3072, 1024, 0}));
}

TEST(ExpectedCounts, KeepTheEnvelopesForAllThatFits) {
  const Counts first{0, 1000, 0, 300, 0, 500, 700, 10, 0};
  ExpectedCounts expected;
  expected.learn(first, 3);
  const Counts envelopes = envelopes_of(expected);
  const std::uint64_t version = expected.version();

  Counts largest = envelopes;
  for (std::uint64_t& bytes : largest) bytes -= bytes > 0 ? kPrefixBytes : 0;
  Counts with_own = largest;
  for (const std::size_t rank : {0, 1, 2}) with_own[rank * 3 + rank] = 100'000;
  for (const Counts& counts : {first, largest, with_own, uniform(3, 200)}) {
    expected.learn(counts, 3);
    EXPECT_TRUE(expected.is_sure());
    EXPECT_EQ(expected.version(), version);
    EXPECT_EQ(envelopes_of(expected), envelopes);
  }
  for (std::size_t pair = 0; pair < 9; ++pair) {
    if (envelopes[pair] == 0) continue;
    ExpectedCounts other = expected;
    Counts counts = largest;
    ++counts[pair];
    other.learn(counts, 3);
    EXPECT_NE(other.version(), version) << "one byte more in " << pair;
    EXPECT_EQ(other.envelopes()[pair], envelopes[pair] + 64);
  }
}

TEST(ExpectedCounts, WaitLongerAfterEachBlockThatDidNotFit) {
  ExpectedCounts expected;
  std::uint64_t bytes = 500;
  expected.learn(uniform(5, bytes), 5);
  for (const int waits : {1, 3, 7, 15, 15, 15, 15}) {
    const std::uint64_t version = expected.version();
    bytes += 500;
    fail(expected, uniform(5, bytes), 5);
    EXPECT_NE(expected.version(), version);
    EXPECT_GE(expected.envelopes()[1], bytes + kPrefixBytes);
    EXPECT_EQ(calls_until_sure(expected, uniform(5, bytes), 5), waits);
  }
}

TEST(ExpectedCounts, WaitAnewWhereCountsDoNotFitEitherButNotForLonger) {
  ExpectedCounts expected;
  expected.learn(pair(500, 500), 2);
  fail(expected, pair(1000, 500), 2);
  ASSERT_EQ(calls_until_sure(expected, pair(1000, 500), 2), 1);
  fail(expected, pair(1500, 500), 2);
  expected.learn(pair(1500, 500), 2);
  expected.learn(pair(1500, 500), 2);
  EXPECT_FALSE(expected.is_sure());
  expected.learn(pair(1500, 1000), 2);
  EXPECT_EQ(calls_until_sure(expected, pair(1500, 1000), 2), 3);
  fail(expected, pair(2000, 1000), 2);
  EXPECT_EQ(calls_until_sure(expected, pair(2000, 1000), 2), 7);
}

TEST(ExpectedCounts, WaitForHalfAsManyAfterEachCallThatFitted) {
  // Calls that fitted, and how long a failure waits then: twice what is left, and one more.
  const std::vector<std::pair<int, int>> cases{{0, 15}, {1, 15}, {2, 7}, {3, 3}, {4, 1}, {9, 1}};
  for (const auto& [fitted, waits] : cases) {
    ExpectedCounts expected;
    std::uint64_t bytes = 500;
    expected.learn(pair(bytes, bytes), 2);
    for (const int waits_before : {1, 3, 7, 15}) {
      bytes += 500;
      fail(expected, pair(bytes, bytes), 2);
      ASSERT_EQ(calls_until_sure(expected, pair(bytes, bytes), 2), waits_before);
    }
    for (int call = 0; call < fitted; ++call) {
      expected.fitted(2 * bytes, 0);
      ASSERT_TRUE(expected.is_sure());
    }
    bytes += 500;
    fail(expected, pair(bytes, bytes), 2);
    EXPECT_EQ(calls_until_sure(expected, pair(bytes, bytes), 2), waits)
        << fitted << " calls that fitted";
  }
}

// Two ranks that send each other 2000 bytes have 4096 bytes of envelopes, and 1024 bytes are the
// least of four envelopes: less than half is used where fewer than 1024 bytes travel.
TEST(ExpectedCounts, GiveUpEnvelopesThatAreMuchTooLargeForACallThatFitted) {
  ExpectedCounts expected;
  expected.learn(pair(2000, 2000), 2);
  const std::uint64_t version = expected.version();
  expected.fitted(1024, 0);
  EXPECT_TRUE(expected.is_sure());
  EXPECT_EQ(expected.version(), version);
  EXPECT_EQ(envelopes_of(expected), pair(2048, 2048));
  expected.fitted(1023, 0);
  EXPECT_FALSE(expected.is_sure());
  EXPECT_NE(expected.version(), version);
  EXPECT_TRUE(expected.envelopes().empty());
  const std::uint64_t version_without = expected.version();
  expected.learn(pair(1023, 0), 2);
  EXPECT_TRUE(expected.is_sure()) << "nothing failed";
  EXPECT_NE(expected.version(), version_without);
  EXPECT_EQ(envelopes_of(expected), pair(1088, 256));
  expected.fitted(0, 0);
  EXPECT_TRUE(expected.is_sure()) << "small ones are never much too large";
}

TEST(ExpectedCounts, GiveUpEnvelopesOfManyRanksWithoutRoomToSpare) {
  for (const std::size_t ranks : {65, 200}) {
    ExpectedCounts expected;
    expected.learn(uniform(ranks, 200), ranks);
    ASSERT_TRUE(expected.is_sure());
    expected.fitted(0, 0);
    EXPECT_FALSE(expected.is_sure()) << ranks;
  }
}

TEST(ExpectedCounts, GiveUpEnvelopesThatAreMuchTooLargeForCountsThatWereExchanged) {
  ExpectedCounts expected;
  expected.learn(pair(500, 500), 2);
  fail(expected, pair(1000, 1000), 2);
  ASSERT_EQ(calls_until_sure(expected, pair(1000, 1000), 2), 1);
  fail(expected, pair(2000, 2000), 2);
  const std::uint64_t version = expected.version();
  expected.learn(pair(24, 1000), 2);
  EXPECT_EQ(expected.version(), version);
  EXPECT_EQ(envelopes_of(expected), pair(2048, 2048));
  expected.learn(pair(23, 1000), 2);
  EXPECT_NE(expected.version(), version);
  EXPECT_EQ(envelopes_of(expected), pair(256, 1024));
  EXPECT_EQ(calls_until_sure(expected, pair(23, 1000), 2), 3) << "all have to fit the new ones";
}

TEST(ExpectedCounts, DoNotWaitAfterTheyGaveUpEvenIfSomethingFailedBefore) {
  ExpectedCounts expected;
  expected.learn(pair(500, 500), 2);
  for (const std::uint64_t bytes : {1000, 2000, 3000}) {
    fail(expected, pair(bytes, bytes), 2);
    calls_until_sure(expected, pair(bytes, bytes), 2);
  }
  expected.fitted(0, 0);
  EXPECT_FALSE(expected.is_sure());
  expected.learn(pair(500, 500), 2);
  EXPECT_TRUE(expected.is_sure());
  fail(expected, pair(1000, 500), 2);
  EXPECT_EQ(calls_until_sure(expected, pair(1000, 500), 2), 7) << "the failures still count";
}

TEST(ExpectedCounts, NeverGiveUpWhatTheyHaveJustMade) {
  for (const std::size_t ranks : {2, 3, 64, 65, 256}) {
    for (const std::uint64_t bytes : {0, 1, 240, 241, 1000}) {
      ExpectedCounts expected;
      expected.learn(uniform(ranks, bytes), ranks);
      expected.fitted(bytes * ranks * (ranks - 1), 0);
      EXPECT_TRUE(expected.is_sure()) << ranks << " ranks, " << bytes << " bytes";
    }
  }
}

TEST(ExpectedCounts, AreForSomeRanksOnly) {
  EXPECT_EQ(ExpectedCounts::kMostRanks, 256U);
  EXPECT_FALSE(is_worth_it({0}, 1)) << "nobody to send to";
  EXPECT_TRUE(is_worth_it(uniform(2, 8), 2));
  EXPECT_TRUE(is_worth_it(uniform(ExpectedCounts::kMostRanks, 8), ExpectedCounts::kMostRanks));
  const std::size_t too_many = ExpectedCounts::kMostRanks + 1;
  EXPECT_FALSE(is_worth_it(uniform(too_many, 8), too_many));
}

TEST(ExpectedCounts, AreForRanksThatSendAndAwaitLittle) {
  constexpr std::uint64_t kMost = ExpectedCounts::kMostRankBytes;
  EXPECT_EQ(kMost, 4096U * 1024);
  EXPECT_TRUE(is_worth_it(pair(kMost, 8), 2));
  EXPECT_FALSE(is_worth_it(pair(kMost + 1, 8), 2));
  EXPECT_TRUE(is_worth_it({2 * kMost, 8, 8, kMost + 1}, 2)) << "what ranks keep moves nowhere";
  EXPECT_EQ(envelopes_for(pair(kMost, 8), 2), pair(kMost + 64, 256));
  for (const std::size_t ranks : {3, 5}) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      Counts sent = uniform(ranks, 0);
      Counts awaited = uniform(ranks, 0);
      const std::size_t other = (rank + 1) % ranks;
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        if (peer == rank || peer == other) continue;
        sent[rank * ranks + peer] = 100;
        awaited[peer * ranks + rank] = 100;
      }
      sent[rank * ranks + other] = kMost - 100 * (ranks - 2);
      awaited[other * ranks + rank] = kMost - 100 * (ranks - 2);
      EXPECT_TRUE(is_worth_it(sent, ranks));
      EXPECT_TRUE(is_worth_it(awaited, ranks));
      ++sent[rank * ranks + other];
      ++awaited[other * ranks + rank];
      EXPECT_FALSE(is_worth_it(sent, ranks)) << rank << " of " << ranks << " sends one byte more";
      EXPECT_FALSE(is_worth_it(awaited, ranks)) << rank << " of " << ranks << " awaits it";
    }
  }
}

TEST(ExpectedCounts, AreNotForNumbersWhoseSumsAreSmallAgain) {
  constexpr std::uint64_t kMax = UINT64_MAX;
  constexpr std::uint64_t kHalf = 1ULL << 63;
  const Counts halves = uniform(3, kHalf);
  const Counts wraps{0, kMax, 1, 1, 0, kMax, kMax, 1, 0};
  for (const Counts& counts : {halves, wraps, uniform(3, kMax), uniform(3, kMax - 14)}) {
    EXPECT_FALSE(is_worth_it(counts, 3));
    ExpectedCounts expected;
    expected.learn(uniform(3, 100), 3);
    expected.did_not_fit();
    expected.learn(counts, 3);
    EXPECT_TRUE(expected.envelopes().empty()) << "what does not fit is no reason to keep them";
    expected.learn(counts, 3);
    EXPECT_FALSE(expected.is_sure());
  }
}

TEST(ExpectedCounts, WaitAfterAFailureAlsoWhereItsCountsWereNotWorthIt) {
  ExpectedCounts expected;
  expected.learn(pair(500, 500), 2);
  fail(expected, pair(500, ExpectedCounts::kMostRankBytes + 1), 2);
  EXPECT_TRUE(expected.envelopes().empty());
  expected.learn(pair(500, 500), 2);
  EXPECT_FALSE(expected.is_sure());
  EXPECT_EQ(envelopes_of(expected), pair(576, 576));
  EXPECT_EQ(calls_until_sure(expected, pair(500, 500), 2), 1);
}

TEST(ExpectedCounts, ExpectNothingForSomeCallsWhereThereIsNoRoom) {
  ExpectedCounts expected;
  expected.learn(pair(500, 500), 2);
  for (int time = 0; time < 2; ++time) {
    const std::uint64_t version = expected.version();
    expected.has_no_room();
    EXPECT_FALSE(expected.is_sure());
    EXPECT_TRUE(expected.envelopes().empty());
    EXPECT_NE(expected.version(), version);
    expected.learn(pair(500, 500), 2);
    EXPECT_EQ(calls_until_sure(expected, pair(500, 500), 2), 15);
  }
  expected.fitted(1000, 0);
  fail(expected, pair(1000, 500), 2);
  EXPECT_EQ(calls_until_sure(expected, pair(1000, 500), 2), 15) << "7, twice and one more";
}

TEST(ExpectedCounts, KnowTheLongestBlockOfTheNewestCall) {
  ExpectedCounts expected;
  expected.learn(Counts{0, 300, 20, 10, 0, 1000, 7, 999, 0}, 3);
  EXPECT_EQ(expected.longest_bytes(), 1000U);
  expected.learn(Counts{0, 300, 20, 10, 0, 800, 7, 999, 5000}, 3);
  EXPECT_EQ(expected.longest_bytes(), 5000U) << "also of what stays, and where they are kept";
  expected.fitted(3000, 900);
  EXPECT_EQ(expected.longest_bytes(), 900U);
  expected.learn(Counts{0, 300, 1500, 10, 0, 1001, 7, 999, 0}, 3);
  EXPECT_EQ(expected.longest_bytes(), 1500U);
}

/// What one call of World does with these counts.
void call(ExpectedCounts& expected, const Counts& counts, std::size_t ranks) {
  if (expected.is_sure()) {
    bool all_fit = true;
    for (std::size_t pair = 0; pair < counts.size(); ++pair) {
      if (pair / ranks == pair % ranks) continue;
      all_fit = all_fit && counts[pair] + kPrefixBytes <= expected.envelopes()[pair];
    }
    if (all_fit) {
      expected.fitted(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}), 0);
      return;
    }
    expected.did_not_fit();
  }
  expected.learn(counts, ranks);
}

// They stand apart in memory and one of them was used and copied before: nothing but what it is fed
// may count.
TEST(ExpectedCounts, DecideAlikeWhereTheyAreFedTheSame) {
  std::mt19937 random(20261130);
  for (const std::size_t ranks : {2, 3, 7}) {
    std::vector<ExpectedCounts> all(ranks);
    int sure = 0;
    for (int round = 0; round < 400; ++round) {
      // Mostly a call as the others, sometimes a larger one: it fails, or is forgotten later.
      const std::uint64_t most = round % 20 == 0 ? 240ULL << random() % 5 : 240;
      Counts counts(ranks * ranks);
      for (std::uint64_t& bytes : counts) bytes = random() % most;
      for (ExpectedCounts& expected : all) call(expected, counts, ranks);
      for (const ExpectedCounts& expected : all) {
        ASSERT_EQ(expected.is_sure(), all.front().is_sure()) << "call " << round;
        ASSERT_EQ(expected.version(), all.front().version()) << "call " << round;
        ASSERT_EQ(envelopes_of(expected), envelopes_of(all.front())) << "call " << round;
      }
      sure += all.front().is_sure() ? 1 : 0;
      all.back() = ExpectedCounts(all.back());
    }
    EXPECT_GT(sure, 40) << ranks << " ranks";
    EXPECT_LT(sure, 400) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace allrail
