#include "transport/verbs/port_setting.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"

namespace allrail::transport {
namespace {

/// "mlx5_0:1" or "mlx5_0"; a port that is no number is none.
struct PortName {
  std::string_view device;
  std::optional<std::uint64_t> number;
  bool has_number = false;
};

PortName split_name(std::string_view item) {
  const std::size_t colon = item.rfind(':');
  if (colon == std::string_view::npos) return {item, std::nullopt, false};
  return {item.substr(0, colon), base::parse_number(item.substr(colon + 1)), true};
}

[[noreturn]] void fail_unknown(std::string_view item, std::span<const VerbsPort> ports,
                               const PortWish& wish) {
  const PortName name = split_name(item);
  const bool device_exists =
      std::ranges::any_of(ports, [&](const VerbsPort& port) { return port.device == name.device; });
  std::string others;
  for (const std::string& other : wish.other_names) {
    others += (others.empty() ? "; interfaces and addresses: " : ", ") + other;
  }
  base::fail(Code::BadConfiguration, "ALLRAIL_RAILS is '{}', but {}; RDMA ports of this host: {}{}",
             wish.setting,
             device_exists ? fmt::format("the device {} has no port '{}'", name.device,
                                         name.has_number ? item.substr(item.rfind(':') + 1) : "1")
                           : fmt::format("this host has no RDMA device '{}'", name.device),
             ports_text(ports), others);
}

/// The ports that an item means; `all_of_device`: a device alone means all its ports, else the
/// first.
std::vector<std::size_t> find_ports(std::string_view item, std::span<const VerbsPort> ports,
                                    bool all_of_device) {
  const PortName name = split_name(item);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].device != name.device) continue;
    const auto number = static_cast<std::uint64_t>(ports[i].number);
    if (name.has_number ? name.number == number : (all_of_device || number == 1)) {
      found.push_back(i);
    }
  }
  return found;
}

}  // namespace

bool names_verbs_port(std::string_view item, std::span<const VerbsPort> ports) {
  const PortName name = split_name(item);
  const bool is_address = name.device.find_first_of(":.") != std::string_view::npos;
  return (name.number.has_value() && !name.device.empty() && !is_address) ||
         std::ranges::any_of(ports,
                             [&](const VerbsPort& port) { return port.device == name.device; });
}

PortSetting read_port_setting(std::span<const VerbsPort> ports, const PortWish& wish) {
  using Kind = PortSetting::Kind;
  if (wish.setting == "auto") return {Kind::Auto, {}};
  if (wish.setting == "verbs") return {Kind::Verbs, {}};
  if (wish.setting == "tcp") return {Kind::Tcp, {}};
  const auto items = base::split(wish.setting, ',');
  const auto excludes = static_cast<std::size_t>(
      std::ranges::count_if(items, [](const std::string& item) { return item.starts_with('^'); }));
  if (items.empty() || (excludes != 0 && excludes != items.size())) {
    base::fail(Code::BadConfiguration,
               "ALLRAIL_RAILS is '{}': either name rails, or exclude some with ^, not both; RDMA "
               "ports of this host: {}",
               wish.setting, ports_text(ports));
  }
  PortSetting setting;
  setting.kind = excludes == 0 ? Kind::Named : Kind::Excludes;
  for (const std::string& text : items) {
    const std::string item = excludes == 0 ? text : text.substr(1);
    const auto found = find_ports(item, ports, setting.kind == Kind::Excludes);
    if (found.empty() && std::ranges::find(wish.other_names, item) != wish.other_names.end()) {
      continue;
    }
    if (found.empty()) fail_unknown(item, ports, wish);
    for (const std::size_t index : found) {
      if (std::ranges::find(setting.ports, index) != setting.ports.end()) {
        base::fail(Code::BadConfiguration, "ALLRAIL_RAILS is '{}': {} stands there twice",
                   wish.setting, ports[index].name());
      }
      setting.ports.push_back(index);
    }
  }
  return setting;
}

}  // namespace allrail::transport
