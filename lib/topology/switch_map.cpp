#include "lib/topology/switch_map.hpp"

#include <algorithm>
#include <tuple>

#include "lib/base/error.hpp"

namespace allrail::topology {
namespace {

std::string_view short_name(std::string_view host) { return host.substr(0, host.find('.')); }

/// The first one that fits, by device and number of the port.
template <class Fits>
const HostPort* first_port(const SwitchMap& map, const Fits& fits) {
  const HostPort* found = nullptr;
  for (const HostPort& port : map.ports) {
    if (!fits(port)) continue;
    if (found == nullptr ||
        std::tie(port.device, port.port) < std::tie(found->device, found->port)) {
      found = &port;
    }
  }
  return found;
}

}  // namespace

SwitchMap parse_switch_map(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) base::fail(Code::BadConfiguration, "line 1: it is empty");
  return text[begin] == '{' ? parse_switch_json(text) : parse_ibnetdiscover(text);
}

const HostPort* find_host(const SwitchMap& map, const HostNames& names) {
  if (names.virtual_node >= 0) {
    const std::string name = fmt::format("{}#{}", names.host, names.virtual_node);
    const auto* found = first_port(map, [&](const HostPort& port) { return port.host == name; });
    if (found != nullptr) return found;
  }
  for (const std::uint64_t guid : names.guids) {
    if (guid == 0) continue;
    const auto* found = first_port(map, [guid](const HostPort& port) {
      return std::ranges::find(port.guids, guid) != port.guids.end();
    });
    if (found != nullptr) return found;
  }
  const auto* found =
      first_port(map, [&](const HostPort& port) { return port.host == names.host; });
  if (found != nullptr || names.host.empty()) return found;
  return first_port(
      map, [&](const HostPort& port) { return short_name(port.host) == short_name(names.host); });
}

}  // namespace allrail::topology
