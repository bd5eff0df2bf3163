#include "transport/verbs/port_choice.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "lib/base/error.hpp"
#include "transport/rail.hpp"
#include "transport/verbs/gid_choice.hpp"
#include "transport/verbs/port_setting.hpp"

namespace allrail::transport {
namespace {

constexpr const char* kNotTaken = "not taken: ";

const char* layer_text(LinkLayer layer) {
  switch (layer) {
    case LinkLayer::InfiniBand:
      return "InfiniBand";
    case LinkLayer::Ethernet:
      return "RoCE";
    case LinkLayer::Unknown:
      break;
  }
  return "unknown link layer";
}

std::string rate_text(const VerbsPort& port) {
  return port.rate_mbit == 0 ? "rate not known" : fmt::format("{} Mbit/s", port.rate_mbit);
}

/// Why the port can carry no rail, half a sentence; empty: it can.
std::string obstacle(const VerbsPort& port) {
  if (!port.defect.empty()) return port.defect;
  if (!port.can_write_with_immediate) {
    return fmt::format("{} cannot write with immediate data", port.transport);
  }
  if (port.link_layer == LinkLayer::Unknown) return "its link layer is not known";
  if (port.state == "down") return "port is down";
  if (!port.is_active) return fmt::format("port is {}, not active", port.state);
  if (port.link_layer == LinkLayer::Ethernet && best_gid(port) == nullptr) {
    return fmt::format(
        "it has no GID that can be used ({}); give its network interface {} an address",
        gids_text(port), port.interface);
  }
  return {};
}

/// The slot without the function: the ports of a card are often functions of one PCI device.
std::string slot_of(const VerbsPort& port) {
  const std::string& address =
      port.physical_function.empty() ? port.pci_address : port.physical_function;
  return address.substr(0, address.rfind('.'));
}

/// Digits compare as numbers: mlx5_2 before mlx5_10.
bool name_before(std::string_view one, std::string_view other) {
  const auto is_digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  while (!one.empty() && !other.empty()) {
    std::size_t one_used = 1;
    std::size_t other_used = 1;
    if (is_digit(one.front()) && is_digit(other.front())) {
      const auto take = [&](std::string_view text, std::uint64_t& number) {
        const auto end = std::from_chars(text.data(), text.data() + text.size(), number).ptr;
        return static_cast<std::size_t>(end - text.data());
      };
      std::uint64_t one_number = 0;
      std::uint64_t other_number = 0;
      one_used = take(one, one_number);
      other_used = take(other, other_number);
      if (one_number != other_number) return one_number < other_number;
    } else if (one.front() != other.front()) {
      return one.front() < other.front();
    }
    one.remove_prefix(one_used);
    other.remove_prefix(other_used);
  }
  return one.empty() && !other.empty();
}

class Chooser {
 public:
  Chooser(std::span<const VerbsPort> ports, const PortWish& wish)
      : ports_(ports), wish_(wish), setting_(read_port_setting(ports, wish)) {
    choices_.of_port.resize(ports.size());
  }

  PortChoices run() {
    if (setting_.kind == PortSetting::Kind::Named) {
      take_named();
    } else if (setting_.kind != PortSetting::Kind::Tcp) {
      take_automatically();
    }
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      if (choices_.of_port[i].taken) {
        explain_taken(i);
      } else if (choices_.of_port[i].reason.empty()) {
        choices_.of_port[i].reason = kNotTaken + why_not_wanted();
      }
    }
    if (setting_.kind == PortSetting::Kind::Verbs && choices_.taken.empty()) fail_none();
    return std::move(choices_);
  }

 private:
  bool is_listed(std::size_t index) const {
    return std::ranges::find(setting_.ports, index) != setting_.ports.end();
  }

  std::string why_not_wanted() const {
    return setting_.kind == PortSetting::Kind::Named
               ? std::string("ALLRAIL_RAILS names other rails")
               : fmt::format("ALLRAIL_RAILS is '{}'", wish_.setting);
  }

  void leave(std::size_t index, const std::string& why) {
    choices_.of_port[index].reason = kNotTaken + why;
  }

  void take(std::size_t index) {
    choices_.of_port[index].taken = true;
    choices_.taken.push_back(index);
  }

  void take_named() {
    for (const std::size_t index : setting_.ports) {
      const std::string why_not = obstacle(ports_[index]);
      if (!why_not.empty()) {
        base::fail(Code::BadConfiguration,
                   "ALLRAIL_RAILS is '{}', but {} cannot be used: {}; RDMA ports of this host: {}",
                   wish_.setting, ports_[index].name(), why_not, ports_text(ports_));
      }
      take(index);
    }
    if (choices_.taken.size() > kMaxRails) {
      base::fail(Code::BadConfiguration,
                 "ALLRAIL_RAILS names {} RDMA ports; at most {} can be used", choices_.taken.size(),
                 kMaxRails);
    }
  }

  void take_automatically() {
    std::vector<std::size_t> candidates = find_candidates();
    // Within a slot the fast port and the real function go first.
    std::ranges::sort(candidates, [&](std::size_t one, std::size_t other) {
      const auto key = [&](std::size_t index) {
        return std::tuple(!ports_[index].physical_function.empty(),
                          -std::int64_t{ports_[index].rate_mbit});
      };
      return key(one) != key(other) ? key(one) < key(other) : comes_before(one, other);
    });
    std::vector<std::size_t> fed;
    for (const std::size_t index : candidates) {
      const std::string why_not = why_not_fed(index, fed);
      if (why_not.empty()) {
        fed.push_back(index);
      } else {
        leave(index, why_not);
      }
    }
    std::ranges::sort(fed,
                      [&](std::size_t one, std::size_t other) { return comes_before(one, other); });
    for (const std::size_t index : fed) {
      if (choices_.taken.size() < kMaxRails) {
        take(index);
      } else {
        leave(index,
              fmt::format("a process uses at most {} rails, and others come first", kMaxRails));
      }
    }
  }

  /// Ports that can be used and are of the best link layer; the others learn why not.
  std::vector<std::size_t> find_candidates() {
    std::vector<std::size_t> usable;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      const std::string why_not = is_listed(i) ? "ALLRAIL_RAILS excludes it" : obstacle(ports_[i]);
      if (why_not.empty()) {
        usable.push_back(i);
      } else {
        leave(i, why_not);
      }
    }
    const auto is_infiniband = [&](std::size_t index) {
      return ports_[index].link_layer == LinkLayer::InfiniBand;
    };
    if (std::ranges::none_of(usable, is_infiniband)) return usable;
    std::vector<std::size_t> best;
    for (const std::size_t index : usable) {
      if (is_infiniband(index)) {
        best.push_back(index);
      } else {
        leave(index, "RoCE, and there are InfiniBand ports; name it in ALLRAIL_RAILS to use it");
      }
    }
    return best;
  }

  /// Why the port adds no bandwidth to those in `fed`; empty: it adds some, or nobody knows.
  std::string why_not_fed(std::size_t index, const std::vector<std::size_t>& fed) const {
    const VerbsPort& port = ports_[index];
    if (port.pci_address.empty()) return {};
    std::uint64_t sum_mbit = port.rate_mbit;
    std::size_t neighbour = index;
    for (const std::size_t other : fed) {
      if (slot_of(ports_[other]) != slot_of(port)) continue;
      sum_mbit += ports_[other].rate_mbit;
      neighbour = other;
      if (!port.physical_function.empty()) {
        return fmt::format("a virtual function of the PCI device of {}, which is taken",
                           ports_[other].name());
      }
    }
    if (neighbour == index || port.pcie_mbit == 0 || sum_mbit <= port.pcie_mbit) return {};
    return fmt::format(
        "in the PCI slot of {}, whose PCIe link of {} Mbit/s cannot feed both; name it in "
        "ALLRAIL_RAILS to use it",
        ports_[neighbour].name(), port.pcie_mbit);
  }

  /// 0: near; 1: nobody knows; 2: far.
  int distance(const VerbsPort& port) const {
    if (wish_.numa_node < 0 || port.numa_node < 0) return 1;
    return port.numa_node == wish_.numa_node ? 0 : 2;
  }

  bool comes_before(std::size_t one, std::size_t other) const {
    const int one_distance = distance(ports_[one]);
    const int other_distance = distance(ports_[other]);
    if (one_distance != other_distance) return one_distance < other_distance;
    return name_before(ports_[one].name(), ports_[other].name());
  }

  const VerbsGid* gid_of(const VerbsPort& port) const {
    if (wish_.gid_index < 0) return best_gid(port);
    const VerbsGid* gid = find_gid(port, wish_.gid_index);
    if (gid != nullptr && scope_of(gid->bytes) == GidScope::Unusable) {
      base::fail(Code::BadConfiguration,
                 "ALLRAIL_GID_INDEX is {}, but that GID of {} is no address of a host; it has {}; "
                 "leave the setting unset to let Allrail choose",
                 wish_.gid_index, port.name(), gids_text(port));
    }
    if (gid != nullptr) return gid;
    base::fail(
        Code::BadConfiguration,
        "ALLRAIL_GID_INDEX is {}, but {} has no such GID; it has {}; leave the setting unset "
        "to let Allrail choose",
        wish_.gid_index, port.name(), gids_text(port));
  }

  void explain_taken(std::size_t index) {
    const VerbsPort& port = ports_[index];
    const VerbsGid* gid = gid_of(port);
    const int how_far = distance(port);
    PortChoice& choice = choices_.of_port[index];
    choice.gid_index = gid == nullptr ? -1 : gid->index;
    choice.reason = fmt::format("taken: {}, {}", layer_text(port.link_layer), rate_text(port));
    if (gid != nullptr) choice.reason += ", GID " + gid_text(*gid);
    if (ip_address(port, gid).empty()) choice.reason += ", connects without an IP address";
    if (how_far == 0) choice.reason += ", nearest";
    if (how_far == 2) choice.reason += fmt::format(", on NUMA node {}", port.numa_node);
  }

  [[noreturn]] void fail_none() const {
    std::string reasons;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      reasons +=
          fmt::format("{}{} {}", i == 0 ? "" : ", ", ports_[i].name(), choices_.of_port[i].reason);
    }
    base::fail(Code::BadConfiguration,
               "ALLRAIL_RAILS is 'verbs', but this host has no RDMA port that can be used: {}; use "
               "auto or tcp here",
               reasons.empty() ? "it has none at all" : reasons);
  }

  std::span<const VerbsPort> ports_;
  const PortWish& wish_;
  PortSetting setting_;
  PortChoices choices_;
};

}  // namespace

std::string ports_text(std::span<const VerbsPort> ports) {
  std::string text;
  for (const VerbsPort& port : ports) {
    if (!text.empty()) text += ", ";
    text += port.defect.empty()
                ? fmt::format("{} ({}, {}, {})", port.name(), layer_text(port.link_layer),
                              port.state, rate_text(port))
                : fmt::format("{} ({})", port.name(), port.defect);
  }
  return text.empty() ? "none" : text;
}

PortChoices choose_ports(std::span<const VerbsPort> ports, const PortWish& wish) {
  return Chooser(ports, wish).run();
}

}  // namespace allrail::transport
