// Switch maps in JSON: every host is found on the switch that names it, no other is, and what is
// refused says where.
#include <string>

#include "include/allrail/error.hpp"
#include "lib/topology/switch_map.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace allrail::fuzz {

std::vector<Bytes> seeds() {
  return {bytes_of(R"({"switches": [{"name": "leaf0", "chassis": "rack1", "hosts": ["n0", "n1#0"]},
 {"name": "leaf1", "hosts": ["n1#1", "n2.example.org"]}]})"),
          bytes_of(R"({"switches": []})"),
          bytes_of(R"({"switches": [{"name": "a", "hosts": []}]})"),
          bytes_of(R"({"switches": [{"name": 1, "hosts": {}}], "other": null})")};
}

void fuzz_one(std::span<const std::byte> input) {
  topology::SwitchMap map;
  try {
    map = topology::parse_switch_json(text_of(input));
  } catch (const Error& error) {
    require(error.code() == Code::BadConfiguration && *error.what() != '\0',
            "what is refused is a wrong setting");
    return;
  }
  for (const topology::HostPort& port : map.ports) {
    require(port.leaf < map.leaves.size(), "every host hangs on a switch");
    const auto* found = topology::find_host(map, {port.host});
    require(found != nullptr && found->host == port.host && found->leaf == port.leaf,
            "a host is found where it hangs");
  }
  for (const topology::LeafSwitch& leaf : map.leaves) {
    require(!leaf.name.empty(), "every switch has a name");
  }
  // The rules of names apply to all maps, read by either parser.
  if (input.empty() || input[0] != std::byte{'{'}) return;  // behind a byte order mark
  require(topology::parse_switch_map(text_of(input)).ports.size() == map.ports.size(),
          "it is known by how it begins");
}

}  // namespace allrail::fuzz
