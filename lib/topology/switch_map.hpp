// On which leaf switch every host hangs, as a listing of the fabric or a file of the user says it,
// and finding one host in it. Pure: whoever reads files or runs programs is above.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace allrail::topology {

struct LeafSwitch {
  std::string name;
  std::string chassis;  // empty: not known
};

/// One port of a host and the leaf that it hangs on.
struct HostPort {
  std::string host;    // a name; of a virtual node with its number, such as node7#1
  std::string device;  // of the host, as the fabric names it; empty: not known
  int port = 0;        // of the device; 0: not known
  std::array<std::uint64_t, 2> guids{};  // of the port and of the device; 0: not known
  std::size_t leaf = 0;                  // its place in SwitchMap::leaves
};

struct SwitchMap {
  std::vector<LeafSwitch> leaves;
  std::vector<HostPort> ports;
};

/// What `ibnetdiscover` prints, also with -g, which names chassis. A leaf's name is its GUID and
/// description. @throws Error{BadConfiguration} that begins with the number of the line.
SwitchMap parse_ibnetdiscover(std::string_view text);

/// Our own form, docs/settings.md. @throws Error{BadConfiguration} that says where in the text, by
/// line and column or by the path of a value.
SwitchMap parse_switch_json(std::string_view text);

/// One of the two, by how it begins.
SwitchMap parse_switch_map(std::string_view text);

/// What a host calls itself.
struct HostNames {
  std::string host;
  int virtual_node = -1;               // of this host; -1: it is one node
  std::vector<std::uint64_t> guids{};  // of its rails' ports and devices, nearest rail first
};
/// A name with the number of the virtual node goes first, then GUIDs in their order, then the name,
/// then the name without its domain. Of several ports the first one counts, by device and number,
/// so that all hosts of a fabric with several planes are grouped by the same plane. Null: it is not
/// there. O(ports).
const HostPort* find_host(const SwitchMap& map, const HostNames& names);

}  // namespace allrail::topology
