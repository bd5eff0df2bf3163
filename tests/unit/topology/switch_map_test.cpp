// Switch maps: listings of fabrics in the form of ibnetdiscover, our JSON form, what is refused and
// where, and which port of a host counts.
#include "lib/topology/switch_map.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"

namespace allrail::topology {
namespace {

/// Two leaves below two spines with three hosts and a router; two chassis of a spine and lines, and
/// a switch in none.
std::string listing(const std::string& name) {
  const char* folder = std::getenv("ALLRAIL_TEST_MACHINES");
  if (folder == nullptr) throw std::runtime_error("ALLRAIL_TEST_MACHINES must name a folder");
  std::ostringstream text;
  text << std::ifstream(std::string(folder) + "/" + name + ".ibnetdiscover").rdbuf();
  return text.str();
}

/// The leaf of a host, and its chassis if it has one.
std::string place(const SwitchMap& map, const HostNames& names) {
  const HostPort* port = find_host(map, names);
  if (port == nullptr) return "nowhere";
  const LeafSwitch& leaf = map.leaves[port->leaf];
  return leaf.name + (leaf.chassis.empty() ? "" : ", chassis " + leaf.chassis);
}

std::string refusal(std::string_view text) {
  try {
    parse_switch_map(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::BadConfiguration);
    return error.what();
  }
  return "taken";
}

TEST(SwitchMap, ReadsAFatTree) {
  const SwitchMap map = parse_switch_map(listing("fat_tree"));
  EXPECT_EQ(map.leaves.size(), 2U) << "spines and routers have no hosts";
  EXPECT_EQ(map.ports.size(), 4U);
  EXPECT_EQ(place(map, {"node0"}), "0x2c90200400a01 (leaf0)");
  EXPECT_EQ(place(map, {"node1"}), "0x2c90200400a01 (leaf0)");
  EXPECT_EQ(place(map, {"node2"}), "0x2c90200400b01 (leaf1)");
  EXPECT_EQ(place(map, {"node3"}), "nowhere");
  EXPECT_EQ(place(map, {"node"}), "nowhere");
}

TEST(SwitchMap, ReadsChassis) {
  const SwitchMap map = parse_switch_map(listing("two_chassis"));
  EXPECT_EQ(map.leaves.size(), 4U);
  const std::string line = " (ISR2004/ISR2012 Voltaire sLB-24), chassis 0x8f104004";
  EXPECT_EQ(place(map, {"node0"}), "0x8f10400410001" + line + "10000");
  EXPECT_EQ(place(map, {"node1"}), "0x8f10400410002" + line + "10000");
  EXPECT_EQ(place(map, {"node2"}), "0x8f10400420001" + line + "20000");
  EXPECT_EQ(place(map, {"node3"}), "0x5442ba00003080 (ISR9024 \"old\" Voltaire)")
      << "in no chassis, whatever the node before it said";
}

TEST(SwitchMap, ReadsCarriageReturnsSpacesAndNoLastLineEnd) {
  std::string text = listing("fat_tree");
  text.pop_back();
  std::string other;
  for (const char c : text) other += c == '\n' ? "\r\n" : c == '\t' ? "   " : std::string(1, c);
  EXPECT_EQ(place(parse_switch_map(other), {"node2"}), "0x2c90200400b01 (leaf1)");
}

TEST(SwitchMap, NamesTheLineThatIsWrong) {
  const std::string head = "vendid=0x2c9\nSwitch\t8 \"S-1\"\t# \"leaf\" base port 0\n";
  const auto wrong = [&](const std::string& line) { return refusal(head + line + "\n"); };
  const std::string tail = "; it is not as ibnetdiscover prints it";
  EXPECT_EQ(wrong("hello"), "line 3: 'hello' is unknown" + tail);
  EXPECT_EQ(wrong("Ca two"), "line 3: a number is missing" + tail);
  EXPECT_EQ(wrong("Ca\t2 H-1"), "line 3: '\"' is missing" + tail);
  EXPECT_EQ(wrong("Ca\t2 \"H-xyz\""), "line 3: a number is missing" + tail);
  EXPECT_EQ(wrong("Ca\t2 \"X-1\""), "line 3: a node is missing" + tail);
  EXPECT_EQ(wrong("Ca\t2 \"S-1\""),
            "line 3: what kind of node it is does not fit to its name" + tail);
  EXPECT_EQ(wrong("Ca\t99999 \"H-1\""), "line 3: a number is too large" + tail);
  EXPECT_EQ(wrong("[1] \"H-1\"(1)"), "line 3: '[' is missing" + tail);
  EXPECT_EQ(wrong("[1 \"H-1\"[1]"), "line 3: ']' is missing" + tail);
  EXPECT_EQ(wrong("sysimgguid=0x1\t# Chassis one"), "line 3: a number is missing" + tail);
  EXPECT_EQ(refusal("[1] \"H-1\"[1]"), "line 1: a port stands before any node" + tail);
  EXPECT_EQ(wrong("[1]\t\"H-5\"[1](5) # \"node0\" lid 4 4xFDR"),
            "line 3: it ends, and lists no host that hangs on a switch");
  EXPECT_EQ(refusal(" \n\t"), "line 1: it is empty");
}

TEST(SwitchMap, ReadsJson) {
  const SwitchMap map = parse_switch_map(R"( {"switches": [
    {"name": "leaf0", "chassis": "rack1", "hosts": ["node0", "node1#0"]},
    {"name": "leaf1", "hosts": ["node1#1", "node2.example.org"]},
    {"name": "spare", "hosts": []}]})");
  EXPECT_EQ(map.leaves.size(), 3U);
  EXPECT_EQ(place(map, {"node0"}), "leaf0, chassis rack1");
  EXPECT_EQ(place(map, {"node0", 3}), "leaf0, chassis rack1") << "the name without a number";
  EXPECT_EQ(place(map, {"node1", 0}), "leaf0, chassis rack1");
  EXPECT_EQ(place(map, {"node1", 1}), "leaf1");
  EXPECT_EQ(place(map, {"node1", 2}), "nowhere");
  EXPECT_EQ(place(map, {"node1"}), "nowhere");
  EXPECT_EQ(place(map, {"node2"}), "leaf1");
  EXPECT_EQ(place(map, {"node2.another.org"}), "leaf1") << "names without their domains";
  EXPECT_EQ(place(map, {""}), "nowhere");
}

TEST(SwitchMap, NamesThePlaceInJsonThatIsWrong) {
  EXPECT_TRUE(refusal("{\"switches\": [\n  {\"name\": }\n]}").starts_with("parse error at line 2"));
  EXPECT_TRUE(refusal("{").starts_with("parse error at line 1"));
  EXPECT_TRUE(refusal("{\"switches\": \"\xff\"}").starts_with("parse error at line 1"));
  const auto wrong = [](const std::string& one) {
    return refusal("{\"switches\": [" + one + "]}");
  };
  EXPECT_EQ(refusal("{}"), "the document: it must have a list named \"switches\"");
  EXPECT_EQ(refusal(R"({"switches": {}})"), "the document: it must have a list named \"switches\"");
  EXPECT_EQ(refusal(R"({"switches": [], "hosts": []})"),
            "the document: \"hosts\" is none of its names");
  EXPECT_EQ(wrong("7"), "switches[0]: it must be an object");
  EXPECT_EQ(wrong(R"({"hosts": []})"), "switches[0].name: it must be a text that is not empty");
  EXPECT_EQ(wrong(R"({"name": 7, "hosts": []})"),
            "switches[0].name: it must be a text that is not empty");
  EXPECT_EQ(wrong(R"({"name": "a"})"), "switches[0]: it must have a list named \"hosts\"");
  EXPECT_EQ(wrong(R"({"name": "a", "hosts": ["b", ""]})"),
            "switches[0].hosts[1]: it must be a text that is not empty");
  EXPECT_EQ(wrong(R"({"name": "a", "chassis": 1, "hosts": []})"),
            "switches[0].chassis: it must be a text that is not empty");
  EXPECT_EQ(wrong(R"({"name": "a", "host": []})"), "switches[0]: \"host\" is none of its names");
  EXPECT_EQ(wrong(R"({"name": "a", "hosts": ["b"]}, {"name": "c", "hosts": ["b"]})"),
            "switches[1].hosts[0]: 'b' hangs on an earlier switch already");
  EXPECT_EQ(wrong(R"({"name": "a", "hosts": []}, {"name": "a", "hosts": []})"),
            "switches[1].name: 'a' is the name of an earlier switch");
}

TEST(SwitchMap, FindsAHostByTheGuidsOfItsRailsFirst) {
  const SwitchMap map = parse_switch_map(listing("fat_tree"));
  // A port of node2, and the device of node0, on a host that the fabric calls otherwise.
  EXPECT_EQ(place(map, {"other", -1, {0x2c90300120002}}), "0x2c90200400b01 (leaf1)");
  EXPECT_EQ(place(map, {"other", -1, {0x2c90300100000}}), "0x2c90200400a01 (leaf0)");
  EXPECT_EQ(place(map, {"node0", -1, {0, 0x77, 0x2c90300120001, 0x2c90300100000}}),
            "0x2c90200400b01 (leaf1)")
      << "the first rail, whatever the name says";
  EXPECT_EQ(place(map, {"node0", -1, {0, 0x77}}), "0x2c90200400a01 (leaf0)");
}

TEST(SwitchMap, TakesTheFirstPortOfAHostWithSeveralPlanes) {
  const std::string text = R"(
Ca	1 "H-2"		# "node0 HCA-2"
[1](21) 	"S-b"[1]		# lid 1 lmc 0 "plane1" lid 3 4xFDR
Ca	2 "H-1"		# "node0 HCA-1"
[2](12) 	"S-b"[2]		# lid 2 lmc 0 "plane1" lid 3 4xFDR
[1](11) 	"S-a"[1]		# lid 3 lmc 0 "plane0" lid 2 4xFDR
Ca	1 "H-3"		# "node00 HCA-0"
[1](31) 	"H-2"[2](22) 	# lid 7 lmc 0 "node0 HCA-2" lid 1 4xFDR
)";
  const SwitchMap map = parse_switch_map(text);
  EXPECT_EQ(map.ports.size(), 3U) << "a cable between two hosts is no switch";
  const HostPort* port = find_host(map, {"node0"});
  ASSERT_NE(port, nullptr);
  EXPECT_EQ(port->device, "HCA-1");
  EXPECT_EQ(port->port, 1);
  EXPECT_EQ(map.leaves[port->leaf].name, "0xa");
  EXPECT_EQ(find_host(map, {"node0", -1, {0x1}})->port, 1) << "of the device";
  EXPECT_EQ(find_host(map, {"node0", -1, {0x12}})->port, 2);
}

}  // namespace
}  // namespace allrail::topology
