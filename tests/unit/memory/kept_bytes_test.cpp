// What a rank keeps grows with the nodes and with its own node, not with the ranks of the job: only
// the node of every rank is known, in 4 bytes. Each part is made for a small job and for one that
// has as many nodes and a node of the same size here, but a hundred times as many ranks elsewhere.
#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "coll/engine.hpp"
#include "coll/plan.hpp"
#include "coll/roster.hpp"
#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/unit/memory/live_bytes.hpp"
#include "transport/fabric.hpp"
#include "transport/fake/fake_network.hpp"
#include "transport/peer_table.hpp"
#include "transport/tcp/tcp_rail.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail {
namespace {

using testing::kept_bytes;

constexpr int kNodes = 16;
constexpr int kMyNodeSize = 8;
constexpr int kSmallNodes = 8;      // ranks on every other node of the small job
constexpr int kLargeNodes = 1'000;  // and of the large one
// Room for what a text or a vector rounds up, far below one byte per rank.
constexpr std::size_t kSlackBytes = 1'000;

/// Node 0, of kMyNodeSize ranks, is this process's.
schedule::NodeMap map_of(int ranks_elsewhere) {
  std::vector<int> node_of(kMyNodeSize, 0);
  for (int node = 1; node < kNodes; ++node) {
    node_of.insert(node_of.end(), static_cast<std::size_t>(ranks_elsewhere), node);
  }
  return schedule::NodeMap(std::move(node_of));
}

TEST(KeptBytes, CountsWhatIsKeptAndNothingElse) {
  const auto make = [] {
    const std::vector<char> gone(50'000);
    return std::vector<char>(100'000, gone[0]);
  };
  EXPECT_GE(kept_bytes(make), 100'000U);
  EXPECT_LT(kept_bytes(make), 101'000U);
}

TEST(KeptBytes, TheRosterHasFourBytesPerRank) {
  const auto small = map_of(kSmallNodes);
  const auto large = map_of(kLargeNodes);
  const std::size_t kept_small = kept_bytes([&] { return coll::Roster(small, 0); });
  const std::size_t kept_large = kept_bytes([&] { return coll::Roster(large, 0); });
  const auto more_ranks = static_cast<std::size_t>(large.ranks() - small.ranks());
  EXPECT_LE(kept_large, kept_small + 4 * more_ranks + kSlackBytes);
}

TEST(KeptBytes, AFabricKeepsNothingOfRanksItIsNotConnectedTo) {
  const auto kept = [](int size) {
    transport::FakeNetwork network(1, 2, {{}, {}});
    return kept_bytes([&] {
      std::vector<std::unique_ptr<transport::Rail>> rails;
      for (int i = 0; i < 2; ++i) rails.push_back(network.make_rail(0, i));
      return std::make_unique<transport::Fabric>(0, size, std::move(rails));
    });
  };
  EXPECT_LE(kept(100'000), kept(2) + kSlackBytes);
}

TEST(KeptBytes, ATcpRailKeepsNothingOfRanksItIsNotConnectedTo) {
  const auto kept = [](int size) {
    return kept_bytes([&] {
      transport::TcpRailOptions options;
      options.item = "127.0.0.1";
      options.size = size;
      return transport::make_tcp_rail(options);
    });
  };
  EXPECT_LE(kept(100'000), kept(2) + kSlackBytes);
}

TEST(KeptBytes, AVerbsRailKeepsNothingOfRanksItIsNotConnectedTo) {
  const auto kept = [](int size) {
    fake_verbs::reset(1);  // it remembers every call
    return kept_bytes([&] {
      transport::VerbsRailOptions options;
      options.name = "fake0";
      options.address = "10.9.0.1";
      options.size = size;
      return transport::make_verbs_rail(options);
    });
  };
  (void)kept(2);
  EXPECT_LE(kept(100'000), kept(2) + kSlackBytes);
}

TEST(KeptBytes, AnEngineKeepsNothingOfRanksThatNoPlanNames) {
  const auto kept = [](int ranks_elsewhere) {
    const coll::Roster roster(map_of(ranks_elsewhere), 0);
    shm::SegmentLayout layout;
    layout.ranks = kMyNodeSize;
    layout.small_slot_bytes = layout.large_slot_bytes = 4096;
    const auto segments = shm::NodeSegment::in_memory(shm::lay_out(layout));
    shm::NodeSegment mine = std::move(const_cast<shm::NodeSegment&>(segments[0]));
    coll::Team team;
    team.roster = &roster;
    team.segment = &mine;
    return kept_bytes(
        [&] { return std::make_unique<coll::Engine>(team, coll::SlotGeometry(), 1); });
  };
  EXPECT_LE(kept(kLargeNodes), kept(kSmallNodes) + kSlackBytes);
}

std::size_t kept_by_plan(const std::string& algorithm, int ranks_elsewhere, std::uint64_t bytes,
                         std::uint64_t slot_bytes, std::uint64_t expected_slices) {
  const coll::Roster roster(map_of(ranks_elsewhere), 0);
  coll::PlanRequest request;
  request.algorithm = algorithm;
  request.ports = 2;
  for (int rank = 0; rank < roster.ranks(); ++rank) {
    request.bytes.push_back(bytes);
    request.receive_offsets.push_back(static_cast<std::uint64_t>(rank) * bytes);
  }
  return kept_bytes([&] {
    auto plan =
        std::make_unique<coll::CallPlan>(request, roster, coll::PlanLimits{slot_bytes, UINT64_MAX});
    EXPECT_EQ(plan->slices(), expected_slices) << algorithm;
    return plan;
  });
}

int ranks_with(int ranks_elsewhere) { return map_of(ranks_elsewhere).ranks(); }

TEST(KeptBytes, APlanOverNodesKeepsNothingOfEveryRank) {
  int plans = 0;
  for (const auto& algorithm : coll::allgather::algorithms()) {
    if (algorithm.level != schedule::Level::Smp) continue;
    ++plans;
    const std::string name(algorithm.name);
    constexpr std::uint64_t kMuch = std::uint64_t{1} << 40;
    EXPECT_LE(kept_by_plan(name, kLargeNodes, 8, kMuch, 1),
              kept_by_plan(name, kSmallNodes, 8, kMuch, 1) + kSlackBytes)
        << name;
    // The slots hold half a block of every rank, so that the plan has to make a second schedule,
    // and halves do not lie side by side: each has a step of its own, and that is all.
    const auto cut = [&](int ranks_elsewhere) {
      const auto ranks = static_cast<std::uint64_t>(ranks_with(ranks_elsewhere));
      return kept_by_plan(name, ranks_elsewhere, 65536, ranks * 32768 + 16384, 2);
    };
    const auto more_ranks =
        static_cast<std::size_t>(ranks_with(kLargeNodes) - ranks_with(kSmallNodes));
    EXPECT_LE(cut(kLargeNodes),
              cut(kSmallNodes) + more_ranks * sizeof(schedule::Step) + kSlackBytes)
        << name << " in slices";
  }
  EXPECT_GT(plans, 0);
}

TEST(PeerTable, FindsWhatWasMadeAndNothingElse) {
  // Distances as leaders have them, and all ranks of a small job.
  for (const int distance : {1, 2, 3, 64, 4096, 65536}) {
    transport::PeerTable<int> table;
    for (int i = 0; i < 1000; ++i) {
      EXPECT_EQ(table.find(i * distance), nullptr);
      table.make(i * distance) = i;
    }
    ASSERT_EQ(table.size(), 1000U);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_NE(table.find(i * distance), nullptr);
      EXPECT_EQ(*table.find(i * distance), i);
      EXPECT_EQ(&table.make(i * distance), table.find(i * distance)) << "made once";
      EXPECT_EQ(table.at(static_cast<std::size_t>(i)), i) << "in the order of making";
      if (distance > 1) {
        EXPECT_EQ(table.find(i * distance + 1), nullptr);
      }
    }
    EXPECT_EQ(table.find(-1), nullptr);
  }
}

}  // namespace
}  // namespace allrail
