// Thousands of seeded runs of the whole fabric over fake rails that lose, delay, repeat and freeze.
// A failing seed is printed; `--seed N` (or FABRIC_SEED=N) runs it alone, `--runs N` sets how many.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "lib/base/log.hpp"
#include "tests/property/effort.hpp"
#include "tests/property/fabric/traffic.hpp"
#include "tests/property/fabric/world.hpp"
#include "transport/striping.hpp"

namespace allrail::transport {

std::uint64_t only_seed = 0;
std::uint64_t run_count = 3000 / property::kOneOf;

namespace {

TEST(FabricProperty, EveryPutArrivesOnceWithItsBytes) {
  RunResult all;
  const std::uint64_t first = only_seed != 0 ? only_seed : 1;
  const std::uint64_t last = only_seed != 0 ? only_seed : run_count;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const RunResult result = run_traffic(seed);
    ASSERT_EQ(result.error, "") << "run it again with --seed " << seed;
    all.chunks += result.chunks;
    all.fences += result.fences;
    all.replays += result.replays;
    all.held += result.held;
    all.duplicates += result.duplicates;
  }
  std::printf(
      "%llu chunks, %llu fences, %llu replays, %llu duplicates, %llu held\n",
      static_cast<unsigned long long>(all.chunks), static_cast<unsigned long long>(all.fences),
      static_cast<unsigned long long>(all.replays), static_cast<unsigned long long>(all.duplicates),
      static_cast<unsigned long long>(all.held));
  if (only_seed != 0) return;
  // The runs must reach what they are about.
  EXPECT_GT(all.fences, run_count / 2);
  EXPECT_GT(all.held, run_count);
  EXPECT_GT(all.replays, run_count / 2);
  EXPECT_GT(all.duplicates, run_count / 2);
}

TEST(FabricProperty, LosingAllRailsForEverIsAFailureThatNamesThePeer) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions options;
    options.seed = seed;
    options.ranks = 3;
    options.rails.resize(1 + seed % 3);
    World world(options);
    world.connect_all();
    ASSERT_TRUE(world.run_until(
        [&] { return world.fabric(0).connected(2) && world.fabric(2).connected(0); },
        2'000'000'000));
    const std::vector<std::byte> data(1U << 19);
    Put put;
    put.peer = 2;
    put.from = data.data();
    put.bytes = data.size();
    world.fabric(0).put(put);
    const std::uint64_t number = world.fabric(2).expect(0, data.size());
    for (std::uint64_t i = 0; i < seed; ++i) world.step(10'000);
    for (std::size_t rail = 0; rail < options.rails.size(); ++rail)
      world.network().cut(static_cast<int>(rail), 0, 2, FakeCut{});
    EXPECT_TRUE(world.run_until(
        [&] { return world.fabric(0).failure() && world.fabric(2).failure(); }, 10'000'000'000));
    ASSERT_TRUE(world.fabric(0).failure());
    EXPECT_EQ(world.fabric(0).failure()->peer, 2);
    EXPECT_NE(world.fabric(0).failure()->text.find("rank 0"), std::string::npos);
    EXPECT_NE(world.fabric(0).failure()->text.find("rank 2"), std::string::npos);
    EXPECT_NE(world.fabric(0).failure()->text.find("fake0"), std::string::npos);
    ASSERT_TRUE(world.fabric(2).failure());
    EXPECT_EQ(world.fabric(2).failure()->peer, 0);
    EXPECT_FALSE(world.fabric(1).failure());
    EXPECT_FALSE(world.fabric(2).arrived(0, number));
  }
}

TEST(FabricProperty, ASilentRailIsLeftWhileItsSiblingAnswers) {
  WorldOptions options;
  options.rails.resize(2);
  World world(options);
  world.connect_all();
  for (int i = 0; i < 100; ++i) world.step();
  FakeCut silent;  // no end is told for at least four seconds
  silent.silent = true;
  silent.late_chance = 0;
  world.network().cut(1, 0, 1, silent);
  const std::vector<std::byte> data(1U << 19);
  Put put;
  put.peer = 1;
  put.from = data.data();
  put.bytes = data.size();
  world.fabric(0).put(put);
  const std::uint64_t number = world.fabric(1).expect(0, data.size());
  EXPECT_TRUE(world.run_until([&] { return world.fabric(1).arrived(0, number); }, 1'500'000'000));
  EXPECT_EQ(world.fabric(0).counters()[1].fences, 1U);
  EXPECT_GT(world.fabric(0).counters()[0].replays, 0U);
}

TEST(FabricProperty, ARailThatComesAndGoesForEverDoesNotFillTheLog) {
  WorldOptions options;
  options.rails.resize(2);
  World world(options);
  world.connect_all();
  const auto is_up = [&](std::uint64_t reconnects) {
    return [&world, reconnects] {
      return world.fabric(0).counters()[1].reconnects == reconnects && world.fabric(0).connected(1);
    };
  };
  for (int i = 0; i < 100; ++i) world.step();
  FakeCut cut;
  cut.late_chance = 0;
  testing::internal::CaptureStderr();
  base::set_log(base::Level::Warning, 0);
  constexpr std::uint64_t kLosses = 40;
  for (std::uint64_t loss = 1; loss <= kLosses; ++loss) {
    world.network().cut(1, 0, 1, cut);
    const auto is_lost = [&] { return world.fabric(0).counters()[1].fences == loss; };
    ASSERT_TRUE(world.run_until(is_lost, 10'000'000'000)) << loss;
    world.network().heal(1, 0, 1);
    ASSERT_TRUE(world.run_until(is_up(loss), 10'000'000'000)) << loss;
  }
  base::set_log(base::Level::Off, -1);
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line = "rail fake1 to rank 1 is down";
  int told = 0;
  for (auto at = log.find(line); at != std::string::npos; at = log.find(line, at + 1)) ++told;
  EXPECT_EQ(told, 8 + 2) << log;  // the first eight, the 16th and the 32nd
  EXPECT_NE(log.find("is down (loss 32; the next to be told is loss 64)"), std::string::npos)
      << log;
}

// 20 and 40 Mbit/s, and devices that send again what is not acknowledged within 67 ms: 256 KiB,
// which any link may have in flight otherwise, would be sent twice.
TEST(FabricProperty, NoMoreIsInFlightThanComesBeforeItIsSentAgain) {
  constexpr std::int64_t kResendNs = 67'000'000;
  WorldOptions options;
  options.rails.resize(2);
  options.rails[0].bytes_per_second = 5e6;
  options.rails[1].bytes_per_second = 2.5e6;
  for (FakeRailOptions& rail : options.rails) {
    rail.delay_ns = 500'000;
    rail.resend_after_ns = kResendNs;
  }
  World world(options);
  world.connect_all();
  for (int i = 0; i < 100; ++i) world.step();
  const std::vector<std::byte> data(kWorldMemoryBytes);
  for (int round = 0; round < 6; ++round) {
    std::array<std::uint64_t, 2> numbers{};
    for (const int rank : {0, 1}) {
      const auto at = static_cast<std::size_t>(rank);
      world.fabric(rank).put({.peer = 1 - rank, .from = data.data(), .bytes = data.size()});
      numbers[at] = world.fabric(rank).expect(1 - rank, data.size());
    }
    ASSERT_TRUE(world.run_until(
        [&] {
          return world.fabric(0).arrived(1, numbers[0]) && world.fabric(1).arrived(0, numbers[1]);
        },
        10'000'000'000));
    for (const int rank : {0, 1}) {
      world.fabric(rank).consume(1 - rank, numbers[static_cast<std::size_t>(rank)]);
    }
  }
  for (const int rank : {0, 1}) {
    for (const int rail : {0, 1}) {
      const FakeNetwork::Use use = world.network().use({rank, rail}, {1 - rank, rail});
      const double rate = options.rails[static_cast<std::size_t>(rail)].bytes_per_second;
      const double allowed =
          std::max(rate * kResendNs / 1e9 / 2, static_cast<double>(kLeastWindowBytes));
      // A chunk is begun while there is room, and chunks are 64 KiB at most here.
      EXPECT_LT(use.most_bytes, 1.1 * allowed + 65'536) << rank << ", rail " << rail;
      EXPECT_GT(use.most_bytes, 0.5 * allowed) << "the rail was used";
      EXPECT_LT(use.longest_ns, kResendNs) << rank << ", rail " << rail;
    }
  }
}

TEST(FabricProperty, APeerThatIsSilentOnAllRailsIsMerelySlow) {
  WorldOptions options;
  options.rails.resize(2);
  World world(options);
  world.connect_all();
  for (int i = 0; i < 100; ++i) world.step();
  for (int rail = 0; rail < 2; ++rail) world.network().freeze(rail, 1, 0, 10'000'000'000);
  const std::vector<std::byte> data(1U << 19);
  Put put;
  put.peer = 1;
  put.from = data.data();
  put.bytes = data.size();
  const std::uint64_t number = world.fabric(0).put(put);
  world.fabric(1).expect(0, data.size());
  EXPECT_TRUE(
      world.run_until([&] { return world.fabric(0).completed(1, number); }, 11'000'000'000));
  EXPECT_FALSE(world.fabric(0).failure());
  for (const RailCounters& rail : world.fabric(0).counters()) EXPECT_EQ(rail.fences, 0U);
}

TEST(FabricProperty, TheGoodbyeDoesNotLieInARail) {
  WorldOptions options;
  options.rails.resize(2);
  World world(options);
  world.connect_all();
  ASSERT_TRUE(world.run_until([&] { return world.fabric(0).connected(1); }, 1'000'000'000));
  world.fabric(0).say_goodbye();
  EXPECT_TRUE(world.network().all_submitted(0));
}

// The peer has what it needed, and says so over one rail before the other one acknowledges.
TEST(FabricProperty, AcknowledgementsBehindAGoodbyeEndNothingTwice) {
  WorldOptions options;
  options.ranks = 3;
  options.rails.resize(2);
  options.rails[1].delay_ns = 5'000'000;
  World world(options);
  world.connect_all();
  Fabric& mine = world.fabric(1);
  ASSERT_TRUE(world.run_until(
      [&] {
        return mine.partner(0, 0) >= 0 && mine.partner(0, 1) >= 0 && mine.partner(2, 0) >= 0 &&
               world.fabric(0).partner(1, 0) >= 0;
      },
      1'000'000'000));
  const std::vector<std::byte> data(256U << 10);
  const auto put = [&](int peer, std::uint64_t call, std::size_t bytes) {
    world.fabric(peer).expect(1, bytes);
    return mine.put({.peer = peer, .from = data.data(), .bytes = bytes, .call = call});
  };
  const std::uint64_t number = put(0, 1, data.size());
  const std::uint64_t other = put(2, 2, 100);
  world.fabric(0).say_goodbye();
  ASSERT_TRUE(world.run_until([&] { return mine.completed(0, number) && mine.completed(2, other); },
                              4'000'000));
  EXPECT_EQ(mine.oldest_open_call(), UINT64_MAX);
  for (int i = 0; i < 100; ++i) world.step();
  EXPECT_EQ(mine.oldest_open_call(), UINT64_MAX);
  const std::uint64_t later = put(2, 3, 100);
  EXPECT_EQ(mine.oldest_open_call(), 3U);
  EXPECT_TRUE(world.run_until([&] { return mine.completed(2, later); }, 1'000'000'000));
  EXPECT_EQ(mine.oldest_open_call(), UINT64_MAX);
}

TEST(FabricProperty, APeerThatWasNeverThereIsWaitedFor) {
  World world(WorldOptions{});
  world.fabric(0).connect(1, world.rails_of(0, 1));
  const std::vector<std::byte> data(100);
  Put put;
  put.peer = 1;
  put.from = data.data();
  put.bytes = data.size();
  world.fabric(0).put(put);
  world.fabric(0).expect(1, 8);
  EXPECT_FALSE(
      world.run_until([&] { return world.fabric(0).failure().has_value(); }, 60'000'000'000));
}

TEST(FabricProperty, NoPairThatAnswersIsAFailureThatNamesBothEnds) {
  WorldOptions options;
  options.rails.resize(2);
  options.cables = {{0, 1}, {2, 3}};
  options.fabric.connect_limit_ns = 5'000'000'000;
  options.fabric.host = "hostname";
  World world(options);
  world.connect_all();
  const std::vector<std::byte> data(100);
  Put put;
  put.peer = 1;
  put.from = data.data();
  put.bytes = data.size();
  world.fabric(0).put(put);
  ASSERT_TRUE(
      world.run_until([&] { return world.fabric(0).failure().has_value(); }, 12'000'000'000));
  const FabricFailure& failure = *world.fabric(0).failure();
  EXPECT_EQ(failure.peer, 1);
  for (const char* word :
       {"rank 0 on host hostname", "rank 1 on host host1", "fake0 to fake0: connecting timed out",
        "fake0 to fake1: connecting timed out", "fake1 to fake0: connecting timed out",
        "fake1 to fake1: connecting timed out", "ALLRAIL_RAIL_PAIRS", "ALLRAIL_RAILS"})
    EXPECT_NE(failure.text.find(word), std::string::npos) << word << " is not in: " << failure.text;
}

TEST(FabricProperty, ARailWithoutPartnerTakesNoPart) {
  WorldOptions options;
  options.rails.resize(3);
  options.cables = {{2, 0, 1}, {1, 2}};
  World world(options);
  world.connect_all();
  const auto partners = [&](int rank, int rail) {
    return world.fabric(rank).partner(1 - rank, rail);
  };
  ASSERT_TRUE(world.run_until(
      [&] { return partners(0, 0) == 1 && partners(0, 2) == 0 && partners(1, 1) == 0; },
      3'000'000'000));
  EXPECT_EQ(partners(0, 1), -1);
  const std::vector<std::byte> data(1U << 18);
  Put put;
  put.peer = 1;
  put.from = data.data();
  put.bytes = data.size();
  world.fabric(0).put(put);
  const std::uint64_t number = world.fabric(1).expect(0, data.size());
  ASSERT_TRUE(world.run_until([&] { return world.fabric(1).arrived(0, number); }, 100'000'000));
  const std::vector<RailCounters> rails = world.fabric(0).counters();
  EXPECT_GT(rails[0].chunks_sent, 0U);
  EXPECT_GT(rails[2].chunks_sent, 0U);
  EXPECT_EQ(rails[1].chunks_sent + rails[1].fences + rails[1].reconnects, 0U);
  EXPECT_FALSE(world.fabric(0).failure());
}

TEST(FabricProperty, APeerThatAnswersAndComesLateKeepsTheFirstPairs) {
  WorldOptions options;
  options.rails.resize(2);
  options.cables = {{0, 0}, {0, 0}};  // all reach each other
  World world(options);
  world.fabric(0).connect(1, world.rails_of(0, 1));
  EXPECT_FALSE(world.run_until([&] { return world.fabric(0).connected(1); }, 20'000'000'000));
  world.fabric(1).connect(0, world.rails_of(1, 0));
  ASSERT_TRUE(world.run_until(
      [&] { return world.fabric(0).partner(1, 0) == 0 && world.fabric(0).partner(1, 1) == 1; },
      100'000'000));
}

}  // namespace
}  // namespace allrail::transport

int main(int argc, char** argv) {
  using namespace allrail;
  testing::InitGoogleTest(&argc, argv);
  if (const char* seed = std::getenv("FABRIC_SEED"))
    transport::only_seed = std::strtoull(seed, nullptr, 10);
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--seed") == 0)
      transport::only_seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--runs") == 0)
      transport::run_count = std::strtoull(argv[i + 1], nullptr, 10);
  }
  base::set_log(base::Level::Off, -1);
  return RUN_ALL_TESTS();
}
