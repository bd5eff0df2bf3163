// The fabric over verbs rails on software devices: streams of puts in both directions while
// devices fall silent, go down and come back. Every byte is checked, nothing hangs, nothing is
// left.
//
// Fences and retries of the rails run on the real clock, so a seed takes a few seconds.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <thread>

#include <gtest/gtest.h>

#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/fake_verbs/rail_options.hpp"
#include "transport/fabric.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail::transport {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kRanks = 3;
constexpr std::size_t kPlaceBytes = 512 * 1024;  // one put lands in one place
constexpr std::size_t kPlaces = 4;               // puts of a pair under way
constexpr std::array<const char*, 2> kDevices = {"fake0", "fake1"};

/// What a put carries: a piece of one long pattern, from a place that is the put's own. Made once,
/// so that checking costs little beside what is tested.
std::span<const std::byte> bytes_of_put(int from, int to, std::uint64_t number, std::size_t bytes) {
  constexpr std::size_t kShifts = 4096;
  static const std::vector<std::byte> pattern = [] {
    std::vector<std::byte> all(kPlaceBytes + kShifts);
    std::mt19937_64 random(1);
    for (std::byte& one : all) one = static_cast<std::byte>(random());
    return all;
  }();
  const std::uint64_t shift = number * 101 + static_cast<std::uint64_t>(from * 7 + to);
  return std::span(pattern).subspan(shift % kShifts, bytes);
}

std::size_t bytes_of(int from, int to, std::uint64_t number) {
  const std::size_t step = (number * 2654435761U + static_cast<unsigned>(from * 3 + to)) % 4;
  return std::array<std::size_t, 4>{1, 3000, 70'001, kPlaceBytes}[step];
}

/// Does not look at its device while `*silent`: to the fabric a rail that has gone quiet.
class PausedRail final : public Rail {
 public:
  PausedRail(std::unique_ptr<Rail> rail, const bool* silent)
      : rail_(std::move(rail)), silent_(silent) {}
  int index() const override { return rail_->index(); }
  const std::string& name() const override { return rail_->name(); }
  std::uint32_t max_chunk_bytes() const override { return rail_->max_chunk_bytes(); }
  int queue_depth() const override { return rail_->queue_depth(); }
  std::int64_t resend_after_ns() const override { return rail_->resend_after_ns(); }
  std::vector<std::byte> address() const override { return rail_->address(); }
  void set_primary_window(std::span<std::byte> memory) override {
    rail_->set_primary_window(memory);
  }
  RemoteKey register_window(std::span<std::byte> memory) override {
    return rail_->register_window(memory);
  }
  void unregister_window(const RemoteKey& key) override { rail_->unregister_window(key); }
  void register_source(std::span<const std::byte> memory) override {
    rail_->register_source(memory);
  }
  void unregister_source(std::span<const std::byte> memory) override {
    rail_->unregister_source(memory);
  }
  void connect(int peer, std::span<const std::byte> address) override {
    rail_->connect(peer, address);
  }
  void forget(int peer) override { rail_->forget(peer); }
  bool is_up(int peer) const override { return rail_->is_up(peer); }
  bool post(int peer, const Chunk& chunk) override { return rail_->post(peer, chunk); }
  bool post_control(int peer, std::span<const std::byte> message) override {
    return rail_->post_control(peer, message);
  }
  void submit() override { rail_->submit(); }
  bool poll(RailEvents& events) override { return !*silent_ && rail_->poll(events); }
  bool flushed() const override { return rail_->flushed(); }
  void flush_acknowledgements() override { rail_->flush_acknowledgements(); }
  void close(int peer, RailEvents& events) override { rail_->close(peer, events); }
  int event_descriptor() const override { return rail_->event_descriptor(); }
  void prepare_sleep() override { rail_->prepare_sleep(); }

 private:
  std::unique_ptr<Rail> rail_;
  const bool* silent_;
};

struct Node {
  std::vector<std::byte> memory = std::vector<std::byte>(kRanks * kPlaces * kPlaceBytes);
  std::vector<std::byte> source = std::vector<std::byte>(kRanks * kPlaces * kPlaceBytes);
  PeerRails rails;
  std::unique_ptr<Fabric> fabric;
  std::array<std::uint64_t, kRanks> sent{}, received{};

  static std::size_t place(int peer, std::uint64_t number) {
    return (static_cast<std::size_t>(peer) * kPlaces + number % kPlaces) * kPlaceBytes;
  }
};

class VerbsFabric : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override {
    auto devices = fake_verbs::default_devices();
    for (auto& device : devices) device.manager_breaks = true;
    fake_verbs::reset(GetParam(), devices);
    const JobSecret secret = JobSecret::random();
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<std::unique_ptr<Rail>> rails;
      for (int rail = 0; rail < 2; ++rail) {
        // Half of the seeds connect without librdmacm; with it, as ALLRAIL_CONNECT=auto does.
        const auto ways = GetParam() % 2 == 0 ? fake_verbs::Ways::Direct : fake_verbs::Ways::Both;
        VerbsRailOptions options = fake_verbs::rail_options(rail, ways);
        options.index = rail;
        options.rank = rank;
        options.size = kRanks;
        options.secret = secret;
        auto& silent = silent_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(rail)];
        rails.push_back(std::make_unique<PausedRail>(make_verbs_rail(options), &silent));
        node(rank).rails.rails.push_back({options.name, rails.back()->address()});
      }
      node(rank).rails.pairs = {{0, 0}, {1, 1}};
      Node& node = nodes_[static_cast<std::size_t>(rank)];
      node.fabric = std::make_unique<Fabric>(rank, kRanks, std::move(rails));
      node.fabric->set_primary_window(node.memory);
      node.fabric->register_source(node.source);
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        node(rank).fabric->connect(peer, node(peer).rails);
      }
    }
  }

  void TearDown() override {
    for (Node& node : nodes_) node.fabric.reset();
    EXPECT_EQ(fake_verbs::live().text(), "nothing");
    EXPECT_EQ(fake_verbs::receiver_not_ready(), 0);
    EXPECT_EQ(fake_verbs::completion_queue_overflows(), 0);
  }

  Node& node(int rank) { return nodes_[static_cast<std::size_t>(rank)]; }

  /// Sends what has a place, takes what has arrived.
  void step(int rank, bool send_more) {
    Node& mine = node(rank);
    mine.fabric->progress();
    if (const auto& failure = mine.fabric->failure()) FAIL() << failure->text;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      const auto at = static_cast<std::size_t>(peer);
      // The place is free once the peer has checked what was there before.
      const bool free =
          mine.sent[at] < node(peer).received[static_cast<std::size_t>(rank)] + kPlaces;
      if (send_more && free) send(rank, peer, mine.sent[at]++);
      take(rank, peer);
    }
  }

  /// Then leaves the core for a moment to whatever else is tested: the time that a seed takes is
  /// given, and more puts in it would test no more.
  void step_all(bool send_more) {
    for (int rank = 0; rank < kRanks && !HasFatalFailure(); ++rank) step(rank, send_more);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }

  void send(int rank, int peer, std::uint64_t number) {
    Node& mine = node(rank);
    const std::size_t bytes = bytes_of(rank, peer, number);
    std::byte* const from = mine.source.data() + Node::place(peer, number);
    std::memcpy(from, bytes_of_put(rank, peer, number, bytes).data(), bytes);
    Put put;
    put.peer = peer;
    put.from = from;
    put.bytes = bytes;
    put.offset = Node::place(rank, number);
    ASSERT_EQ(mine.fabric->put(put), number);
    ASSERT_EQ(node(peer).fabric->expect(rank, bytes), number);
  }

  void take(int rank, int peer) {
    Node& mine = node(rank);
    std::uint64_t& number = mine.received[static_cast<std::size_t>(peer)];
    if (number == node(peer).sent[static_cast<std::size_t>(rank)]) return;
    if (!mine.fabric->arrived(peer, number)) return;
    const std::byte* const got = mine.memory.data() + Node::place(peer, number);
    const std::size_t bytes = bytes_of(peer, rank, number);
    const auto expected = bytes_of_put(peer, rank, number, bytes);
    if (std::memcmp(got, expected.data(), bytes) != 0) {
      const auto wrong = std::ranges::mismatch(std::span(got, bytes), expected);
      FAIL() << "byte " << wrong.in2 - expected.begin() << " of put " << number << " from " << peer
             << " to " << rank << " is wrong";
    }
    // Its source may be written again only once the sender knows as well.
    if (!node(peer).fabric->completed(rank, number)) return;
    mine.fabric->consume(peer, number);
    ++number;
  }

  bool all_received() {
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int peer = 0; peer < kRanks; ++peer) {
        const auto at = static_cast<std::size_t>(peer);
        if (peer != rank &&
            node(rank).received[at] != node(peer).sent[static_cast<std::size_t>(rank)]) {
          return false;
        }
      }
    }
    return true;
  }

  std::uint64_t fences() {
    std::uint64_t sum = 0;
    for (Node& one : nodes_) {
      for (const RailCounters& rail : one.fabric->counters()) sum += rail.fences;
    }
    return sum;
  }

  std::array<std::array<bool, 2>, kRanks> silent_{};
  std::array<Node, kRanks> nodes_;
};

TEST_P(VerbsFabric, GivesUpALinkThatIsSilentAndTakesItBack) {
  std::mt19937_64 random(GetParam());
  const auto start = Clock::now();
  const auto calm = start + milliseconds(4000);
  const auto end = calm + milliseconds(20'000);
  auto next_change = start + milliseconds(50);
  while (Clock::now() < calm || !all_received()) {
    const auto now = Clock::now();
    ASSERT_LT(now, end) << "puts are missing long after all rails answer again";
    if (now > next_change || now >= calm) {
      silent_ = {};
      if (now < calm && random() % 3 != 0) silent_[random() % kRanks][random() % 2] = true;
      next_change = now + milliseconds(300 + random() % 900);
    }
    step_all(now < calm);
    if (HasFatalFailure()) return;
  }
}

TEST_P(VerbsFabric, DeliversEveryByteWhileDevicesComeAndGo) {
  std::mt19937_64 random(GetParam());
  const auto start = Clock::now();
  auto next_fault = start + milliseconds(20);
  int broken = -1;
  // Until then devices break; then all is well again, and what was sent must arrive.
  const auto calm = start + milliseconds(2500);
  const auto end = calm + milliseconds(20'000);
  while (Clock::now() < calm || !all_received()) {
    const auto now = Clock::now();
    ASSERT_LT(now, end) << "puts are missing long after all faults ended";
    // The first fault lasts until a rail is lost by it, or the test would test nothing.
    if (broken >= 0 && (now > next_fault || now >= calm) && fences() > 0) {
      fake_verbs::restore(kDevices[static_cast<std::size_t>(broken)]);
      broken = -1;
      next_fault = now + milliseconds(random() % 300);
    } else if (now > next_fault && now < calm) {
      broken = static_cast<int>(random() % 2);
      const char* const device = kDevices[static_cast<std::size_t>(broken)];
      random() % 2 == 0 ? fake_verbs::cut(device) : fake_verbs::blackhole(device);
      next_fault = now + milliseconds(10 + random() % 900);
    }
    step_all(now < calm);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, VerbsFabric, testing::Range<std::uint64_t>(1, 7));

}  // namespace
}  // namespace allrail::transport
