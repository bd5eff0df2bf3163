// The listing of an InfiniBand fabric, node by node, as ibnetdiscover(8) prints it:
//
//   vendid=0x2c9
//   devid=0x1003
//   sysimgguid=0x2c903000a0003		# Chassis 1
//   caguid=0x2c903000a0000
//   Ca	2 "H-0002c903000a0000"		# "node7 HCA-1"
//   [1](2c903000a0001) 	"S-0002c90200400a01"[7]		# lid 4 lmc 0 "leaf0" lid 2 4xFDR
//
// Of a host port the line says on which switch it hangs; how the switch is called and in which
// chassis it is, its own lines say.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "lib/base/error.hpp"
#include "lib/topology/switch_map.hpp"

namespace allrail::topology {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// Takes the parts of one line from its front; the number of the line stands in every complaint.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(trimmed(text)), number_(number) {}

  std::string_view rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }
  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_ = trimmed(rest_.substr(word.size()));
    return true;
  }
  bool skip_past(std::string_view word) {
    const std::size_t at = rest_.find(word);
    if (at == std::string_view::npos) return false;
    rest_ = rest_.substr(at + word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail(fmt::format("'{}' is missing", word));
  }
  std::uint64_t number(int base) {
    std::uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(rest_.data(), rest_.data() + rest_.size(), value, base);
    if (error != std::errc()) fail("a number is missing");
    rest_ = trimmed(rest_.substr(static_cast<std::size_t>(end - rest_.data())));
    return value;
  }
  int small_number() {
    const std::uint64_t value = number(10);
    if (value > 65535) fail("a number is too large");
    return static_cast<int>(value);
  }
  /// Such as "H-0002c903000a0000", in quotes: the letter and the GUID.
  std::pair<char, std::uint64_t> node() {
    expect("\"");
    const char kind = rest_.empty() ? ' ' : rest_.front();
    if (kind != 'S' && kind != 'H' && kind != 'R' && kind != '?') fail("a node is missing");
    rest_.remove_prefix(1);
    expect("-");
    const std::uint64_t guid = number(16);
    expect("\"");
    return {kind, guid};
  }
  /// What stands between quotes behind the next '#'. A description may have quotes itself.
  std::string description() const {
    const std::size_t comment = rest_.find('#');
    if (comment == std::string_view::npos) return {};
    const std::string_view text = rest_.substr(comment);
    const std::size_t begin = text.find('"');
    const std::size_t end = text.rfind('"');
    if (begin == end) return {};
    return std::string(trimmed(text.substr(begin + 1, end - begin - 1)));
  }
  [[noreturn]] void fail(const std::string& why) const {
    base::fail(Code::BadConfiguration, "line {}: {}; it is not as ibnetdiscover prints it", number_,
               why);
  }

 private:
  std::string_view rest_;
  int number_;
};

class Listing {
 public:
  SwitchMap read(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      read_line(Line(text.substr(0, end), ++number));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (links_.empty()) {
      base::fail(Code::BadConfiguration,
                 "line {}: it ends, and lists no host that hangs on a switch", number);
    }
    return finished();
  }

 private:
  struct Link {
    HostPort port;
    std::uint64_t leaf;  // its GUID
  };

  void read_line(Line line) {
    if (line.empty() || line.take("#") || line.take("Non-Chassis Nodes") ||
        line.take("Hostname:")) {
      return;
    }
    if (line.rest().front() == '[') return read_port(line);
    if (line.take("Chassis ")) return read_chassis(line);
    for (const char kind : {'S', 'H', 'R'}) {
      if (line.take(kind == 'S' ? "Switch" : kind == 'H' ? "Ca" : "Rt")) {
        return read_node(line, kind);
      }
    }
    if (line.take("vendid=")) {
      chassis_.clear();  // the first line of a node
      return;
    }
    if (line.take("sysimgguid=")) return read_chassis_of_node(line);
    for (const char* name : {"devid=", "switchguid=", "caguid=", "rtguid="}) {
      if (line.take(name)) return;
    }
    line.fail(fmt::format("'{}' is unknown", line.rest().substr(0, 40)));
  }

  /// "Chassis 3 (guid 0x2c903000a0003)": numbers may differ from listing to listing, GUIDs do not.
  void read_chassis(Line& line) {
    const std::uint64_t number = line.number(10);
    if (line.take("(guid 0x")) chassis_names_[number] = fmt::format("{:#x}", line.number(16));
  }

  /// "sysimgguid=0x2c903000a0003		# Chassis 3 (a name)"
  void read_chassis_of_node(Line& line) {
    if (!line.skip_past("# Chassis ")) return;
    const std::uint64_t number = line.number(10);
    const auto named = chassis_names_.find(number);
    chassis_ = named == chassis_names_.end() ? std::to_string(number) : named->second;
  }

  /// `Ca	2 "H-0002c903000a0000"		# "node7 HCA-1"`
  void read_node(Line& line, char kind) {
    line.small_number();
    const auto [letter, guid] = line.node();
    if (letter != kind) line.fail("what kind of node it is does not fit to its name");
    node_ = {kind, guid};
    description_ = line.description();
    if (kind == 'S') switches_[guid] = {description_, chassis_};
  }

  /// `[1](2c903000a0001) 	"S-0002c90200400a01"[7]		# ...`
  void read_port(Line& line) {
    if (!node_) line.fail("a port stands before any node");
    line.expect("[");
    const int number = line.small_number();
    line.expect("]");
    if (line.take("[ext")) {
      line.small_number();
      line.expect("]");
    }
    std::uint64_t guid = 0;
    if (line.take("(")) {
      guid = line.number(16);
      line.expect(")");
    }
    const auto [kind, peer] = line.node();
    line.expect("[");
    line.small_number();
    line.expect("]");
    if (node_->first != 'H' || kind != 'S') return;
    HostPort port;
    port.host = description_.substr(0, description_.find_first_of(" \t:"));
    port.device = trimmed(std::string_view(description_).substr(port.host.size()));
    port.port = number;
    port.guids = {guid, node_->second};
    links_.push_back({std::move(port), peer});
  }

  SwitchMap finished() {
    SwitchMap map;
    std::map<std::uint64_t, std::size_t> place_of;
    for (Link& link : links_) {
      const auto [place, is_new] = place_of.try_emplace(link.leaf, map.leaves.size());
      if (is_new) {
        const LeafSwitch& known = switches_[link.leaf];
        map.leaves.push_back({fmt::format("{:#x}{}{}{}", link.leaf, known.name.empty() ? "" : " (",
                                          known.name, known.name.empty() ? "" : ")"),
                              known.chassis});
      }
      link.port.leaf = place->second;
      map.ports.push_back(std::move(link.port));
    }
    return map;
  }

  std::map<std::uint64_t, std::string> chassis_names_;  // by number, where a GUID is printed
  std::map<std::uint64_t, LeafSwitch> switches_;        // by GUID, with its description
  std::vector<Link> links_;
  // Of the node whose lines are read.
  std::string chassis_;
  std::optional<std::pair<char, std::uint64_t>> node_;
  std::string description_;
};

}  // namespace

SwitchMap parse_ibnetdiscover(std::string_view text) { return Listing().read(text); }

}  // namespace allrail::topology
