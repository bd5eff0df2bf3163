#include "transport/verbs/port_choice.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/verbs/made_up_ports.hpp"
#include "transport/rail.hpp"

namespace allrail::transport {
namespace {

using test::at;
using test::down;
using test::expect_bad_configuration;
using test::infiniband_port;
using test::make_port;
using test::roce_port;

using Ports = std::vector<VerbsPort>;
using Names = std::vector<std::string>;

PortChoices choose(const Ports& ports, std::string_view setting = "auto", int numa_node = -1) {
  PortWish wish;
  wish.setting = setting;
  wish.numa_node = numa_node;
  return choose_ports(ports, wish);
}

/// The rails in their order; also checks that everything says the same.
Names rails(const Ports& ports, const PortChoices& choices) {
  Names names;
  EXPECT_EQ(choices.of_port.size(), ports.size());
  for (const std::size_t index : choices.taken) {
    names.push_back(ports[index].name());
    EXPECT_TRUE(choices.of_port[index].taken);
  }
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const PortChoice& one = choices.of_port[i];
    EXPECT_TRUE(one.reason.starts_with(one.taken ? "taken: " : "not taken: ")) << one.reason;
    EXPECT_EQ(std::ranges::count(choices.taken, i), one.taken ? 1 : 0);
  }
  return names;
}

Names rails(const Ports& ports, std::string_view setting = "auto", int numa_node = -1) {
  return rails(ports, choose(ports, setting, numa_node));
}

/// Why the port of that place was or was not taken.
std::string reason(const Ports& ports, std::size_t index, std::string_view setting = "auto",
                   int numa_node = -1) {
  return choose(ports, setting, numa_node).of_port[index].reason;
}

VerbsPort iwarp_port(const std::string& device) {
  VerbsPort port = make_port(device, 1, LinkLayer::Ethernet);
  port.transport = "iWARP";
  port.can_write_with_immediate = false;
  return port;
}

TEST(ChoosePorts, TakesNothingFromAHostWithoutRdma) {
  EXPECT_EQ(rails({}), Names());
  EXPECT_EQ(rails({}, "tcp"), Names());
}

TEST(ChoosePorts, TakesAllActivePortsOfTheBestLinkLayer) {
  const Ports ports = {roce_port("rxe0"), infiniband_port("mlx5_1"), infiniband_port("mlx5_0")};
  EXPECT_EQ(rails(ports), (Names{"mlx5_0:1", "mlx5_1:1"}));
  EXPECT_NE(reason(ports, 0).find("there are InfiniBand ports"), std::string::npos);
  EXPECT_EQ(rails(ports, "verbs"), (Names{"mlx5_0:1", "mlx5_1:1"}));
  // An InfiniBand port that is down does not make the others wait for it.
  const Ports without = {roce_port("rxe0"), down(infiniband_port("mlx5_1"))};
  EXPECT_EQ(rails(without), Names{"rxe0:1"});
}

TEST(ChoosePorts, LeavesWhatCannotCarryRailsAndSaysWhy) {
  VerbsPort closed;
  closed.device = "mlx5_9";
  closed.defect = "it cannot be opened: Permission denied";
  VerbsPort armed = infiniband_port("mlx5_2");
  armed.is_active = false;
  armed.state = "armed";
  VerbsPort no_gid = roce_port("mlx5_3");
  no_gid.gids.clear();
  const Ports ports = {closed, down(roce_port("mlx5_1")), armed, no_gid, iwarp_port("siw0")};
  EXPECT_EQ(rails(ports), Names());
  EXPECT_EQ(reason(ports, 0), "not taken: it cannot be opened: Permission denied");
  EXPECT_EQ(reason(ports, 1), "not taken: port is down");
  EXPECT_EQ(reason(ports, 2), "not taken: port is armed, not active");
  EXPECT_EQ(reason(ports, 3),
            "not taken: it has no GID that can be used (none); give its network interface "
            "eth-mlx5_3 an address");
  EXPECT_EQ(reason(ports, 4), "not taken: iWARP cannot write with immediate data");
}

TEST(ChoosePorts, NeedsNoGidOnInfiniBand) {
  Ports ports = {infiniband_port("mlx5_0")};
  ports[0].gids.clear();
  const PortChoices choices = choose(ports);
  EXPECT_EQ(rails(ports, choices), Names{"mlx5_0:1"});
  EXPECT_EQ(choices.of_port[0].gid_index, -1);
}

TEST(ChoosePorts, TakesPortsWithoutAnIpAddress) {
  VerbsPort roce = roce_port("mlx5_1");
  roce.gids.resize(2);
  const Ports ports = {infiniband_port("mlx5_0"), roce};
  EXPECT_EQ(rails(ports, "mlx5_0,mlx5_1"), (Names{"mlx5_0:1", "mlx5_1:1"}));
  for (const std::size_t port : {0U, 1U}) {
    EXPECT_NE(reason(ports, port, "mlx5_0,mlx5_1").find("connects without an IP address"),
              std::string::npos)
        << reason(ports, port, "mlx5_0,mlx5_1");
  }
}

TEST(ChoosePorts, ShowsTheChoice) {
  Ports ports = {at(roce_port("mlx5_0", "10.9.0.1"), "0000:3b:00.0", 0, 1)};
  EXPECT_EQ(reason(ports, 0, "auto", 1),
            "taken: RoCE, 100000 Mbit/s, GID 3 = 10.9.0.1 (RoCE v2), nearest");
  EXPECT_EQ(reason(ports, 0, "auto", 0),
            "taken: RoCE, 100000 Mbit/s, GID 3 = 10.9.0.1 (RoCE v2), on NUMA node 1");
  ports[0].numa_node = -1;
  ports[0].rate_mbit = 0;
  EXPECT_EQ(reason(ports, 0, "auto", 0), "taken: RoCE, rate not known, GID 3 = 10.9.0.1 (RoCE v2)");
  EXPECT_EQ(choose(ports).of_port[0].gid_index, 3);
}

TEST(ChoosePorts, PutsTheNearestFirstThenGoesByName) {
  const Ports ports = {at(infiniband_port("mlx5_10"), "0000:01:00.0", 0, 0),
                       at(infiniband_port("mlx5_2"), "0000:02:00.0", 0, 1),
                       at(infiniband_port("mlx5_1"), "0000:03:00.0", 0, 0),
                       at(infiniband_port("mlx5_3"), "0000:04:00.0", 0, -1)};
  EXPECT_EQ(rails(ports, "auto", 0), (Names{"mlx5_1:1", "mlx5_10:1", "mlx5_3:1", "mlx5_2:1"}));
  EXPECT_EQ(rails(ports, "auto", 1), (Names{"mlx5_2:1", "mlx5_3:1", "mlx5_1:1", "mlx5_10:1"}));
  EXPECT_EQ(rails(ports, "auto", -1), (Names{"mlx5_1:1", "mlx5_2:1", "mlx5_3:1", "mlx5_10:1"}));
}

TEST(ChoosePorts, TakesTheSecondPortOfACardOnlyWhereItAddsBandwidth) {
  constexpr std::uint32_t kThirdGeneration16 = 126'030;
  constexpr std::uint32_t kFourthGeneration16 = 252'060;
  for (const char* second_address : {"0000:3b:00.0", "0000:3b:00.1"}) {
    const auto card = [&](std::uint32_t pcie_mbit) {
      return Ports{at(infiniband_port("mlx5_1", 2), second_address, pcie_mbit),
                   at(infiniband_port("mlx5_0", 1), "0000:3b:00.0", pcie_mbit)};
    };
    EXPECT_EQ(rails(card(kThirdGeneration16)), Names{"mlx5_0:1"});
    EXPECT_EQ(
        reason(card(kThirdGeneration16), 0),
        "not taken: in the PCI slot of mlx5_0:1, whose PCIe link of 126030 Mbit/s cannot feed "
        "both; name it in ALLRAIL_RAILS to use it");
    EXPECT_EQ(rails(card(kFourthGeneration16)), (Names{"mlx5_0:1", "mlx5_1:2"}));
    EXPECT_EQ(rails(card(0)), (Names{"mlx5_0:1", "mlx5_1:2"})) << "not known: it might add some";
    EXPECT_EQ(rails(card(kThirdGeneration16), "mlx5_1:2,mlx5_0:1"), (Names{"mlx5_1:2", "mlx5_0:1"}))
        << "who names them gets them";
    Ports other_slots = card(kThirdGeneration16);
    other_slots[0].pci_address = "0000:3b:01.0";
    EXPECT_EQ(rails(other_slots), (Names{"mlx5_0:1", "mlx5_1:2"}));
    other_slots[0].pci_address = other_slots[1].pci_address = "";
    EXPECT_EQ(rails(other_slots), (Names{"mlx5_0:1", "mlx5_1:2"})) << "no PCI, no shared link";
  }
}

TEST(ChoosePorts, PrefersTheFasterPortOfACard) {
  Ports ports = {at(infiniband_port("mlx4_0", 1), "0000:3b:00.0", 63'015),
                 at(infiniband_port("mlx4_0", 2), "0000:3b:00.0", 63'015)};
  ports[0].rate_mbit = 40'000;
  ports[1].rate_mbit = 56'000;
  EXPECT_EQ(rails(ports), Names{"mlx4_0:2"});
  // A port that is down leaves the link to the other one.
  ports[1] = down(ports[1]);
  EXPECT_EQ(rails(ports), Names{"mlx4_0:1"});
}

TEST(ChoosePorts, LeavesVirtualFunctionsOfAPortThatIsTaken) {
  Ports ports = {at(infiniband_port("mlx5_1"), "0000:3b:00.2", 252'060),
                 at(infiniband_port("mlx5_2"), "0000:3b:00.0", 252'060)};
  ports[0].physical_function = "0000:3b:00.0";
  EXPECT_EQ(rails(ports), Names{"mlx5_2:1"});
  EXPECT_NE(reason(ports, 0).find("virtual function"), std::string::npos);
  // In a virtual machine only the function is there.
  ports[0].physical_function.clear();
  ports.pop_back();
  EXPECT_EQ(rails(ports), Names{"mlx5_1:1"});
}

TEST(ChoosePorts, TakesAtMostSoManyRails) {
  Ports ports;
  std::string all;
  for (int i = 0; i <= kMaxRails; ++i) {
    ports.push_back(
        at(infiniband_port("mlx5_" + std::to_string(i)), "", 0, i == kMaxRails ? 0 : 1));
    all += (i == 0 ? "" : ",") + ports.back().name();
  }
  const Names taken = rails(ports, "auto", 0);
  ASSERT_EQ(taken.size(), std::size_t{kMaxRails});
  EXPECT_EQ(taken.front(), ports.back().name()) << "the near one is not the one to leave";
  EXPECT_NE(reason(ports, kMaxRails - 1, "auto", 0).find("at most 8 rails"), std::string::npos);
  expect_bad_configuration([&] { choose(ports, all); }, {"names 9 RDMA ports", "at most 8"});
}

TEST(ChoosePorts, TakesNamedPortsInTheirOrder) {
  const Ports ports = {infiniband_port("mlx5_0"), infiniband_port("mlx5_1", 1),
                       infiniband_port("mlx5_1", 2), roce_port("rxe0")};
  EXPECT_EQ(rails(ports, "mlx5_1:1,mlx5_0:1"), (Names{"mlx5_1:1", "mlx5_0:1"}));
  EXPECT_EQ(rails(ports, "mlx5_1"), Names{"mlx5_1:1"}) << "a device alone means its port 1";
  EXPECT_EQ(rails(ports, "rxe0"), Names{"rxe0:1"}) << "whatever its link layer";
  EXPECT_EQ(reason(ports, 0, "rxe0"), "not taken: ALLRAIL_RAILS names other rails");
  EXPECT_EQ(reason(ports, 0, "tcp"), "not taken: ALLRAIL_RAILS is 'tcp'");
}

TEST(ChoosePorts, LeavesExcludedPorts) {
  const Ports ports = {infiniband_port("mlx5_0"), infiniband_port("mlx5_1", 1),
                       infiniband_port("mlx5_1", 2), roce_port("rxe0")};
  EXPECT_EQ(rails(ports, "^mlx5_0:1"), (Names{"mlx5_1:1", "mlx5_1:2"}));
  EXPECT_EQ(rails(ports, "^mlx5_0,^mlx5_1:2"), Names{"mlx5_1:1"});
  EXPECT_EQ(rails(ports, "^mlx5_0,^mlx5_1"), Names{"rxe0:1"}) << "all ports of a device";
  EXPECT_EQ(rails(ports, "^mlx5_0,^mlx5_1,^rxe0"), Names());
  EXPECT_EQ(reason(ports, 0, "^mlx5_0"), "not taken: ALLRAIL_RAILS excludes it");
}

TEST(ChoosePorts, RefusesWhatIsNotThere) {
  const Ports ports = {infiniband_port("mlx5_0"), down(roce_port("rxe0"))};
  const char* list = "mlx5_0:1 (InfiniBand, active, 100000 Mbit/s), rxe0:1 (RoCE, down, 100000";
  expect_bad_configuration([&] { choose(ports, "mlx5_7:1"); }, {"mlx5_7", "no RDMA device", list});
  expect_bad_configuration([&] { choose(ports, "mlx5_0:2"); }, {"mlx5_0 has no port '2'", list});
  expect_bad_configuration([&] { choose(ports, "mlx5_0:x"); }, {"mlx5_0 has no port 'x'", list});
  expect_bad_configuration([&] { choose(ports, "mlx5_0:"); }, {"mlx5_0 has no port ''", list});
  expect_bad_configuration([&] { choose(ports, "^mlx5_7"); }, {"mlx5_7", list});
  expect_bad_configuration([&] { choose(ports, "mlx5_0,"); }, {"ALLRAIL_RAILS is 'mlx5_0,'", list});
  expect_bad_configuration([&] { choose(ports, ""); }, {"ALLRAIL_RAILS is ''", list});
  expect_bad_configuration([&] { choose(ports, "mlx5_0,^rxe0"); }, {"not both", list});
  expect_bad_configuration([&] { choose(ports, "mlx5_0,mlx5_0:1"); },
                           {"mlx5_0:1 stands there twice"});
  expect_bad_configuration([&] { choose({}, "mlx5_0"); }, {"RDMA ports of this host: none"});
}

TEST(ChoosePorts, RefusesNamedPortsThatCannotBeUsed) {
  VerbsPort no_gid = roce_port("mlx5_3");
  no_gid.gids = {test::make_gid(0, "ff02::1")};
  VerbsPort closed;
  closed.device = "mlx5_9";
  closed.defect = "it cannot be opened: Permission denied";
  const Ports ports = {infiniband_port("mlx5_0"), down(infiniband_port("mlx5_1")),
                       iwarp_port("siw0"), no_gid, closed};
  const char* list = "RDMA ports of this host: mlx5_0:1 (InfiniBand, active";
  expect_bad_configuration([&] { choose(ports, "mlx5_0,mlx5_1"); },
                           {"mlx5_1:1 cannot be used: port is down", list});
  expect_bad_configuration([&] { choose(ports, "siw0"); },
                           {"siw0:1", "iWARP cannot write with immediate data", list});
  expect_bad_configuration([&] { choose(ports, "mlx5_3"); },
                           {"mlx5_3:1", "no GID", "ff02::1", list});
  expect_bad_configuration([&] { choose(ports, "mlx5_9:1"); }, {"Permission denied", list});
}

TEST(ChoosePorts, RefusesVerbsWhereThereIsNone) {
  expect_bad_configuration([&] { choose({}, "verbs"); }, {"'verbs'", "none at all", "tcp"});
  expect_bad_configuration([&] { choose({down(infiniband_port("mlx5_0"))}, "verbs"); },
                           {"'verbs'", "mlx5_0:1 not taken: port is down"});
}

TEST(ChoosePorts, SkipsWhatTheSettingNamesOutsideVerbs) {
  const Ports ports = {infiniband_port("mlx5_0")};
  const Names others = {"eth0", "127.0.0.2"};
  PortWish wish;
  wish.other_names = others;
  wish.setting = "eth0,127.0.0.2";
  EXPECT_EQ(rails(ports, choose_ports(ports, wish)), Names());
  wish.setting = "^eth0";
  EXPECT_EQ(rails(ports, choose_ports(ports, wish)), Names{"mlx5_0:1"});
  wish.setting = "eth0,mlx5_0";
  EXPECT_EQ(rails(ports, choose_ports(ports, wish)), Names{"mlx5_0:1"});
  wish.setting = "^eth1";
  expect_bad_configuration([&] { choose_ports(ports, wish); }, {"'eth1'", "eth0, 127.0.0.2"});
}

TEST(ChoosePorts, TakesTheGidThatWasAskedFor) {
  const Ports ports = {roce_port("mlx5_0"), roce_port("mlx5_1"), down(roce_port("mlx5_2"))};
  PortWish wish;
  wish.gid_index = 1;
  const PortChoices choices = choose_ports(ports, wish);
  EXPECT_EQ(choices.of_port[0].gid_index, 1);
  EXPECT_EQ(choices.of_port[1].gid_index, 1);
  EXPECT_EQ(choices.of_port[2].gid_index, -1);
  EXPECT_NE(choices.of_port[0].reason.find("GID 1 = fe80::1 (RoCE v2)"), std::string::npos);
}

TEST(ChoosePorts, RefusesAGidThatATakenPortHasNot) {
  Ports ports = {roce_port("mlx5_0"), roce_port("mlx5_1"), roce_port("mlx5_2")};
  ports[1].gids.pop_back();
  ports[2].gids.clear();
  PortWish wish;
  wish.gid_index = 3;
  expect_bad_configuration(
      [&] { choose_ports(ports, wish); },
      {"ALLRAIL_GID_INDEX is 3", "mlx5_1:1 has no such GID",
       "0 = fe80::1 (RoCE v1), 1 = fe80::1 (RoCE v2), 2 = 10.0.0.1 (RoCE v1)"});
  wish.setting = "mlx5_0";
  EXPECT_EQ(choose_ports(ports, wish).of_port[0].gid_index, 3) << "ports not taken do not matter";
  ports[0].gids[3].bytes = test::gid_bytes("::");
  expect_bad_configuration([&] { choose_ports(ports, wish); },
                           {"ALLRAIL_GID_INDEX is 3", "mlx5_0:1 is no address of a host"});
}

TEST(NamesVerbsPort, TellsPortsFromInterfacesAndAddresses) {
  const Ports ports = {infiniband_port("mlx5_0"), roce_port("rxe0")};
  for (const char* item : {"mlx5_0", "mlx5_0:1", "rxe0", "mlx5_7:1", "rxe0:x"}) {
    EXPECT_TRUE(names_verbs_port(item, ports)) << item;
  }
  for (const char* item : {"eth0", "127.0.0.2", "fd00::1", "fe80::1:2", "10.0.0.1:1", ":1", ""}) {
    EXPECT_FALSE(names_verbs_port(item, ports)) << item;
  }
}

}  // namespace
}  // namespace allrail::transport
