// Two ranks on two nodes in one process, each with an engine, over TCP on the loopback interface.
// They share no segment and there is no control plane: what one learns of the other came by rail.
#include "coll/engine.hpp"

#include <array>
#include <thread>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"
#include "transport/tcp/tcp_rail.hpp"

namespace allrail::coll {
namespace {

constexpr std::uint64_t kBytes = 1000;

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

PlanRequest request() {
  PlanRequest request;
  request.algorithm = "smp-direct";
  request.bytes = {kBytes, kBytes};
  request.receive_offsets = {0, kBytes};
  return request;
}

struct Rank final : TeamEvents {
  std::vector<shm::SegmentLayout> layouts{{}, layout_of_one_rank()};
  Roster roster;
  shm::NodeSegment segment = std::move(shm::NodeSegment::in_memory(layouts[1]).front());
  std::vector<std::byte> address;
  transport::PeerRails peer;
  std::unique_ptr<transport::Fabric> fabric;
  Team team;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<CallPlan> plan;
  std::vector<std::byte> send, receive;
  std::string error;
  Code code = Code::Internal;

  Rank(int rank, const transport::JobSecret& secret)
      : roster(schedule::NodeMap({0, 1}), rank),
        send(kBytes, static_cast<std::byte>(rank + 1)),
        receive(2 * kBytes) {
    transport::TcpRailOptions options;
    options.item = "127.0.0.1";
    options.rank = rank;
    options.size = 2;
    options.secret = secret;
    std::vector<std::unique_ptr<transport::Rail>> rails;
    rails.push_back(transport::make_tcp_rail(options));
    address = rails[0]->address();
    fabric = std::make_unique<transport::Fabric>(rank, 2, std::move(rails));
    fabric->set_primary_window(segment.bytes());
    team.rank = team.node = rank;
    team.roster = &roster;
    team.layouts = &layouts;
    team.segment = &segment;
    team.fabric = fabric.get();
  }

  void abort_set() override {}
  transport::PeerRails rails_of(int) override { return peer; }

  /// Makes `calls` calls; keeps the error.
  void make_calls(int calls) {
    try {
      for (int i = 0; i < calls; ++i) {
        engine->run(*plan, {send.data(), receive.data(), receive.size()},
                    base::Deadline::after(std::chrono::seconds(60)));
      }
    } catch (const Error& thrown) {
      error = thrown.what();
      code = thrown.code();
    }
  }
};

class Engines : public ::testing::Test {
 protected:
  /// Ranks of different communicators have different stamps in all their calls.
  void connect(std::uint64_t communicator_of_rank_1) {
    for (int rank = 0; rank < 2; ++rank) {
      Rank& one = at(rank);
      one.peer = {"", {{"127.0.0.1", at(1 - rank).address}}, {{0, 0}}};
      one.team.events = &one;
      one.engine =
          std::make_unique<Engine>(one.team, geometry(), rank == 0 ? 1 : communicator_of_rank_1);
      one.plan = std::make_unique<CallPlan>(request(), one.roster,
                                            PlanLimits{geometry().large_slot_bytes, UINT64_MAX});
      one.engine->connect(*one.plan);
    }
  }
  Rank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  void make_calls_on_both(int calls) {
    std::thread other([&] { at(1).make_calls(calls); });
    at(0).make_calls(calls);
    other.join();
  }

 private:
  const transport::JobSecret secret_ = transport::JobSecret::random();
  std::array<std::unique_ptr<Rank>, 2> ranks_{std::make_unique<Rank>(0, secret_),
                                              std::make_unique<Rank>(1, secret_)};
};

TEST_F(Engines, ExchangeTheirBlocksOverRails) {
  connect(1);
  make_calls_on_both(20);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(at(rank).error, "");
    EXPECT_EQ(at(rank).receive[0], std::byte{1});
    EXPECT_EQ(at(rank).receive[2 * kBytes - 1], std::byte{2});
  }
}

TEST_F(Engines, SayThatCallsDifferWhereAHeaderOverARailHasAnotherStamp) {
  connect(2);
  make_calls_on_both(1);
  // One of them finds it first and leaves; the other finds it too, or that its peer is gone.
  const Rank& finder = at(at(0).code == Code::Mismatch ? 0 : 1);
  EXPECT_EQ(finder.code, Code::Mismatch) << at(0).error << "; " << at(1).error;
  EXPECT_NE(finder.error.find("differs between ranks"), std::string::npos) << finder.error;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_NE(at(rank).error, "") << "no call of theirs may succeed";
    EXPECT_EQ(at(rank).receive[static_cast<std::size_t>(1 - rank) * kBytes], std::byte{0});
  }
}

TEST_F(Engines, TellTheirDoneCountsWhileTheyWait) {
  connect(1);
  make_calls_on_both(3);
  // Rank 0 waits in a call that rank 1 does not enter. The header of its block says that it is done
  // with three calls, but nobody awaits that block.
  std::thread waiting([&] { at(0).make_calls(1); });
  const auto deadline = base::Deadline::after(std::chrono::seconds(30));
  while (at(1).fabric->told_done(0) < 3 && !deadline.passed()) {
    if (!at(1).fabric->progress()) std::this_thread::yield();
  }
  EXPECT_EQ(at(1).fabric->told_done(0), 3U);
  at(1).make_calls(1);
  waiting.join();
  EXPECT_EQ(at(0).error + at(1).error, "");
}

}  // namespace
}  // namespace allrail::coll
