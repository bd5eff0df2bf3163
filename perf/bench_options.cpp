#include "perf/bench_options.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <thread>

#include <CLI/CLI.hpp>

#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"
#include "lib/diagnostics.hpp"

namespace allrail::perf {
namespace {

constexpr double kLongestSkewNs = 10e9;
constexpr const char* kVForms[] = {"allgatherv", "gatherv", "scatterv", "alltoallv"};

std::uint64_t size_of(const std::string& text) {
  const auto bytes = base::parse_bytes(text);
  if (!bytes) {
    base::fail(Code::InvalidArgument, "'{}' is no size; use bytes with K, M or G, such as 64K",
               text);
  }
  return *bytes;
}

std::vector<std::string> algorithms_named(const std::string& text, const std::string& what) {
  auto given = base::split(text, ',');
  if (text.empty() || std::ranges::find(given, "") != given.end()) {
    base::fail(Code::InvalidArgument, "--algorithm '{}' names none; take auto, all, or see --list",
               text);
  }
  if (text != "all") return given;
  std::vector<std::string> names;
  for (const auto& algorithm : diagnostics::algorithms_of(even_form(what))) {
    names.push_back(algorithm.name);
  }
  return names;
}

void add_what(CLI::App& app, BenchOptions& options) {
  auto what = diagnostics::collectives();
  what.insert(what.end(), std::begin(kVForms), std::end(kVForms));
  what.insert(what.end(), {"barrier", "put", "tune", "fit"});
  app.add_option("what", options.what,
                 "a collective, also as a v-form, barrier, put (one pair: latency and bandwidth), "
                 "tune (every algorithm, for a tuning file), or fit (the cost model)")
      ->check(CLI::IsMember(what));
  app.add_option("file", options.tuning_file, "tune: the file to write");
  app.add_option("--model", options.model_file,
                 "tune: a file of fit --json, for sizes and jobs without a rule");
  options.collectives = diagnostics::collectives();
  app.add_option("--collectives", options.collectives, "tune: only these, with commas")
      ->delimiter(',')
      ->check(CLI::IsMember(options.collectives));
  app.add_option("--peer", options.peer, "put: the other rank (default: the first of another node)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--margin", options.margin_percent,
                 "tune: differences up to so many percent count for nothing")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
}

/// Puts between one pair are no calls: what says how calls are made would say nothing.
void check_puts(const CLI::App& app, const std::string& what) {
  for (const char* const name : {"--algorithm", "--ports", "--leaders", "--root", "--in-place",
                                 "--memory", "--mode", "--overlap", "--skew"}) {
    if (app.count(name) == 0) continue;
    throw CLI::ValidationError(name, "it is for calls of one collective, not for " + what);
  }
}

/// Only v-forms have blocks of different sizes, and memory differs to allgathers only.
void check_form(const CLI::App& app, const BenchOptions& options) {
  if (app.count("--blocks") > 0 && !is_v_form(options.what)) {
    throw CLI::ValidationError(
        "--blocks", "blocks differ in allgatherv, gatherv, scatterv and alltoallv only, not in " +
                        options.what);
  }
  const bool tunes = options.what == "tune";
  const auto measured = tunes ? options.collectives : std::vector<std::string>{options.what};
  if (options.memory == BenchOptions::Memory::Node &&
      std::ranges::any_of(measured, [](const auto& name) {
        return even_form(name) != "allgather" && name != "barrier";
      })) {
    throw CLI::ValidationError("--memory",
                               "only the result of an allgather is stored once per node; take "
                               "ordinary or buffer" +
                                   std::string(tunes ? ", or --collectives allgather" : ""));
  }
}

/// Two lists of rules of one collective are no tuning file.
void check_collectives(std::vector<std::string> names) {
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice == names.end()) return;
  throw CLI::ValidationError("--collectives", *twice + " stands there twice");
}

/// What says nothing of what is measured would be taken to say something.
void check_belongs(const CLI::App& app, const std::string& what) {
  const auto form = even_form(what);
  const bool has_root = form == "gather" || form == "scatter" || form == "broadcast";
  const bool tunes = what == "tune";
  const auto refuse = [&app](bool belongs, const char* name, const char* text) {
    if (!belongs && app.count(name) > 0) throw CLI::ValidationError(name, text);
  };
  refuse(has_root || tunes, "--root", "only a gather, scatter or broadcast has one");
  refuse(what == "put", "--peer", "it is for put");
  refuse(tunes, "--margin", "it is for tune");
  refuse(tunes, "--collectives", "it is for tune");
  refuse(what != "fit", "--sizes", "fit takes sizes of its own");
  for (const char* const name : {"--warmup", "--no-check", "--rail-rates"}) {
    refuse(what != "put" && what != "fit", name, "it is for calls of a collective");
  }
}

/// The file belongs to tune, which takes all algorithms.
void check_what(const CLI::App& app, const BenchOptions& options) {
  if (options.what == "put" || options.what == "fit") check_puts(app, options.what);
  check_belongs(app, options.what);
  check_collectives(options.collectives);
  // No range keeps this one out.
  if (std::isnan(options.margin_percent)) {
    throw CLI::ValidationError("--margin", "it is a number from 0 to 100");
  }
  const bool tunes = options.what == "tune";
  if (tunes == options.tuning_file.empty()) {
    throw CLI::ValidationError(tunes ? "tune needs the file to write, such as tuning.json"
                                     : "only tune writes a file; use --json for results");
  }
  if (!tunes && !options.model_file.empty()) {
    throw CLI::ValidationError("--model", "only tune puts a cost model into the file it writes");
  }
  if (tunes && (options.algorithms != std::vector<std::string>{"auto"} || options.overlap)) {
    throw CLI::ValidationError(
        "tune measures calls by every algorithm: it takes neither "
        "--algorithm nor --overlap");
  }
  if (options.what == "broadcast" && options.in_place) {
    throw CLI::ValidationError("--in-place", "a broadcast has one buffer");
  }
  if (options.what == "barrier" && options.algorithms != std::vector<std::string>{"auto"}) {
    throw CLI::ValidationError("--algorithm", "barriers have one algorithm; leave it out");
  }
  check_form(app, options);
  if (options.skew_ns && tunes) {
    throw CLI::ValidationError("--skew", "it is for calls of one collective, not for tune");
  }
}

/// How many calls, and by how many ranks and peers.
void add_numbers(CLI::App& app, BenchOptions& options) {
  app.add_option("--iterations", options.iterations, "timed calls per size (default: by time)")
      ->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "calls before them")->check(CLI::NonNegativeNumber);
  app.add_option("--ports", options.ports, "peers that a step sends to at once (default: chosen)")
      ->check(CLI::Range(0, 64));
  app.add_option("--leaders", options.leaders, "ranks per node that talk over rails")
      ->check(CLI::Range(0, 64));
  app.add_option("--leader-policy", options.leader_policy,
                 "which ranks those are: near, socket or packed (default: ALLRAIL_LEADER_POLICY)")
      ->check(CLI::IsMember({"near", "socket", "packed"}));
}

/// What is measured besides single calls.
void add_overlap(CLI::App& app, BenchOptions& options, CLI::Option* mode) {
  auto* const overlap = app.add_flag(
      "--overlap", options.overlap,
      "time plans alone, computation that takes as long alone, and both at once (isolated)");
  overlap->excludes(mode);
  app.add_option("--overlap-tests", options.overlap_tests,
                 "how often that computation calls test()")
      ->check(CLI::Range(1, 1'000'000))
      ->needs(overlap)
      ->capture_default_str();
}

/// Calls that ranks come to at different times.
void add_skew(CLI::App& app, BenchOptions& options, CLI::Option* mode) {
  auto* const skew = app.add_option_function<std::string>(
      "--skew",
      [&options](const std::string& text) {
        options.skew_ns = parse_skew_ns(text);
        if (options.skew_ns) return;
        throw CLI::ValidationError("--skew", "'" + text +
                                                 "' is no time from 0us to 10s; use a number with "
                                                 "us, ms or s behind it, such as 200us");
      },
      "every rank computes up to so long before each call, for a random time (isolated)");
  skew->type_name("TIME")->excludes(mode)->excludes(app.get_option("--overlap"));
  app.add_option("--seed", options.skew_seed, "of those random times")
      ->check(CLI::NonNegativeNumber)
      ->needs(skew)
      ->capture_default_str();
}

// A launcher ends the job with its first rank that fails, and rank 0 may not have got as far.
constexpr auto kTimeToSpeak = std::chrono::seconds(5);

// Every rank parses the same line: only rank 0 says what is wrong with it.
int refuse_command_line(int code, const std::function<void()>& say) {
  const char* rank = std::getenv("PMIX_RANK");
  if (rank == nullptr || std::string(rank) == "0") {
    say();
  } else if (code != 0) {
    std::this_thread::sleep_for(kTimeToSpeak);
  }
  return code;
}

}  // namespace

bool is_v_form(std::string_view what) {
  return std::ranges::find(kVForms, what) != std::end(kVForms);
}

std::string even_form(const std::string& what) {
  return is_v_form(what) ? what.substr(0, what.size() - 1) : what;
}

std::vector<std::uint64_t> parse_sizes(const std::string& text, std::uint64_t factor) {
  std::vector<std::uint64_t> sizes;
  const auto colon = text.find(':');
  if (colon == std::string::npos) {
    for (const std::string& part : base::split(text, ',')) sizes.push_back(size_of(part));
    if (sizes.empty()) {
      base::fail(Code::InvalidArgument, "'' names no sizes; use such as 64K, 8,64K or 8:1M");
    }
    return sizes;
  }
  const std::uint64_t last = size_of(text.substr(colon + 1));
  std::uint64_t size = size_of(text.substr(0, colon));
  if (factor < 2 || size > last) {
    base::fail(Code::InvalidArgument, "--sizes {} with --factor {} names no sizes", text, factor);
  }
  if (size == 0) {
    sizes.push_back(0);
    size = 1;
  }
  while (size < last) {
    sizes.push_back(size);
    // Near the most that can be said the next size is beyond it.
    size = size > last / factor ? last : size * factor;
  }
  sizes.push_back(last);
  return sizes;
}

std::optional<std::int64_t> parse_skew_ns(std::string_view text) {
  double unit_ns = 1e9;
  if (text.ends_with("us")) {
    unit_ns = 1e3;
  } else if (text.ends_with("ms")) {
    unit_ns = 1e6;
  } else if (!text.ends_with("s")) {
    return {};
  }
  text.remove_suffix(unit_ns == 1e9 ? 1 : 2);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return {};
  if (!(value >= 0) || value * unit_ns > kLongestSkewNs) return {};
  return std::llround(value * unit_ns);
}

int parse_command_line(int argc, char** argv, BenchOptions& options) {
  CLI::App app{"Measures the collectives of Allrail, and checks every byte they move.",
               "allrail-bench"};
  std::string sizes = "8:1M";
  std::uint64_t factor = 8;
  std::string algorithms = "auto";
  std::string mode = "isolated";
  std::string memory = "ordinary";
  std::string blocks = "ramp";
  bool no_check = false;
  add_what(app, options);
  app.add_option("--root", options.root, "of gather and scatter, also as v-forms, and of broadcast")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--sizes", sizes,
                 "bytes per rank (alltoall: per pair; v-forms: in the mean): 8:1M, or a list "
                 "8,64K,1M")
      ->capture_default_str();
  app.add_option("--blocks", blocks,
                 "v-forms: even; ramp: block r of n has (2r + 1) / n times the mean; or single: "
                 "one block has all bytes (alltoallv: block (s + d) mod n from rank s to d)")
      ->check(CLI::IsMember({"even", "ramp", "single"}))
      ->capture_default_str();
  app.add_option("--factor", factor, "from one size of a range to the next")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_numbers(app, options);
  app.add_option("--algorithm", algorithms, "auto, all, or names with commas; see --list")
      ->capture_default_str();
  app.add_flag("--in-place", options.in_place, "send from this rank's block of the result");
  app.add_option(
         "--memory", memory,
         "ordinary; buffer: what Allrail allocates and keeps registered; or node: the result "
         "of an allgather in a NodeBuffer, once per node, what is sent in a Buffer")
      ->check(CLI::IsMember({"ordinary", "buffer", "node"}))
      ->capture_default_str();
  auto* const mode_option =
      app.add_option("--mode", mode,
                     "isolated: a barrier before each call; streaming: back to back")
          ->check(CLI::IsMember({"isolated", "streaming"}))
          ->capture_default_str();
  add_overlap(app, options, mode_option);
  add_skew(app, options, mode_option);
  app.add_flag("--no-check", no_check, "do not verify what was received");
  app.add_option("--json", options.json_file, "write the results to this file too");
  app.add_option("--rail-rates", options.rail_rates_mbit,
                 "Mbit/s of each rail of a node, only to print the share of the limit")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_flag("--list", options.list, "print the algorithms and end");
  try {
    app.parse(argc, argv);
    options.sizes = parse_sizes(sizes, factor);
    if (options.what == "barrier") options.sizes = {0};
    options.memory = memory == "buffer" ? BenchOptions::Memory::Buffer
                     : memory == "node" ? BenchOptions::Memory::Node
                                        : BenchOptions::Memory::Ordinary;
    options.blocks = shape_named(blocks);
    options.algorithms = algorithms_named(algorithms, options.what);
    check_what(app, options);
  } catch (const CLI::ParseError& error) {
    return refuse_command_line(error.get_exit_code(), [&] { app.exit(error); });
  } catch (const std::exception& error) {
    return refuse_command_line(1, [&] { std::cerr << "allrail-bench: " << error.what() << '\n'; });
  }
  options.mode = mode == "isolated" ? Mode::Isolated : Mode::Streaming;
  options.check = !no_check;
  return -1;
}

}  // namespace allrail::perf
