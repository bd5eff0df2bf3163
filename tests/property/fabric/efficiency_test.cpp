// How well puts are striped over unequal rails, in virtual time: the fabric is told no rates.
#include <cstdio>
#include <deque>

#include <gtest/gtest.h>

#include "tests/property/fabric/world.hpp"

namespace allrail::transport {
namespace {

struct Stream {
  std::vector<double> rates;  // of the rails, in bytes per second
  std::uint64_t bytes = 0;    // of a put
  std::int64_t delay_ns = 5'000;
  std::int64_t jitter_ns = 0;
  std::int64_t saved_up_ns = 0;
};

/// Puts from rank 0 to rank 1, one after the other.
class Sender {
 public:
  explicit Sender(const Stream& stream)
      : data_(stream.bytes, std::byte{7}), world_(options_of(stream)) {
    world_.connect_all();
    EXPECT_TRUE(world_.run_until([&] { return world_.fabric(0).connected(1); }, 1'000'000'000));
    for (const double rate : stream.rates) total_rate_ += rate;
  }

  /// One put, until it has arrived.
  void carry() { take(begin(data_.size())); }
  void carry_short() { take(begin(64)); }
  /// So many, of which `at_once` are under way.
  void carry(int puts, std::size_t at_once) {
    std::deque<std::uint64_t> under_way;
    for (int i = 0; i < puts; ++i) {
      if (under_way.size() == at_once) {
        take(under_way.front());
        under_way.pop_front();
      }
      under_way.push_back(begin(data_.size()));
    }
    for (const std::uint64_t number : under_way) take(number);
  }
  void steps(int count, std::int64_t longest_ns) {
    for (int i = 0; i < count; ++i) world_.step(longest_ns);
  }
  void pause(std::int64_t pause_ns) {
    for (const std::int64_t end_ns = now_ns() + pause_ns; now_ns() < end_ns;) world_.step(10'000);
  }

  std::int64_t now_ns() { return world_.network().now_ns(); }
  std::int64_t arrived_ns() const { return arrived_ns_; }
  /// What so many puts take on all rails together.
  double ideal_ns(int puts) const {
    return static_cast<double>(data_.size()) * puts / total_rate_ * 1e9;
  }

 private:
  std::uint64_t begin(std::uint64_t bytes) {
    Put put;
    put.peer = 1;
    put.from = data_.data();
    put.bytes = bytes;
    world_.fabric(0).put(put);
    return world_.fabric(1).expect(0, put.bytes);
  }
  void take(std::uint64_t number) {
    EXPECT_TRUE(
        world_.run_until([&] { return world_.fabric(1).arrived(0, number); }, 10'000'000'000));
    arrived_ns_ = now_ns();
    world_.fabric(1).consume(0, number);
  }

  static WorldOptions options_of(const Stream& stream) {
    WorldOptions options;
    options.rails.clear();
    for (const double rate : stream.rates) {
      FakeRailOptions rail;
      rail.bytes_per_second = rate;
      rail.delay_ns = stream.delay_ns;
      rail.jitter_ns = stream.jitter_ns;
      rail.saved_up_ns = stream.saved_up_ns;
      options.rails.push_back(rail);
    }
    options.memory_bytes = stream.bytes;
    return options;
  }

  const std::vector<std::byte> data_;
  World world_;
  double total_rate_ = 0;
  std::int64_t arrived_ns_ = 0;
};

/// The time of one put over the ideal of all rails together, the worst of some puts in a row.
double time_over_ideal(const Stream& stream) {
  Sender sender(stream);
  sender.steps(1000, 1'000'000);
  double worst = 0;
  for (int i = 0; i < 12; ++i) {
    const std::int64_t start_ns = sender.now_ns();
    sender.carry();
    const auto took_ns = static_cast<double>(sender.arrived_ns() - start_ns);
    sender.steps(200, 100'000);
    if (i >= 4) worst = std::max(worst, took_ns / sender.ideal_ns(1));
  }
  std::printf("%.3f of the ideal time\n", worst);
  return worst;
}

/// As a ring of medium blocks through shapers that save up what was not sent: each put begins a
/// moment after the one before has arrived. The time of many puts over the ideal.
double stream_over_ideal(const std::vector<double>& rates, std::uint64_t bytes) {
  constexpr int kPuts = 160;
  Sender sender({rates, bytes, 5'000, 20'000, 4'000'000});
  const auto carry = [&](int puts) {
    for (int i = 0; i < puts; ++i) {
      sender.carry();
      sender.pause(50'000);
    }
  };
  carry(40);  // until shares are known
  const std::int64_t begin_ns = sender.now_ns();
  carry(kPuts);
  const double over = static_cast<double>(sender.now_ns() - begin_ns) / sender.ideal_ns(kPuts);
  std::printf("%.3f of the ideal time\n", over);
  return over;
}

/// As the pieces of a chain: some puts are always under way. The time of many over the ideal.
double chain_over_ideal(const std::vector<double>& rates, std::uint64_t bytes) {
  constexpr int kPuts = 400;
  Sender sender({rates, bytes, 5'000, 20'000, 4'000'000});
  sender.carry(kPuts, 8);  // until shares are known, and nothing is saved up
  const std::int64_t begin_ns = sender.now_ns();
  sender.carry(kPuts, 8);
  const double over = static_cast<double>(sender.now_ns() - begin_ns) / sender.ideal_ns(kPuts);
  std::printf("%.3f of the ideal time\n", over);
  return over;
}

TEST(Efficiency, OneRailIsFilled) { EXPECT_LT(time_over_ideal({{1e9}, 1U << 20}), 1.03); }

TEST(Efficiency, EqualRails) { EXPECT_LT(time_over_ideal({{1e9, 1e9}, 1U << 20}), 1.03); }

TEST(Efficiency, RailsOfTwoToOne) { EXPECT_LT(time_over_ideal({{1e9, 5e8}, 1U << 20}), 1.08); }

TEST(Efficiency, RailsOfOneToTwo) { EXPECT_LT(time_over_ideal({{5e8, 1e9}, 1U << 20}), 1.08); }

TEST(Efficiency, RailsOfTenToOne) { EXPECT_LT(time_over_ideal({{1e9, 1e8}, 1U << 20}), 1.15); }

TEST(Efficiency, ThreeRails) { EXPECT_LT(time_over_ideal({{1e9, 5e8, 2e8}, 1U << 20}), 1.12); }

TEST(Efficiency, LongDelay) { EXPECT_LT(time_over_ideal({{1e9, 1e9}, 4U << 20, 500'000}), 1.5); }

TEST(Efficiency, AStreamOfMediumPuts) {
  EXPECT_LT(stream_over_ideal({6e7, 3e7}, 128U << 10), 1.03);
  EXPECT_LT(stream_over_ideal({3e7, 6e7}, 512U << 10), 1.03);
  EXPECT_LT(stream_over_ideal({6e7, 6e7}, 128U << 10), 1.03);
  EXPECT_LT(stream_over_ideal({6e7, 6e6}, 128U << 10), 1.06);
  EXPECT_LT(stream_over_ideal({6e7, 3e7, 2e7}, 256U << 10), 1.03);
}

TEST(Efficiency, PutsOfFewChunks) {
  EXPECT_LT(chain_over_ideal({6e7, 3e7}, 32U << 10), 1.03);
  EXPECT_LT(chain_over_ideal({3e7, 6e7}, 20U << 10), 1.03);
  EXPECT_LT(chain_over_ideal({6e7, 6e7}, 32U << 10), 1.03);
  EXPECT_LT(chain_over_ideal({6e7, 3e7, 2e7}, 40U << 10), 1.03);
}

/// One such put, and then others that are not cut and take one of the rails, again and again.
TEST(Efficiency, PutsOfFewChunksBetweenOthers) {
  // As long as an acknowledgement that nobody waits for is held back.
  Sender sender({{6e7, 6e7}, 32U << 10, 300'000, 0, 0});
  double worst = 0;
  for (int i = 0; i < 200; ++i) {
    const std::int64_t begin_ns = sender.now_ns();
    sender.carry();
    const auto took_ns = static_cast<double>(sender.arrived_ns() - begin_ns);
    if (i >= 100) worst = std::max(worst, took_ns / sender.ideal_ns(1));
    for (int other = 0; other < 20; ++other) sender.carry_short();
    sender.pause(2'000'000);
  }
  std::printf("%.3f of the ideal time\n", worst);
  // Half of it over either rail, and there and back: all of it over one would be 3.1.
  EXPECT_LT(worst, 2.3);
}

TEST(Efficiency, JitterOnUnequalRails) {
  EXPECT_LT(time_over_ideal({{1e9, 5e8}, 1U << 20, 5'000, 20'000}), 1.15);
}

}  // namespace
}  // namespace allrail::transport
