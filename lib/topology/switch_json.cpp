// The JSON form of a switch map:
//   {"switches": [{"name": "leaf0", "chassis": "rack1", "hosts": ["node0", "node1#0"]}, ...]}
#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/topology/switch_map.hpp"

namespace allrail::topology {
namespace {

using nlohmann::json;

/// A text that is a name: not empty.
std::string name_at(const json& value, const std::string& path) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    base::fail(Code::BadConfiguration, "{}: it must be a text that is not empty", path);
  }
  return value.get<std::string>();
}

const json& list_at(const json& object, const char* key, const std::string& path) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) {
    base::fail(Code::BadConfiguration, "{}: it must have a list named \"{}\"", path, key);
  }
  return *found;
}

void check_keys(const json& object, std::initializer_list<std::string_view> known,
                const std::string& path) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    base::fail(Code::BadConfiguration, "{}: \"{}\" is none of its names", path, key);
  }
}

json parsed(std::string_view text) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 3, column 7: ..."
    std::string what = error.what();
    what.erase(0, what.find("] ") == std::string::npos ? 0 : what.find("] ") + 2);
    throw Error(Code::BadConfiguration, what);
  }
}

}  // namespace

SwitchMap parse_switch_json(std::string_view text) {
  const json document = parsed(text);
  if (!document.is_object()) {
    base::fail(Code::BadConfiguration, "line 1: it must be an object with \"switches\"");
  }
  const std::string whole = "the document";
  check_keys(document, {"switches"}, whole);
  SwitchMap map;
  std::set<std::string> names;
  std::set<std::string> hosts;
  for (const json& one : list_at(document, "switches", whole)) {
    const std::string path = fmt::format("switches[{}]", map.leaves.size());
    if (!one.is_object()) base::fail(Code::BadConfiguration, "{}: it must be an object", path);
    check_keys(one, {"name", "chassis", "hosts"}, path);
    LeafSwitch leaf;
    leaf.name = name_at(one.value("name", json()), path + ".name");
    if (one.contains("chassis")) leaf.chassis = name_at(one["chassis"], path + ".chassis");
    if (!names.insert(leaf.name).second) {
      base::fail(Code::BadConfiguration, "{}.name: '{}' is the name of an earlier switch", path,
                 leaf.name);
    }
    std::size_t number = 0;
    for (const json& host : list_at(one, "hosts", path)) {
      const std::string place = fmt::format("{}.hosts[{}]", path, number++);
      HostPort& port = map.ports.emplace_back();
      port.host = name_at(host, place);
      port.leaf = map.leaves.size();
      if (!hosts.insert(port.host).second) {
        base::fail(Code::BadConfiguration, "{}: '{}' hangs on an earlier switch already", place,
                   port.host);
      }
    }
    map.leaves.push_back(std::move(leaf));
  }
  return map;
}

}  // namespace allrail::topology
