#include "lib/topology/topology.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "include/allrail/error.hpp"

namespace allrail::topology {
namespace {

/// Makes hwloc describe another machine while it lives.
class DescribedMachine {
 public:
  DescribedMachine(const char* variable, const char* value) : variable_(variable) {
    ::setenv(variable, value, 1);
  }
  ~DescribedMachine() { ::unsetenv(variable_); }
  DescribedMachine(const DescribedMachine&) = delete;
  DescribedMachine& operator=(const DescribedMachine&) = delete;

 private:
  const char* variable_;
};

Machine synthetic(const char* description) {
  const DescribedMachine described("HWLOC_SYNTHETIC", description);
  return Machine::discover(Machine::Detail::CoresOnly);
}

/// Two sockets of four cores with two threads each; eth0 and mlx5_0 near the first, eth1 and mlx5_1
/// near the second.
Machine two_sockets(Machine::Detail detail = Machine::Detail::WithDevices) {
  const char* file = std::getenv("ALLRAIL_TEST_MACHINE");
  if (file == nullptr) throw std::runtime_error("ALLRAIL_TEST_MACHINE must name two_sockets.xml");
  const DescribedMachine described("HWLOC_XMLFILE", file);
  return Machine::discover(detail);
}

TEST(TopologyTest, cores_are_counted_not_threads) {
  EXPECT_EQ(synthetic("pack:2 numa:1 core:4 pu:2").usable_cores(), 8);
  EXPECT_EQ(synthetic("pack:1 core:3 pu:1").usable_cores(), 3);
}

TEST(TopologyTest, memories_are_counted) {
  EXPECT_EQ(synthetic("pack:4 numa:2 core:4 pu:1").numa_nodes(), 8);
  EXPECT_EQ(synthetic("core:4 pu:1").numa_nodes(), 1);
}

TEST(TopologyTest, a_machine_without_cores_counts_threads) {
  EXPECT_EQ(synthetic("pack:1 pu:6").usable_cores(), 6);
}

TEST(TopologyTest, cpus_are_written_as_a_list) {
  const Machine machine = synthetic("pack:2 numa:1 core:4 pu:2");
  EXPECT_EQ(machine.cpuset(), "0-15");
  EXPECT_EQ(machine.own_numa_node(), -1);  // near two
  EXPECT_EQ(synthetic("pack:1 core:2 pu:1").own_numa_node(), 0);
}

TEST(TopologyTest, unbound_ranks_are_outnumbered_when_there_are_more_than_cores) {
  const Machine machine = synthetic("pack:2 numa:1 core:2 pu:2");
  EXPECT_FALSE(machine.outnumbered(std::vector<std::string>(4)));
  EXPECT_TRUE(machine.outnumbered(std::vector<std::string>(5)));
  EXPECT_FALSE(machine.outnumbered(std::vector<std::string>{}));
}

TEST(TopologyTest, bindings_count) {
  const Machine machine = synthetic("pack:2 numa:1 core:2 pu:2");  // cores 0-1 2-3 4-5 6-7
  const std::vector<std::string> apart{"0-1", "2-3", "4-5"};
  EXPECT_FALSE(machine.outnumbered(apart));
  const std::vector<std::string> two_on_one_core{"0", "1"};
  EXPECT_TRUE(machine.outnumbered(two_on_one_core));
  const std::vector<std::string> three_on_a_socket{"0-3", "0-3", "0-3"};
  EXPECT_TRUE(machine.outnumbered(three_on_a_socket));
  const std::vector<std::string> the_unbound_one_moves_over{"", "0-1"};
  EXPECT_FALSE(machine.outnumbered(the_unbound_one_moves_over));
  const std::vector<std::string> all_cores_bound_and_one_more{"0-1", "2-3", "4-5", "6-7", ""};
  EXPECT_TRUE(machine.outnumbered(all_cores_bound_and_one_more));
}

TEST(TopologyTest, a_cpu_list_that_makes_no_sense_means_anywhere) {
  const Machine machine = synthetic("pack:1 core:2 pu:1");
  const std::vector<std::string> nonsense{"900-901", "hello"};
  EXPECT_FALSE(machine.outnumbered(nonsense));
}

/// The homes of all ranks, as text.
std::string homes(const Machine& machine, const std::vector<std::string>& cpusets) {
  std::string text;
  for (std::size_t rank = 0; rank < cpusets.size(); ++rank) {
    text += (rank == 0 ? "" : " ") + std::to_string(machine.home_cpu(cpusets, rank));
  }
  return text;
}

TEST(TopologyTest, ranks_that_outnumber_their_cpus_have_homes_as_neighbours) {
  const Machine machine = synthetic("core:2 pu:1");
  EXPECT_EQ(homes(machine, {"0-1", "0-1"}), "-1 -1");
  EXPECT_EQ(homes(machine, {"0-1", "0-1", "0-1"}), "0 0 1");
  EXPECT_EQ(homes(machine, {"0-1", "0-1", "0-1", "0-1"}), "0 0 1 1");
  EXPECT_EQ(homes(synthetic("core:3 pu:2"), std::vector<std::string>(12, "1-5")),
            "1 1 1 2 2 3 3 3 4 4 5 5");
}

TEST(TopologyTest, only_ranks_with_the_same_cpus_share_homes) {
  const Machine machine = synthetic("core:4 pu:1");
  EXPECT_EQ(homes(machine, {"0-1", "2-3", "0-1", "2", "0-1", "0-1", "2-3"}), "0 -1 0 -1 1 1 -1");
  EXPECT_EQ(homes(machine, {"2", "2", "2"}), "-1 -1 -1") << "nowhere to go";
}

TEST(TopologyTest, devices_are_near_a_memory) {
  const Machine machine = two_sockets();
  EXPECT_EQ(machine.numa_node_of("eth0"), 0);
  EXPECT_EQ(machine.numa_node_of("mlx5_1"), 1);
  EXPECT_EQ(machine.numa_node_of("eth9"), -1);
  const std::vector<Device> devices = machine.devices();
  ASSERT_EQ(devices.size(), 4U);
  EXPECT_EQ(devices[0].name, "eth0");
  EXPECT_EQ(devices[0].pci_address, "0000:3b:00.0");
  EXPECT_EQ(devices[3].name, "mlx5_1");
  EXPECT_EQ(devices[3].numa_node, 1);
}

TEST(TopologyTest, devices_are_looked_for_only_on_request) {
  const Machine machine = two_sockets(Machine::Detail::CoresOnly);
  EXPECT_EQ(machine.usable_cores(), 8);
  EXPECT_TRUE(machine.devices().empty());
}

TEST(TopologyTest, the_near_device_is_nearer) {
  const Machine machine = two_sockets();
  const Distance near = machine.distance("0-1", "mlx5_0");
  const Distance far = machine.distance("0-1", "mlx5_1");
  EXPECT_TRUE(near.same_numa_node);
  EXPECT_FALSE(far.same_numa_node);
  EXPECT_LT(near.levels, far.levels);
  EXPECT_EQ(machine.distance("0-7", "mlx5_0").levels, near.levels);
  EXPECT_EQ(machine.distance("0-1", "none").levels, -1);
}

TEST(TopologyTest, a_missing_description_is_survived) {
  const DescribedMachine described("HWLOC_XMLFILE", "/nonexistent.xml");
  // hwloc says so on stderr and falls back to the machine itself: usable all the same.
  EXPECT_GE(Machine::discover(Machine::Detail::CoresOnly).usable_cores(), 1);
}

TEST(TopologyTest, this_machine_follows_the_binding) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  const Machine machine = Machine::discover(Machine::Detail::CoresOnly);
  EXPECT_EQ(machine.usable_cores(), 1);
  EXPECT_EQ(machine.cpuset(), std::to_string(first));
  ASSERT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
}

/// System calls of this process that read something.
std::int64_t reads_so_far() {
  std::ifstream counters("/proc/self/io");
  std::string name;
  std::int64_t count = 0;
  while (counters >> name >> count) {
    if (name == "syscr:") return count;
  }
  return -1;
}

/// What every rank does at its start must not look at devices, of which a host may have hundreds.
TEST(TopologyTest, cores_alone_are_discovered_without_looking_at_devices) {
  if (reads_so_far() < 0) GTEST_SKIP() << "this kernel does not count the reads of a process";
  std::error_code none;
  if (std::filesystem::is_empty("/sys/bus/pci/devices", none) || none)
    GTEST_SKIP() << "there are no devices to look at";
  const std::int64_t first = reads_so_far();
  const std::int64_t of_counting = reads_so_far() - first;
  const auto reads_of = [&](Machine::Detail detail) {
    Machine::discover(detail);  // libraries are read once
    const std::int64_t before = reads_so_far();
    Machine::discover(detail);
    return reads_so_far() - before - of_counting;
  };
  const std::int64_t cores_only = reads_of(Machine::Detail::CoresOnly);
  const std::int64_t with_devices = reads_of(Machine::Detail::WithDevices);
  RecordProperty("cores_only", static_cast<int>(cores_only));
  RecordProperty("with_devices", static_cast<int>(with_devices));
  EXPECT_GT(cores_only, 0);
  EXPECT_LT(cores_only, with_devices);
}

}  // namespace
}  // namespace allrail::topology
