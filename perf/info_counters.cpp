#include "perf/info_counters.hpp"

#include <cstdint>
#include <fstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"

namespace allrail::perf {
namespace {

using nlohmann::json;

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

void print_rail(const json& rail, std::uint64_t all_sent) {
  const auto number = [&rail](const char* name) { return rail.at(name).get<std::uint64_t>(); };
  fmt::print("{:<16} {:>14} {:>5.1f}% {:>14} {:>10} {:>10} {:>7} {:>6} {:>10} {:>10} {:>10}\n",
             rail.at("name").get<std::string>(), number("bytes_sent"),
             percent(number("bytes_sent"), all_sent), number("bytes_received"),
             number("chunks_sent"), number("chunks_received"), number("replays"), number("fences"),
             number("duplicates"), number("reconnects"), number("window_bytes"));
}

void print_counters(const json& document) {
  const json& context = document.at("context");
  fmt::print("{}, {}: {} ranks on {} nodes\n", context.at("command").get<std::string>(),
             context.at("date").get<std::string>(), context.at("ranks").get<int>(),
             context.at("nodes").get<int>());
  const json& rails = document.at("rail_counters_of_rank_0");
  if (rails.empty()) {
    fmt::print("the job had one node, so rank 0 has no rails\n");
    return;
  }
  std::uint64_t all_sent = 0;
  for (const json& rail : rails) all_sent += rail.at("bytes_sent").get<std::uint64_t>();
  fmt::print(
      "Rails of rank 0\n{:<16} {:>14} {:>6} {:>14} {:>10} {:>10} {:>7} {:>6} {:>10} {:>10} "
      "{:>10}\n",
      "rail", "bytes sent", "share", "received", "chunks", "received", "replays", "fences",
      "duplicates", "reconnects", "window");
  for (const json& rail : rails) print_rail(rail, all_sent);
}

}  // namespace

void add_counters(CLI::App& app, CountersQuestion& question) {
  CLI::App* counters =
      app.add_subcommand("counters", "what each rail did in a run of allrail-bench --json FILE");
  counters->add_option("file", question.file)->required();
  counters->callback([&question] { question.asked = true; });
}

int show_counters(const CountersQuestion& question) {
  std::ifstream stream(question.file);
  if (!stream) {
    base::fail(Code::InvalidArgument, "{} cannot be read; allrail-bench --json writes such files",
               question.file);
  }
  try {
    print_counters(json::parse(stream));
  } catch (const json::exception& error) {
    base::fail(Code::InvalidArgument, "{} is no file of allrail-bench --json: {}", question.file,
               error.what());
  }
  return 0;
}

}  // namespace allrail::perf
