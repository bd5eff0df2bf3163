#include "lib/base/settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string_view>

#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "lib/base/parse.hpp"

extern char** environ;

namespace allrail {
namespace {

struct Entry {
  const char* name;
  const char* meaning;
  const char* allowed;
  bool must_agree;
  std::function<bool(Options&, const std::string&)> parse;  // false: not allowed
  std::function<std::string(const Options&)> show;
};

template <class Number>
bool store_number(const std::string& text, std::uint64_t low, std::uint64_t high, Number& into) {
  const auto value = base::parse_number(text);
  if (!value || *value < low || *value > high) return false;
  into = static_cast<Number>(*value);
  return true;
}

bool store_bytes(const std::string& text, std::uint64_t low, std::uint64_t high, bool zero_allowed,
                 std::size_t& into) {
  const auto value = base::parse_bytes(text);
  if (!value) return false;
  if (!(zero_allowed && *value == 0) && (*value < low || *value > high)) return false;
  into = *value;
  return true;
}

bool store_duration(const std::string& text, std::chrono::milliseconds& into) {
  const auto value = base::parse_duration(text);
  if (value) into = *value;
  return value.has_value();
}

bool valid_log(const std::string& text) {
  static constexpr std::string_view kWords[] = {"error", "warning", "info",   "debug",
                                                "trace", "off",     "summary"};
  const auto words = base::split(text, ',');
  return !words.empty() && std::ranges::all_of(words, [](const std::string& word) {
    return std::ranges::find(kWords, word) != std::end(kWords);
  });
}

std::string show_duration(std::chrono::milliseconds value) {
  return fmt::format("{}ms", value.count());
}

Entry algorithm_entry(const char* name, const char* collective) {
  return {
      name,
      "the algorithm of that collective",
      "a name that allrail-bench --list prints, or empty (chosen)",
      true,
      [collective](Options& o, const std::string& t) { return o.algorithms[collective] = t, true; },
      [collective](const Options& o) {
        const auto found = o.algorithms.find(collective);
        return found == o.algorithms.end() ? std::string() : found->second;
      }};
}

std::vector<Entry> communication_entries() {
  return {
      {"ALLRAIL_RAILS", "rails to use",
       "auto, verbs, tcp, or names or addresses with commas, ^ excludes", false,
       [](Options& o, const std::string& t) { return o.rails = t, !t.empty(); },
       [](const Options& o) { return o.rails; }},
      {"ALLRAIL_GID_INDEX", "entry of the GID tables of RoCE ports", "auto, or 0 to 255", false,
       [](Options& o, const std::string& t) {
         if (t == "auto") return o.gid_index = -1, true;
         return store_number(t, 0, 255, o.gid_index);
       },
       [](const Options& o) {
         return o.gid_index < 0 ? std::string("auto") : std::to_string(o.gid_index);
       }},
      {"ALLRAIL_RAIL_PAIRS", "which rails of two hosts are the two ends of a link",
       "empty (chosen), or pairs with commas, two rails by name or number with = between them and "
       "each pair once, such as eth0=eth1,eth1=eth0 or 0=1,1=0",
       true,
       [](Options& o, const std::string& t) {
         return o.rail_pairs = t, base::parse_pairs(t).has_value();
       },
       [](const Options& o) { return o.rail_pairs; }},
      {"ALLRAIL_CONNECT", "how links between RDMA ports are made", "auto, cm or direct", true,
       [](Options& o, const std::string& t) {
         return o.connect = t, t == "auto" || t == "cm" || t == "direct";
       },
       [](const Options& o) { return o.connect; }},
      {"ALLRAIL_NODES", "virtual nodes per host",
       "a number, sizes such as 3+1+2, cyclic:N, or the node of each rank such as 0,1,0,2", true,
       [](Options& o, const std::string& t) { return o.nodes = t, true; },
       [](const Options& o) { return o.nodes; }},
      {"ALLRAIL_SWITCH_MAP", "on which leaf switch every host hangs",
       "empty (not known), a JSON file, a file of ibnetdiscover, or ibnetdiscover, which is run",
       false, [](Options& o, const std::string& t) { return o.switch_map = t, true; },
       [](const Options& o) { return o.switch_map; }},
      {"ALLRAIL_PORTS", "peers that a step sends to at once", "0 (chosen) to 64", true,
       [](Options& o, const std::string& t) { return store_number(t, 0, 64, o.ports); },
       [](const Options& o) { return std::to_string(o.ports); }},
      {"ALLRAIL_LEADERS", "ranks per node that talk over rails", "0 (chosen) to 64", true,
       [](Options& o, const std::string& t) { return store_number(t, 0, 64, o.leaders); },
       [](const Options& o) { return std::to_string(o.leaders); }},
      {"ALLRAIL_LEADER_POLICY", "which ranks of a node lead", "near, socket or packed", true,
       [](Options& o, const std::string& t) {
         return o.leader_policy = t, t == "near" || t == "socket" || t == "packed";
       },
       [](const Options& o) { return o.leader_policy; }},
      algorithm_entry("ALLRAIL_ALGORITHM_ALLGATHER", "allgather"),
      algorithm_entry("ALLRAIL_ALGORITHM_GATHER", "gather"),
      algorithm_entry("ALLRAIL_ALGORITHM_SCATTER", "scatter"),
      algorithm_entry("ALLRAIL_ALGORITHM_BROADCAST", "broadcast"),
      algorithm_entry("ALLRAIL_ALGORITHM_ALLTOALL", "alltoall"),
      // Not the name must agree but what the file says: World adds that to what ranks compare.
      {"ALLRAIL_TUNING_FILE", "a file of rules that choose algorithms",
       "empty (none), or the path of a JSON file, see docs/tuning.md", false,
       [](Options& o, const std::string& t) { return o.tuning_file = t, true; },
       [](const Options& o) { return o.tuning_file; }},
      {"ALLRAIL_LOCAL_PUTS", "how flat algorithms reach ranks of their node", "copy or rail", true,
       [](Options& o, const std::string& t) {
         return o.local_puts = t, t == "copy" || t == "rail";
       },
       [](const Options& o) { return o.local_puts; }},
      {"ALLRAIL_SINGLE_COPY", "reading large blocks out of the memory of ranks of the same node",
       "auto, on or off", true,
       [](Options& o, const std::string& t) {
         return o.single_copy = t, t == "auto" || t == "on" || t == "off";
       },
       [](const Options& o) { return o.single_copy; }},
  };
}

std::vector<Entry> resource_entries() {
  constexpr std::uint64_t kMebi = 1024ULL * 1024;
  return {
      {"ALLRAIL_STRIPE_THRESHOLD", "puts up to this travel whole on one rail", "0 to 1G", true,
       [](Options& o, const std::string& t) {
         return store_bytes(t, 0, 1024 * kMebi, true, o.stripe_threshold_bytes);
       },
       [](const Options& o) { return base::format_bytes(o.stripe_threshold_bytes); }},
      {"ALLRAIL_CHUNK", "bytes that rails carry at once", "0 (chosen), or 4K to 8M", true,
       [](Options& o, const std::string& t) {
         return store_bytes(t, 4096, 8 * kMebi, true, o.chunk_bytes);
       },
       [](const Options& o) { return base::format_bytes(o.chunk_bytes); }},
      {"ALLRAIL_BROADCAST_SEGMENT", "pieces in which a chain passes data on",
       "0 (chosen), or 1K to 1G", true,
       [](Options& o, const std::string& t) {
         return store_bytes(t, 1024, 1024 * kMebi, true, o.broadcast_segment_bytes);
       },
       [](const Options& o) { return base::format_bytes(o.broadcast_segment_bytes); }},
      {"ALLRAIL_NODE_MEMORY", "shared memory of a node", "1M to 1024G", true,
       [](Options& o, const std::string& t) {
         return store_bytes(t, kMebi, kMebi * kMebi, false, o.node_memory_bytes);
       },
       [](const Options& o) { return base::format_bytes(o.node_memory_bytes); }},
      {"ALLRAIL_HUGE_PAGES", "huge pages for the shared memory of a node", "auto, on or off", false,
       [](Options& o, const std::string& t) {
         return o.huge_pages = t, t == "auto" || t == "on" || t == "off";
       },
       [](const Options& o) { return o.huge_pages; }},
      {"ALLRAIL_HOME_CPUS", "one cpu to stay on for each of the ranks that outnumber their cpus",
       "on or off", false,
       [](Options& o, const std::string& t) { return o.home_cpus = t, t == "on" || t == "off"; },
       [](const Options& o) { return o.home_cpus; }},
      {"ALLRAIL_TIMEOUT", "bound of every call", "0 (none), 30, 1.5s, 500ms", false,
       [](Options& o, const std::string& t) { return store_duration(t, o.timeout); },
       [](const Options& o) { return show_duration(o.timeout); }},
      {"ALLRAIL_BOOTSTRAP_TIMEOUT", "bound of steps of start-up and of connecting",
       "such as 60 or 500ms", false,
       [](Options& o, const std::string& t) {
         return store_duration(t, o.bootstrap_timeout) && o.bootstrap_timeout.count() > 0;
       },
       [](const Options& o) { return show_duration(o.bootstrap_timeout); }},
      {"ALLRAIL_LOG", "what is printed on stderr",
       "error, warning, info, debug, trace, off, summary; several with commas", false,
       [](Options& o, const std::string& t) { return o.log = t, valid_log(t); },
       [](const Options& o) { return o.log; }},
  };
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = [] {
    auto made = communication_entries();
    for (auto& entry : resource_entries()) made.push_back(std::move(entry));
    return made;
  }();
  return all;
}

void warn_of_unknown_variables() {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (!text.starts_with("ALLRAIL_")) continue;
    const auto name = text.substr(0, text.find('='));
    // Variables that scripts and tests of the project read, and what allrail-run tells programs,
    // are not settings of the library.
    const auto of_others = {"ALLRAIL_TEST_", "ALLRAIL_CHECK_", "ALLRAIL_LAB_", "ALLRAIL_CACHE",
                            "ALLRAIL_STDERR_IS_TERMINAL"};
    if (std::ranges::any_of(of_others, [&](auto prefix) { return name.starts_with(prefix); })) {
      continue;
    }
    const auto known = [&](const Entry& entry) { return name == entry.name; };
    if (std::ranges::none_of(entries(), known)) {
      base::log_warning("unknown variable {}; allrail-info lists the settings there are", name);
    }
  }
}

}  // namespace

Options Options::from_environment() {
  Options options;
  for (const Entry& entry : entries()) {
    const char* value = ::secure_getenv(entry.name);
    if (value == nullptr) continue;
    if (!entry.parse(options, value)) {
      base::fail(Code::BadConfiguration, "{} is '{}', which is not allowed; use {}", entry.name,
                 value, entry.allowed);
    }
  }
  warn_of_unknown_variables();
  return options;
}

std::vector<Setting> describe_settings(const Options& options) {
  std::vector<Setting> settings;
  for (const Entry& entry : entries()) {
    const bool from_environment = ::secure_getenv(entry.name) != nullptr;
    settings.push_back({entry.name, entry.show(options),
                        from_environment ? "environment" : "default", entry.allowed,
                        entry.meaning});
  }
  return settings;
}

const Options& base::check_settings(const Options& options) {
  for (const Entry& entry : entries()) {
    Options read_back;
    const std::string value = entry.show(options);
    if (entry.parse(read_back, value)) continue;
    fail(Code::BadConfiguration,
         "the option behind {} is '{}', which is not allowed; the program sets it, use {}",
         entry.name, value, entry.allowed);
  }
  return options;
}

std::vector<std::pair<std::string, std::string>> base::settings_that_must_agree(
    const Options& options) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const Entry& entry : entries()) {
    if (entry.must_agree) values.emplace_back(entry.name, entry.show(options));
  }
  return values;
}

}  // namespace allrail
