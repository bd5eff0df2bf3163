// Two ranks with different ports, over verbs rails on software devices: which rails find each
// other, and that puts land through every pair.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/fake_verbs/rail_options.hpp"
#include "transport/fabric.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail::transport {
namespace {

using Clock = std::chrono::steady_clock;
using fake_verbs::Ways;

constexpr std::size_t kMemoryBytes = 1U << 20;

struct Device {
  const char* name;
  const char* address;
  int subnet;
  std::uint32_t max_message_bytes = 1U << 30;
  ibv_mtu mtu = IBV_MTU_1024;
};

/// For each way to connect, and for both.
class VerbsPairs : public testing::TestWithParam<Ways> {
 protected:
  struct Rank {
    std::vector<Device> devices;
    std::vector<std::byte> memory = std::vector<std::byte>(kMemoryBytes);
    std::vector<std::byte> source = std::vector<std::byte>(kMemoryBytes, std::byte{7});
    PeerRails rails;
    std::vector<RailEnd> ends;
    std::unique_ptr<Fabric> fabric;
  };

  void start(std::vector<Device> of_rank_0, std::vector<Device> of_rank_1) {
    ranks_[0].devices = std::move(of_rank_0);
    ranks_[1].devices = std::move(of_rank_1);
    std::vector<fake_verbs::DeviceOptions> devices;
    for (const Rank& rank : ranks_) {
      for (const Device& device : rank.devices) {
        devices.push_back({.name = device.name,
                           .address = device.address,
                           .has_ip = GetParam() != Ways::Direct,
                           .mtu = device.mtu,
                           .max_message_bytes = device.max_message_bytes});
      }
    }
    fake_verbs::reset(3, devices);
    const JobSecret secret = JobSecret::random();
    for (int rank = 0; rank < 2; ++rank) make_fabric(rank, secret);
    const auto pairs = pair_rails({ranks_[0].ends, ranks_[1].ends});
    for (Rank& rank : ranks_) rank.rails.pairs = pairs;
  }

  void make_fabric(int rank, const JobSecret& secret) {
    Rank& mine = ranks_[static_cast<std::size_t>(rank)];
    std::vector<std::unique_ptr<Rail>> rails;
    for (const Device& device : mine.devices) {
      VerbsRailOptions options;
      options.index = static_cast<int>(rails.size());
      options.name = device.name;
      options.device = device.name;
      options.gid_index = 1;
      options.has_siblings = true;
      if (GetParam() != Ways::Direct) options.address = device.address;
      if (GetParam() != Ways::Manager) options.side_addresses = {"127.0.0.1"};
      options.rank = rank;
      options.size = 2;
      options.secret = secret;
      rails.push_back(make_verbs_rail(options));
      mine.rails.rails.push_back({device.name, rails.back()->address()});
      RailEnd end;
      end.network = Network::RoceV2Ipv4;
      end.subnet = make_subnet({10, 9, static_cast<std::uint8_t>(device.subnet)}, 24);
      mine.ends.push_back(end);
    }
    mine.fabric = std::make_unique<Fabric>(rank, 2, std::move(rails));
    mine.fabric->set_primary_window(mine.memory);
    mine.fabric->register_source(mine.source);
  }

  void connect(int rank) {
    ranks_[static_cast<std::size_t>(rank)].fabric->connect(
        1 - rank, ranks_[static_cast<std::size_t>(1 - rank)].rails);
  }

  Fabric& fabric(int rank) { return *ranks_[static_cast<std::size_t>(rank)].fabric; }

  bool until(const std::function<bool()>& done, bool second_polls = true) {
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (Clock::now() > end) return false;
      fabric(0).progress();
      if (second_polls) fabric(1).progress();
      // Most of the time goes by until probes are given up: others can use the core.
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      for (int rank = 0; rank < 2; ++rank) {
        if (fabric(rank).failure()) ADD_FAILURE() << fabric(rank).failure()->text;
      }
    }
    return true;
  }

  void run_for(std::chrono::milliseconds time, bool second_polls) {
    const auto end = Clock::now() + time;
    until([&] { return Clock::now() > end; }, second_polls);
  }

  using Partners = std::vector<int>;
  Partners partners(int rank) {
    Partners all;
    for (int rail = 0; rail < fabric(rank).rail_count(); ++rail) {
      all.push_back(fabric(rank).partner(1 - rank, rail));
    }
    return all;
  }

  /// How long a try may take: 4.096 us x 2^timeout.
  static void expect_timeout(std::uint8_t timeout) {
    const std::vector<ibv_qp_attr> queue_pairs = fake_verbs::queue_pairs();
    EXPECT_FALSE(queue_pairs.empty());
    for (const ibv_qp_attr& one : queue_pairs) EXPECT_EQ(one.timeout, timeout);
  }

  /// Both ends agree, and puts land in the window that the peer's own rail registered.
  void expect_pairs(const Partners& of_rank_0, const Partners& of_rank_1) {
    EXPECT_TRUE(until([&] { return partners(0) == of_rank_0 && partners(1) == of_rank_1; }))
        << testing::PrintToString(partners(0)) << testing::PrintToString(partners(1));
    for (int rank = 0; rank < 2; ++rank) {
      Rank& to = ranks_[static_cast<std::size_t>(1 - rank)];
      std::vector<std::byte> memory(kMemoryBytes);
      const RemoteWindow window = to.fabric->register_window(memory);
      for (int rail = 0; rail < fabric(rank).rail_count(); ++rail) {
        if (fabric(rank).partner(1 - rank, rail) >= 0) put(rank, window, rail);
      }
      put(rank, window, -1);
      EXPECT_EQ(memory, ranks_[0].source);
      to.fabric->unregister_window(window);
      for (const RailCounters& rail : fabric(rank).counters()) EXPECT_EQ(rail.fences, 0U);
    }
  }

  void put(int rank, const RemoteWindow& window, int rail) {
    Put put;
    put.peer = 1 - rank;
    put.from = ranks_[static_cast<std::size_t>(rank)].source.data();
    put.bytes = rail < 0 ? kMemoryBytes : 1000;
    put.window = &window;
    put.only_rail = rail;
    const std::uint64_t number = fabric(rank).put(put);
    const std::uint64_t expected = fabric(1 - rank).expect(rank, put.bytes);
    EXPECT_TRUE(until([&] {
      return fabric(1 - rank).arrived(rank, expected) && fabric(rank).completed(1 - rank, number);
    })) << "from rank "
        << rank << " over rail " << rail;
    fabric(1 - rank).consume(rank, expected);
  }

  void TearDown() override {
    for (Rank& rank : ranks_) rank.fabric.reset();
    EXPECT_EQ(fake_verbs::live().text(), "nothing");
  }

  std::array<Rank, 2> ranks_;
};

constexpr Device kA0{"a0", "10.9.0.1", 0}, kA1{"a1", "10.9.1.1", 1}, kA2{"a2", "10.9.2.1", 2};
constexpr Device kB0{"b0", "10.9.0.2", 0}, kB1{"b1", "10.9.1.2", 1}, kB2{"b2", "10.9.2.2", 2};

TEST_P(VerbsPairs, GoBySubnetWhateverTheOrder) {
  start({kA0, kA1, kA2}, {kB2, kB0, kB1});
  for (const int rank : {0, 1}) connect(rank);
  expect_pairs({1, 2, 0}, {2, 0, 1});
}

// librdmacm takes equal ones only, and all pairs that are needed are so.
TEST_P(VerbsPairs, HaveMtusOfTheirOwn) {
  Device a0 = kA0;
  Device b0 = kB0;
  a0.mtu = b0.mtu = IBV_MTU_4096;
  start({a0, kA1}, {b0, kB1});
  for (const int rank : {0, 1}) connect(rank);
  expect_pairs({0, 1}, {0, 1});
}

TEST_P(VerbsPairs, LeaveOutRailsWithoutPartner) {
  start({kA0, kA1, kA2}, {kB2, kB1});
  for (const int rank : {0, 1}) connect(rank);
  expect_pairs({-1, 1, 0}, {2, 1});
}

TEST_P(VerbsPairs, LeaveOutRailsOfTheAcceptingEnd) {
  start({kA1}, {kB2, kB0, kB1});
  for (const int rank : {0, 1}) connect(rank);
  expect_pairs({2}, {-1, -1, 0});
}

TEST_P(VerbsPairs, ArePatientWhereThereIsOne) {
  start({kA0, kA1}, {kB1});
  for (const int rank : {0, 1}) connect(rank);
  expect_pairs({-1, 0}, {1});
  expect_timeout(18);
}

TEST_P(VerbsPairs, ArePatientWhereTheConnectingEndHasOneRail) {
  start({kA1}, {kB0, kB1});
  for (const int rank : {0, 1}) connect(rank);
  expect_pairs({1}, {-1, 0});
  expect_timeout(18);
}

TEST_P(VerbsPairs, AreLessPatientWhereThereAreSeveral) {
  start({kA0, kA1}, {kB0, kB1, kB2});
  for (const int rank : {0, 1}) connect(rank);
  expect_pairs({0, 1}, {0, 1, -1});
  expect_timeout(14);
}

TEST_P(VerbsPairs, GoOnWhereTheLikelyPairDoesNotAnswer) {
  start({kA0, kA1}, {kB0, kB1, kB2});
  fake_verbs::blackhole("b0");
  for (const int rank : {0, 1}) connect(rank);
  expect_pairs({2, 1}, {-1, 1, 0});
}

TEST_P(VerbsPairs, WaitForAPeerThatIsThereButNotReady) {
  constexpr Device kMany[] = {{"b0", "10.9.0.2", 0}, {"b1", "10.9.0.3", 0}};
  start({kA0, {"a1", "10.9.0.4", 0}}, {kMany[0], kMany[1]});
  connect(0);
  // Longer than a probe: had it not answered, other pairs would be tried by now.
  run_for(std::chrono::milliseconds(2600), true);
  EXPECT_FALSE(fabric(0).connected(1));
  connect(1);
  expect_pairs({0, 1}, {0, 1});
}

TEST_P(VerbsPairs, AreFoundAfterAPeerWasSilentForLong) {
  start({kA0, kA1}, {kB1, kB0});
  connect(0);
  connect(1);
  run_for(std::chrono::milliseconds(4800), false);
  EXPECT_FALSE(fabric(0).connected(1));
  EXPECT_TRUE(until([&] {
    return !std::ranges::count(partners(0), -1) && !std::ranges::count(partners(1), -1);
  }));
  const Partners found = partners(0);
  expect_pairs(found, found[0] == 0 ? Partners{0, 1} : Partners{1, 0});
}

// Software devices refuse what is longer, as real ones do: the link would be lost.
TEST_P(VerbsPairs, CutPutsByWhatThePortOfTheShortestMessagesTakes) {
  constexpr std::uint32_t kLongest = 5000;
  start({kA0, {kA1.name, kA1.address, kA1.subnet, kLongest}}, {kB0, kB1});
  for (const int rank : {0, 1}) connect(rank);
  expect_pairs({0, 1}, {0, 1});
  std::uint64_t chunks = 0;
  for (const RailCounters& rail : fabric(0).counters()) chunks += rail.chunks_sent;
  // The long put of expect_pairs(), and a short one over each rail.
  EXPECT_GE(chunks, 2 + kMemoryBytes / kLongest);
}

INSTANTIATE_TEST_SUITE_P(EachWay, VerbsPairs,
                         testing::Values(Ways::Manager, Ways::Direct, Ways::Both),
                         [](const auto& one) { return ways_text(one.param); });

class VerbsPairsOfBothWays : public VerbsPairs {};

// Each pair gets both its turns, though a rail tries its partners by turns too: were there one
// turn for all, the pair that can work would go by librdmacm every time.
TEST_P(VerbsPairsOfBothWays, AreFoundThoughTheConnectionManagerFails) {
  start({kA0}, {kB0, kB1});
  fake_verbs::break_manager("a0");
  fake_verbs::blackhole("b1");
  for (const int rank : {0, 1}) connect(rank);
  expect_pairs({0}, {0, -1});
}

INSTANTIATE_TEST_SUITE_P(EachWay, VerbsPairsOfBothWays, testing::Values(Ways::Both),
                         [](const auto& one) { return ways_text(one.param); });

}  // namespace
}  // namespace allrail::transport
