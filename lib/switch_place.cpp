#include "lib/switch_place.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/node_spec.hpp"
#include "lib/program_output.hpp"

namespace allrail {
namespace {

constexpr std::string_view kProgram = "ibnetdiscover";
// Of a listing: a fabric of 16,384 hosts takes some 20 MB.
constexpr std::size_t kMostMapBytes = std::size_t{256} << 20;

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  // A folder opens as a file and then cannot be read; an empty file copies nothing, which fails.
  if (!file.is_open() || file.bad() || text.str().empty()) {
    base::fail(Code::BadConfiguration,
               "ALLRAIL_SWITCH_MAP is '{}', which cannot be read, or is empty; name a file that "
               "every host has, or '{}'",
               path, kProgram);
  }
  if (text.str().size() > kMostMapBytes) {
    base::fail(Code::BadConfiguration, "ALLRAIL_SWITCH_MAP is '{}', which is no map: {} bytes",
               path, text.str().size());
  }
  return text.str();
}

/// The port or device GUID that stands at the end of a text such as fe80:...:0002:c903:000a:0001.
std::uint64_t guid_in(const std::string& path) {
  std::string text;
  std::ifstream(path) >> text;
  std::erase(text, ':');
  if (text.size() < 16) return 0;
  const char* const begin = text.data() + text.size() - 16;
  std::uint64_t guid = 0;
  const auto [end, error] = std::from_chars(begin, begin + 16, guid, 16);
  return error == std::errc() && end == begin + 16 ? guid : 0;
}

SwitchPlace place_in(const topology::SwitchMap& map, const topology::HostNames& names,
                     const std::string& source) {
  SwitchPlace place;
  const topology::HostPort* port = topology::find_host(map, names);
  if (port == nullptr) {
    place.problem = fmt::format(
        "{} does not name {}{}", source, names.host,
        names.virtual_node < 0 ? "" : fmt::format(" or {}#{}", names.host, names.virtual_node));
    return place;
  }
  place.leaf = map.leaves[port->leaf].name;
  place.chassis = map.leaves[port->leaf].chassis;
  return place;
}

/// Administrators have it in a folder that other users do not search.
ProgramOutput run_program(base::Deadline deadline) {
  ProgramOutput output = output_of({std::string(kProgram), "-g"}, deadline);
  if (output.problem.find("cannot be started") == std::string::npos) return output;
  ProgramOutput other = output_of({"/usr/sbin/" + std::string(kProgram), "-g"}, deadline);
  return other.problem.find("cannot be started") == std::string::npos ? other : output;
}

}  // namespace

VirtualPlace virtual_place(const std::vector<int>& local_ranks, int rank, const std::string& spec) {
  const auto mine = std::ranges::find(local_ranks, rank);
  if (mine == local_ranks.end()) return {};
  std::vector<int> nodes;
  try {
    nodes = virtual_nodes(spec, static_cast<int>(local_ranks.size()));
  } catch (const Error&) {
    return {};  // said when the nodes are numbered, on all ranks alike
  }
  const auto index = mine - local_ranks.begin();
  const int node = nodes[static_cast<std::size_t>(index)];
  const bool is_one = std::ranges::all_of(nodes, [](int one) { return one == 0; });
  return {is_one ? -1 : node, std::find(nodes.begin(), nodes.end(), node) - nodes.begin() == index};
}

std::vector<std::uint64_t> guids_of(const std::vector<std::string>& rails,
                                    const std::string& folder) {
  std::vector<std::uint64_t> guids;
  for (const std::string& rail : rails) {
    const std::string device = rail.substr(0, rail.find(':'));
    const std::string port = rail.size() > device.size() ? rail.substr(device.size() + 1) : "1";
    for (const std::string& path : {fmt::format("{}/{}/ports/{}/gids/0", folder, device, port),
                                    fmt::format("{}/{}/node_guid", folder, device)}) {
      const std::uint64_t guid = guid_in(path);
      if (guid != 0) guids.push_back(guid);
    }
  }
  return guids;
}

SwitchPlace find_switch_place(const std::string& setting, const topology::HostNames& names,
                              std::chrono::milliseconds limit) {
  if (setting != kProgram) {
    const std::string text = contents_of(setting);
    topology::SwitchMap map;
    try {
      map = topology::parse_switch_map(text);
    } catch (const Error& error) {
      base::fail(Code::BadConfiguration, "ALLRAIL_SWITCH_MAP is '{}': {}", setting, error.what());
    }
    return place_in(map, names, fmt::format("ALLRAIL_SWITCH_MAP is '{}', which", setting));
  }
  const ProgramOutput output = run_program(base::Deadline::after(limit));
  SwitchPlace place;
  if (!output.problem.empty()) {
    place.problem = fmt::format("ALLRAIL_SWITCH_MAP is '{}', and {}", setting, output.problem);
    return place;
  }
  try {
    return place_in(topology::parse_ibnetdiscover(output.text), names,
                    fmt::format("ALLRAIL_SWITCH_MAP is '{}', which", setting));
  } catch (const Error& error) {
    place.problem =
        fmt::format("ALLRAIL_SWITCH_MAP is '{}', in whose output {}", setting, error.what());
    return place;
  }
}

JobSwitches settle_switches(const std::vector<Card>& cards, const std::vector<int>& node_of) {
  const auto nodes = static_cast<std::size_t>(*std::ranges::max_element(node_of)) + 1;
  std::vector<const Card*> card_of(nodes, nullptr);  // that says where the node hangs
  std::vector<const Card*> first_of(nodes, nullptr);
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const auto node = static_cast<std::size_t>(node_of[rank]);
    const Card& card = cards[rank];
    if (first_of[node] == nullptr) first_of[node] = &card;
    if (card_of[node] == nullptr && !card.switch_place.leaf.empty()) card_of[node] = &card;
  }
  JobSwitches job;
  const auto unknown = std::ranges::find(card_of, nullptr);
  if (unknown != card_of.end()) {
    const auto count = std::ranges::count(card_of, nullptr);
    const Card& one = *first_of[static_cast<std::size_t>(unknown - card_of.begin())];
    const bool asked =
        count < static_cast<std::ptrdiff_t>(nodes) ||
        std::ranges::any_of(cards, [](const Card& c) { return !c.switch_place.problem.empty(); });
    if (!asked) return job;
    job.warning = fmt::format(
        "the leaf switches of {} of {} nodes are not known, such as that of host {}: {}; gathers "
        "and scatters go by no switches",
        count, nodes, host_name(one.host),
        one.switch_place.problem.empty() ? "no ALLRAIL_SWITCH_MAP is set there"
                                         : one.switch_place.problem);
    return job;
  }
  std::vector<std::string> leaves;
  leaves.reserve(card_of.size());
  for (const Card* card : card_of) leaves.push_back(card->switch_place.leaf);
  auto switches = std::make_shared<schedule::Switches>();
  switches->leaf_of = schedule::numbers_of(leaves);
  std::vector<std::string> chassis;  // by leaf
  for (std::size_t node = 0; node < nodes; ++node) {
    if (static_cast<std::size_t>(switches->leaf_of[node]) < job.names.leaves.size()) continue;
    job.names.leaves.push_back(leaves[node]);
    chassis.push_back(card_of[node]->switch_place.chassis);
  }
  if (std::ranges::any_of(chassis, [](const std::string& name) { return !name.empty(); })) {
    for (std::size_t leaf = 0; leaf < chassis.size(); ++leaf) {
      if (chassis[leaf].empty()) chassis[leaf] = "of " + job.names.leaves[leaf] + " alone";
    }
    switches->chassis_of = schedule::numbers_of(chassis);
    for (std::size_t leaf = 0; leaf < chassis.size(); ++leaf) {
      if (static_cast<std::size_t>(switches->chassis_of[leaf]) < job.names.chassis.size()) continue;
      job.names.chassis.push_back(chassis[leaf]);
    }
  }
  job.switches = std::move(switches);
  return job;
}

}  // namespace allrail
