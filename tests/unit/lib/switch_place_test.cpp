// On which switch a node hangs: what its first rank finds out, and what all ranks make of the
// cards.
#include "lib/switch_place.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "include/allrail/error.hpp"

namespace allrail {
namespace {

using namespace std::chrono_literals;

constexpr const char* kMap =
    R"({"switches": [{"name": "leaf0", "chassis": "rack", "hosts": ["node0", "node1#1"]}]})";
constexpr const char* kListing =
    "Ca\t1 \"H-1\"\t# \"node0 HCA-1\"\n[1](11)\t\"S-a\"[1]\t# lid 1 lmc 0 \"x\" lid 2 4xFDR\n";

/// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "switch-place-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }
  std::string file(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }
  void program(const std::string& name, const std::string& script) const {
    std::filesystem::permissions(file(name, "#!/bin/sh\n" + script),
                                 std::filesystem::perms::owner_all);
  }

 private:
  std::string path_;
};

TEST(SwitchPlace, TheFirstRankOfEveryVirtualNodeLooks) {
  const auto text = [](int rank, const std::string& spec) {
    const VirtualPlace place = virtual_place({2, 3, 6, 7}, rank, spec);
    return std::to_string(place.node) + (place.is_first ? " first" : "");
  };
  EXPECT_EQ(text(2, ""), "-1 first");
  EXPECT_EQ(text(3, ""), "-1");
  EXPECT_EQ(text(2, "2"), "0 first");
  EXPECT_EQ(text(3, "2"), "0");
  EXPECT_EQ(text(6, "2"), "1 first");
  EXPECT_EQ(text(7, "2"), "1");
  EXPECT_EQ(text(3, "cyclic:2"), "1 first");
  EXPECT_EQ(text(6, "1"), "-1");
  EXPECT_EQ(text(7, "9"), "-1 first") << "said elsewhere";
  EXPECT_EQ(text(9, "2"), "-1 first") << "the launcher does not know it";
}

TEST(SwitchPlace, ReadsGuidsAsTheSystemShowsThem) {
  const Folder folder;
  folder.file("mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0010:0001\n");
  folder.file("mlx5_0/node_guid", "0002:c903:0010:0000\n");
  folder.file("mlx5_1/node_guid", "0000:0000:0000:0000\n");
  folder.file("mlx5_1/ports/2/gids/0", "nonsense, and more of it\n");
  EXPECT_EQ(guids_of({"mlx5_1:2", "mlx5_0:1", "mlx5_7:1", "eth0"}, folder.path()),
            (std::vector<std::uint64_t>{0x2c90300100001, 0x2c90300100000}));
  EXPECT_EQ(guids_of({"mlx5_0"}, folder.path()).size(), 2U) << "port 1 where none is named";
}

TEST(SwitchPlace, IsReadFromAFile) {
  const Folder folder;
  const std::string map = folder.file("map.json", kMap);
  SwitchPlace place = find_switch_place(map, {"node1", 1}, 1s);
  EXPECT_EQ(place.leaf + "/" + place.chassis + "/" + place.problem, "leaf0/rack/");
  place = find_switch_place(map, {"node1", 0}, 1s);
  EXPECT_EQ(place.leaf, "");
  EXPECT_EQ(place.problem,
            "ALLRAIL_SWITCH_MAP is '" + map + "', which does not name node1 or node1#0");
  const std::string listing = folder.file("listing", kListing);
  EXPECT_EQ(find_switch_place(listing, {"node0"}, 1s).leaf, "0xa");
}

TEST(SwitchPlace, OfAFileThatCannotBeReadIsAnError) {
  const Folder folder;
  const auto refusal = [](const std::string& setting) -> std::string {
    try {
      find_switch_place(setting, {"node0"}, 1s);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::BadConfiguration);
      return error.what();
    }
    return "taken";
  };
  EXPECT_NE(refusal(folder.path() + "/nothing").find("cannot be read"), std::string::npos);
  EXPECT_NE(refusal(folder.path()).find("cannot be read"), std::string::npos);
  EXPECT_NE(refusal(folder.file("empty", "")).find("cannot be read"), std::string::npos);
  const std::string bad = folder.file("bad", "#\nwhat\n");
  EXPECT_EQ(refusal(bad), "ALLRAIL_SWITCH_MAP is '" + bad +
                              "': line 2: 'what' is unknown; it is not as ibnetdiscover prints it");
}

TEST(SwitchPlace, IsAskedOfTheProgramWhereThereIsOne) {
  const Folder folder;
  const std::string before = std::getenv("PATH");
  const auto ask = [](std::chrono::milliseconds limit = 60s) {
    return find_switch_place("ibnetdiscover", {"node0"}, limit);
  };
  ASSERT_EQ(::setenv("PATH", (folder.path() + ":" + before).c_str(), 1), 0);
  folder.file("listing", kListing);
  folder.program("ibnetdiscover", "cat " + folder.path() + "/listing");
  EXPECT_EQ(ask().leaf, "0xa");
  folder.program("ibnetdiscover", "exit 1");
  EXPECT_NE(ask().problem.find("exit code 1"), std::string::npos) << ask().problem;
  folder.program("ibnetdiscover", "echo nonsense");
  EXPECT_NE(ask().problem.find("line 1: 'nonsense'"), std::string::npos) << ask().problem;
  folder.program("ibnetdiscover", "exec sleep 600");
  EXPECT_NE(ask(50ms).problem.find("in time"), std::string::npos);
  ASSERT_EQ(::setenv("PATH", before.c_str(), 1), 0);
}

std::vector<Card> cards_of(const std::vector<SwitchPlace>& places) {
  std::vector<Card> cards;
  for (const SwitchPlace& place : places) {
    Card& card = cards.emplace_back();
    card.host = "host" + std::to_string(cards.size() - 1) + "/boot/1";
    card.switch_place = place;
  }
  return cards;
}

TEST(SwitchPlace, CardsSayWhatAllKnow) {
  const JobSwitches job =
      settle_switches(cards_of({{"b", "", ""}, {}, {"a", "", ""}, {"b", "", ""}}), {0, 0, 1, 2});
  ASSERT_NE(job.switches, nullptr);
  EXPECT_EQ(job.switches->leaf_of, (std::vector<int>{0, 1, 0}));
  EXPECT_TRUE(job.switches->chassis_of.empty());
  EXPECT_EQ(job.names.leaves, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(job.warning, "");
  const JobSwitches chassis = settle_switches(
      cards_of({{"b", "y", ""}, {"a", "x", ""}, {"c", "", ""}, {"d", "y", ""}}), {0, 1, 2, 3});
  ASSERT_NE(chassis.switches, nullptr);
  EXPECT_EQ(chassis.switches->chassis_of, (std::vector<int>{0, 1, 2, 0}));
  EXPECT_EQ(chassis.names.chassis, (std::vector<std::string>{"y", "x", "of c alone"}));
}

TEST(SwitchPlace, WhatOneNodeDoesNotKnowNobodyUses) {
  EXPECT_EQ(settle_switches(cards_of({{}, {}}), {0, 1}).switches, nullptr);
  EXPECT_EQ(settle_switches(cards_of({{}, {}}), {0, 1}).warning, "") << "nobody asked";
  const JobSwitches unknown =
      settle_switches(cards_of({{"a", "", ""}, {"", "", "the map does not name host1"}}), {0, 1});
  EXPECT_EQ(unknown.switches, nullptr);
  EXPECT_EQ(unknown.warning,
            "the leaf switches of 1 of 2 nodes are not known, such as that of host host1: the map "
            "does not name host1; gathers and scatters go by no switches");
  EXPECT_NE(settle_switches(cards_of({{"a", "", ""}, {}}), {0, 1}).warning.find("is set there"),
            std::string::npos);
}

}  // namespace
}  // namespace allrail
