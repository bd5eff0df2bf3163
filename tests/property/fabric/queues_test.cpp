// Puts that are not cut take rails by turns as long as no rail falls behind, and fill each by what
// it can carry where one does: streams, and puts that are answered.
#include <array>
#include <cstdint>
#include <deque>

#include <gtest/gtest.h>

#include "tests/property/fabric/world.hpp"

namespace allrail::transport {
namespace {

constexpr std::uint64_t kOpenPuts = 16;  // so many calls may be under way
constexpr std::uint64_t kTurnPuts = 8;   // in a row over the same rail, as the engine asks for

struct Options {
  double first_rate = 60e6;  // bytes per second
  double second_rate = 60e6;
  std::int64_t saved_up_ns = 0;  // by either rail
  std::uint64_t put_bytes = 0;
  std::uint64_t puts = 5'000;
  std::uint64_t open_puts = kOpenPuts;
  bool is_answered = false;
  bool loses_second = false;  // the second rail, for the middle third
};

struct Outcome {
  double first_share = 0;  // of the chunks, that the first rail carried
  double seconds = 0;
  std::uint64_t second_after_return = 0;  // chunks over it of two turns, where it was lost
};

/// A stream from rank 0 to rank 1 over two rails.
class Stream {
 public:
  explicit Stream(const Options& options) : options_(options), world_(world_of(options)) {
    world_.connect_all();
    world_.run_until([] { return false; }, 10'000'000);  // both rails are up
  }

  Outcome run() {
    const std::int64_t start_ns = world_.network().now_ns();
    for (std::uint64_t i = 0; i < options_.puts; ++i) {
      if (options_.loses_second && i == options_.puts / 3) lose_second();
      if (options_.loses_second && i == options_.puts / 3 * 2) heal_second();
      if (open_.size() == options_.open_puts) take_oldest();
      put(i);
      if (i + 1 == options_.puts / 3 * 2) second_before_return_ = second_chunks();
      if (i + 1 == options_.puts / 3 * 2 + 2 * kTurnPuts) {
        second_after_return_ = second_chunks() - second_before_return_;
      }
    }
    while (!open_.empty()) take_oldest();
    const auto chunks = static_cast<double>(from().counters()[0].chunks_sent);
    return {chunks / static_cast<double>(options_.puts),
            static_cast<double>(world_.network().now_ns() - start_ns) / 1e9, second_after_return_};
  }

 private:
  static WorldOptions world_of(const Options& options) {
    WorldOptions world;
    world.rails.resize(2);
    world.rails[0].bytes_per_second = options.first_rate;
    world.rails[1].bytes_per_second = options.second_rate;
    for (FakeRailOptions& rail : world.rails) rail.saved_up_ns = options.saved_up_ns;
    world.memory_bytes = options.open_puts * options.put_bytes;
    return world;
  }

  void lose_second() {
    world_.network().cut(1, 0, 1, {});
    world_.run_until([] { return false; }, 20'000'000);  // both ends know
  }

  void heal_second() {
    world_.network().heal(1, 0, 1);
    const auto is_back = [&] { return from().counters()[1].reconnects == 1; };
    EXPECT_TRUE(world_.run_until(is_back, 5'000'000'000));
    world_.run_until([] { return false; }, 20'000'000);
  }

  void put(std::uint64_t number) {
    Put put;
    put.peer = 1;
    put.from = world_.memory(0).data();
    put.bytes = options_.put_bytes;
    put.offset = number % options_.open_puts * options_.put_bytes;
    put.coalesce = !options_.is_answered;
    put.port = static_cast<int>(number / kTurnPuts);
    from().put(put);
    open_.push_back(to().expect(0, options_.put_bytes));
  }

  void take_oldest() {
    const std::uint64_t oldest = open_.front();
    open_.pop_front();
    // One that is alone is completed, too, before the next one begins.
    const auto is_done = [&] {
      return to().arrived(0, oldest) && (options_.open_puts > 1 || from().completed(1, oldest));
    };
    // What is looked at late is gone, and nobody knows since when.
    while (options_.is_answered && !is_done()) world_.step(10'000);
    EXPECT_TRUE(world_.run_until(is_done, 1'000'000'000));
    to().consume(0, oldest);
  }

  std::uint64_t second_chunks() { return from().counters()[1].chunks_sent; }

  Fabric& from() { return world_.fabric(0); }
  Fabric& to() { return world_.fabric(1); }

  Options options_;
  World world_;
  std::deque<std::uint64_t> open_;
  std::uint64_t second_before_return_ = 0;
  std::uint64_t second_after_return_ = 0;
};

Outcome run(const Options& options) { return Stream(options).run(); }

class PutQueues : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static Options over(double first_rate, double second_rate) {
    Options options;
    options.first_rate = first_rate;
    options.second_rate = second_rate;
    options.put_bytes = GetParam();
    return options;
  }
  /// At so many bytes per second.
  static double seconds_at(const Options& options, double rate) {
    return static_cast<double>(options.puts * options.put_bytes) / rate;
  }
};

TEST_P(PutQueues, FillUnequalRailsByTheirRates) {
  const Options two_to_one = over(60e6, 30e6);
  const Outcome result = run(two_to_one);
  EXPECT_GT(result.first_share, 0.60);
  EXPECT_LT(result.first_share, 0.73);
  EXPECT_LT(result.seconds, seconds_at(two_to_one, 0.85 * 90e6)) << "by turns: at 60e6";
}

TEST_P(PutQueues, LeaveASlowRailLittle) {
  const Options ten_to_one = over(60e6, 6e6);
  const Outcome result = run(ten_to_one);
  EXPECT_GT(result.first_share, 0.75);
  EXPECT_LT(result.seconds, seconds_at(ten_to_one, 2 * 12e6)) << "by turns: at 12e6";
}

TEST_P(PutQueues, OfAlikeRailsAreAlike) {
  EXPECT_NEAR(run(over(60e6, 60e6)).first_share, 0.5, 0.02);
}

TEST_P(PutQueues, OfOnePutAtATimeAreAlike) {
  Options alone = over(60e6, 60e6);
  alone.open_puts = 1;
  EXPECT_NEAR(run(alone).first_share, 0.5, 0.05);
}

TEST_P(PutQueues, OfARailThatCameBackAreKnownAnew) {
  Options loses = over(60e6, 60e6);
  loses.loses_second = true;
  const Outcome result = run(loses);
  // Half of the first third, all of the second, and half of the rest, where it has come back.
  EXPECT_NEAR(result.first_share, 2.0 / 3, 0.05);
}

TEST_P(PutQueues, OfANewLinkAreNotKnownByTheOldOne) {
  Options loses = over(60e6, 6e6);
  loses.loses_second = true;
  EXPECT_EQ(run(loses).second_after_return, kTurnPuts) << "it has its turns until it is known";
}

INSTANTIATE_TEST_SUITE_P(Of, PutQueues, ::testing::Values(1'024, 4'096, 8'192));

/// Puts that begin when the one before is answered, over rails behind shapers.
class AnsweredPuts : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static Outcome run_over(double first_rate, double second_rate) {
    return run(over(first_rate, second_rate));
  }
  static Options over(double first_rate, double second_rate) {
    Options options;
    options.first_rate = first_rate;
    options.second_rate = second_rate;
    options.put_bytes = GetParam();
    options.is_answered = true;
    options.open_puts = 1;
    options.saved_up_ns = 4'000'000;
    return options;
  }
  static double seconds_at(double rate) { return 5'000.0 * static_cast<double>(GetParam()) / rate; }
};

TEST_P(AnsweredPuts, FillUnequalRailsByTheirRates) {
  const Outcome two_to_one = run_over(60e6, 30e6);
  EXPECT_NEAR(two_to_one.first_share, 2.0 / 3, 0.05);
  EXPECT_LT(two_to_one.seconds, seconds_at(0.9 * 90e6)) << "by turns: at 60e6";
  const Outcome one_to_two = run_over(30e6, 60e6);
  EXPECT_NEAR(one_to_two.first_share, 1.0 / 3, 0.05);
  EXPECT_LT(one_to_two.seconds, seconds_at(0.9 * 90e6));
}

TEST_P(AnsweredPuts, LeaveASlowRailLittle) {
  const Outcome ten_to_one = run_over(60e6, 6e6);
  EXPECT_GT(ten_to_one.first_share, 0.8);
  EXPECT_LT(ten_to_one.seconds, seconds_at(0.5 * 66e6)) << "by turns: at 12e6";
}

TEST_P(AnsweredPuts, TakeTurnsOverAlikeRails) {
  EXPECT_NEAR(run_over(60e6, 60e6).first_share, 0.5, 0.01);
}

TEST_P(AnsweredPuts, TakeTurnsOverRailsThatAreFast) {
  EXPECT_NEAR(run_over(2e9, 1e9).first_share, 0.5, 0.001) << "neither is what they wait for";
}

INSTANTIATE_TEST_SUITE_P(Of, AnsweredPuts, ::testing::Values(4'096, 8'192));

TEST(ShortAnsweredPuts, TakeTurnsOverAnyRails) {
  Options options;
  options.first_rate = 60e6;
  options.second_rate = 30e6;
  options.put_bytes = 1'024;
  options.is_answered = true;
  EXPECT_NEAR(run(options).first_share, 0.5, 0.001) << "they say too little of a rail";
}

}  // namespace
}  // namespace allrail::transport
