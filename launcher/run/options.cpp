#include "launcher/run/options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

namespace allrail::launcher::run {
namespace {

constexpr int kUsageError = 2;
// Two pipes per rank have to fit the usual hard limit of open files (4096).
constexpr int kMostRanks = 1024;

/// More nodes than ranks cannot be meant; every other form is checked by the library in the ranks.
std::string check_nodes(const std::string& nodes, int ranks) {
  long count = 0;
  const char* const end = nodes.data() + nodes.size();
  const auto result = std::from_chars(nodes.data(), end, count);
  if (result.ec != std::errc() || result.ptr != end) return {};
  if (count < 1) return fmt::format("--nodes {}: at least one node is needed", nodes);
  if (count > ranks) return fmt::format("--nodes {}: more nodes than ranks ({})", nodes, ranks);
  return {};
}

std::string check(const Options& options) {
  if (options.command.empty()) return "no program is given: allrail-run -n 8 PROGRAM ARGS";
  if (options.command.front().starts_with("-")) {
    return fmt::format("unknown option {}; allrail-run --help lists them", options.command.front());
  }
  return check_nodes(options.nodes, options.ranks);
}

bool is_executable_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::variant<Options, int> parse_options(int argc, char** argv) {
  Options options;
  double timeout_s = 0;
  CLI::App app{"Starts the ranks of an Allrail program on this host.", "allrail-run"};
  app.footer(
      "Everything from PROGRAM on belongs to the program: allrail-run -n 8 [--] PROGRAM ARGS");
  app.add_option("-n,--np,--ranks", options.ranks, "how many ranks to start")
      ->required()
      ->check(CLI::Range(1, kMostRanks));
  app.add_option(
         "--nodes", options.nodes,
         "split this host into virtual nodes (sets ALLRAIL_NODES): 4, 3+1+2, cyclic:4 or 0,1,0,2")
      ->type_name("SPEC");
  app.add_option("--timeout", timeout_s, "end the job after so many seconds, with exit code 124")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, 1e7));
  app.add_flag("--tag-output", options.tag_output, "print [rank] before every line of output");
  app.add_flag("--keep-going", options.keep_going,
               "a rank that dies or fails does not end the job; the first such code is returned");
  // Everything from the program on belongs to the program.
  app.prefix_command();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream text;
    const bool is_error = app.exit(error, text, text) != 0;
    if (!is_error) {
      fmt::print("{}", text.str());
      return 0;
    }
    fmt::print(stderr, "allrail-run: {}\n", error.what());
    return kUsageError;
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  }
  options.timeout = std::chrono::milliseconds(static_cast<long>(timeout_s * 1000));
  if (const std::string error = check(options); !error.empty()) {
    fmt::print(stderr, "allrail-run: {}\n", error);
    return kUsageError;
  }
  return options;
}

Program find_program(const std::string& name) {
  Program program;
  std::vector<std::string> candidates;
  if (name.find('/') != std::string::npos) {
    candidates.push_back(name);
  } else {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
    for (std::string folder; std::getline(folders, folder, ':');) {
      candidates.push_back((folder.empty() ? "." : folder) + "/" + name);
    }
  }
  const bool exists = std::any_of(candidates.begin(), candidates.end(), [](const auto& candidate) {
    return access(candidate.c_str(), F_OK) == 0;
  });
  const auto found = std::find_if(candidates.begin(), candidates.end(), is_executable_file);
  if (found != candidates.end()) {
    program.path = *found;
  } else if (exists) {
    program.exit_code = 126;
    program.error = fmt::format("cannot run {}: it is not an executable file", name);
  } else {
    program.exit_code = 127;
    program.error = fmt::format("cannot run {}: no such program; check its path", name);
  }
  return program;
}

}  // namespace allrail::launcher::run
