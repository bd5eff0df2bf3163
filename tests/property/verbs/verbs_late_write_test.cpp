// A call over verbs rails on software devices ends with an error while its chunks are in flight.
// From then on its memory is the user's again: whatever is late must not change a byte of it.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "coll/engine.hpp"
#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/fake_verbs/rail_options.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail::coll {
namespace {

using fake_verbs::Ways;

constexpr std::uint64_t kBytes = 4U << 20;
constexpr std::uint32_t kChunkBytes = 16384;
constexpr std::byte kPoison{0xA5};

enum class End { AnotherRank, Timeout, NoRail };
const char* end_text(End end) {
  return end == End::AnotherRank ? "another_rank" : end == End::Timeout ? "timeout" : "no_rail";
}

SlotGeometry geometry() {
  SlotGeometry geometry;
  geometry.small_slot_bytes = geometry.large_slot_bytes = 16384;
  return geometry;
}

shm::SegmentLayout layout_of_one_rank() {
  shm::SegmentLayout layout;
  layout.ranks = 1;
  layout.small_slot_bytes = layout.large_slot_bytes = geometry().small_slot_bytes;
  return shm::lay_out(layout);
}

/// A node of one rank.
struct Rank final : TeamEvents {
  std::vector<shm::SegmentLayout> layouts{{}, layout_of_one_rank()};
  Roster roster;
  shm::NodeSegment segment = std::move(shm::NodeSegment::in_memory(layouts[1]).front());
  transport::PeerRails mine, peers;
  std::unique_ptr<transport::Fabric> fabric;
  Team team;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<CallPlan> plan;
  std::vector<std::byte> send = std::vector<std::byte>(kBytes, std::byte{7});
  std::vector<std::byte> receive = std::vector<std::byte>(2 * kBytes);
  transport::RemoteWindow window;
  CallRun run;

  Rank(int rank, Ways ways, const transport::JobSecret& secret,
       std::function<std::int64_t()> now_ns)
      : roster(schedule::NodeMap({0, 1}), rank) {
    std::vector<std::unique_ptr<transport::Rail>> rails;
    for (int rail = 0; rail < 2; ++rail) {
      transport::VerbsRailOptions options = fake_verbs::rail_options(rail, ways);
      options.index = rail;
      options.rank = rank;
      options.size = 2;
      options.secret = secret;
      rails.push_back(transport::make_verbs_rail(options));
      mine.rails.push_back({options.name, rails.back()->address()});
    }
    mine.pairs = {{0, 0}, {1, 1}};
    transport::FabricOptions options;
    options.chunk_bytes = kChunkBytes;
    options.now_ns = std::move(now_ns);
    fabric = std::make_unique<transport::Fabric>(rank, 2, std::move(rails), options);
    fabric->set_primary_window(segment.bytes());
    team.rank = team.node = rank;
    team.roster = &roster;
    team.layouts = &layouts;
    team.segment = &segment;
    team.fabric = fabric.get();
    team.events = this;
    team.slow_check_ns = 0;  // a deadline that has passed is seen at once
  }

  void abort_set() override {}
  transport::PeerRails rails_of(int) override { return peers; }

  /// `in_buffer`: into memory that stays registered, also when the call ends.
  void plan_call(bool in_buffer) {
    PlanRequest request;
    request.algorithm = "direct";
    request.bytes = {kBytes, kBytes};
    request.receive_offsets = {0, kBytes};
    PlanLimits limits{geometry().large_slot_bytes, kBytes};
    limits.buffer_threshold_bytes = kBytes;
    if (in_buffer) request.memory = MemoryKind::Buffer;
    plan = std::make_unique<CallPlan>(request, roster, limits);
    engine = std::make_unique<Engine>(team, geometry(), 1);
    engine->connect(*plan);
    run.plan = plan.get();
    run.buffers = {send.data(), receive.data(), receive.size(), send.size()};
    if (!in_buffer) return;
    window = fabric->register_window(receive);
    run.buffers.window = &window;
  }

  std::uint64_t received() const {
    std::uint64_t bytes = 0;
    for (const auto& rail : fabric->counters()) bytes += rail.bytes_received;
    return bytes;
  }
};

class VerbsLateWrite : public testing::TestWithParam<std::tuple<End, Ways, bool>> {
 protected:
  void SetUp() override {
    fake_verbs::reset(11);
    const auto secret = transport::JobSecret::random();
    for (int rank = 0; rank < 2; ++rank)
      ranks_[static_cast<std::size_t>(rank)] = std::make_unique<Rank>(
          rank, std::get<Ways>(GetParam()), secret, [this] { return now_ns_; });
    for (int rank = 0; rank < 2; ++rank) {
      at(rank).peers = at(1 - rank).mine;
      at(rank).plan_call(std::get<bool>(GetParam()));
    }
  }

  void TearDown() override {
    for (auto& rank : ranks_) {
      rank->run.registration.release();
      rank->engine.reset();
      if (!rank->window.keys.empty()) rank->fabric->unregister_window(rank->window);
      rank->fabric.reset();
    }
    EXPECT_EQ(fake_verbs::live().text(), "nothing");
  }

  Rank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  void test(int rank) {
    if (at(rank).run.state == CallRun::State::InFlight) at(rank).engine->test(at(rank).run);
  }

  /// Until some chunks of its result have landed, and others are under way.
  void bring_chunks_into_flight() {
    for (int rank = 0; rank < 2; ++rank) at(rank).engine->start(at(rank).run);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (at(0).received() < 4 * kChunkBytes) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "no chunk arrives";
      for (int rank = 0; rank < 2; ++rank) test(rank);
    }
    ASSERT_EQ(at(0).run.state, CallRun::State::InFlight);
    // All that the peer may have in flight stands in its queue pairs.
    test(1);
    ASSERT_GT(fake_verbs::busy_queue_pairs(), 0);
  }

  /// Makes progress until the call of rank 0 throws, and returns what it says.
  std::string end_with(Code code) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    try {
      while (std::chrono::steady_clock::now() < end) {
        test(0);
        now_ns_ += 10'000'000;
      }
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_EQ(error.peer(), 1) << error.what();
      return error.what();
    }
    return "";
  }

  /// The peer knows nothing of the error and does all that it can.
  void deliver_what_is_late() {
    for (int i = 0; i < 3000; ++i) {
      at(1).fabric->progress();
      fake_verbs::advance(100);
      now_ns_ += 1'000'000;
    }
    EXPECT_EQ(fake_verbs::busy_queue_pairs(), 0);
  }

  std::int64_t now_ns_ = 1'000'000'000;
  std::array<std::unique_ptr<Rank>, 2> ranks_;
};

TEST_P(VerbsLateWrite, ChangesNoByteAfterTheError) {
  ASSERT_NO_FATAL_FAILURE(bring_chunks_into_flight());
  std::string text;
  switch (std::get<End>(GetParam())) {
    case End::AnotherRank:
      at(0).segment.set_abort(static_cast<int>(Code::PeerLost), 1, "rank 1 died");
      end_with(Code::PeerLost);
      break;
    case End::Timeout:
      at(0).run.deadline = base::Deadline::after(std::chrono::milliseconds(0));
      end_with(Code::Timeout);
      break;
    case End::NoRail:
      for (const char* device : {"fake0", "fake1"}) fake_verbs::blackhole(device);
      text = end_with(Code::Network);
      // All that a user needs: the operation, both ends, and the status of the completion.
      for (const char* part :
           {"allgather of 4194304 bytes per rank by direct", "fake0:1 to fake0:1",
            "fake1:1 to fake1:1", "transport retry counter exceeded"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
      }
      for (const char* device : {"fake0", "fake1"}) fake_verbs::restore(device);
      break;
  }
  std::ranges::fill(at(0).receive, kPoison);
  deliver_what_is_late();
  const auto changed = std::ranges::count_if(at(0).receive, [](auto b) { return b != kPoison; });
  EXPECT_EQ(changed, 0) << "bytes were written after the error";
}

INSTANTIATE_TEST_SUITE_P(
    EachEnd, VerbsLateWrite,
    testing::Combine(testing::Values(End::AnotherRank, End::Timeout, End::NoRail),
                     testing::Values(Ways::Manager, Ways::Direct), testing::Bool()),
    [](const auto& one) {
      return std::string(end_text(std::get<End>(one.param))) + "_" +
             ways_text(std::get<Ways>(one.param)) + (std::get<bool>(one.param) ? "_buffer" : "");
    });

}  // namespace
}  // namespace allrail::coll
