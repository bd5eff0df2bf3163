// The command line of allrail-bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perf/blocks.hpp"

namespace allrail::perf {

enum class Mode { Isolated, Streaming };

struct BenchOptions {
  std::string what = "allgather";        // a collective, "put" or "tune"
  std::vector<std::uint64_t> sizes;      // bytes per rank, of a v-form in the mean
  BlockShape blocks = BlockShape::Ramp;  // of a v-form
  int iterations = 0;                    // 0: by size and time
  int warmup = -1;                       // -1: by size
  std::vector<std::string> algorithms = {"auto"};
  int ports = 0;
  int leaders = 0;
  std::string leader_policy;  // empty: the setting
  bool in_place = false;
  enum class Memory { Ordinary, Buffer, Node };
  Memory memory = Memory::Ordinary;
  Mode mode = Mode::Isolated;
  bool overlap = false;                 // plans, with computation between start and wait
  int overlap_tests = 16;               // calls of test() in that computation
  std::optional<std::int64_t> skew_ns;  // ranks come to calls up to so much later than others
  std::uint64_t skew_seed = 1;
  bool check = true;
  bool list = false;
  std::string json_file;
  std::string tuning_file;               // tune: written
  std::string model_file;                // tune: read, and put there too
  std::vector<std::string> collectives;  // tune: measured
  double margin_percent = 5;             // tune: smaller differences count for nothing
  std::vector<double> rail_rates_mbit;   // only for the limit that is printed
  int root = 0;                          // of collectives that have one
  int peer = -1;                         // put: the rank at the other end
};

/// Of allgatherv, gatherv, scatterv and alltoallv: blocks of different sizes.
bool is_v_form(std::string_view what);
/// The collective that one is a form of; what is none is its own.
std::string even_form(const std::string& what);

/// Parses the command line. Prints help or an error and ends the process where that is due: the
/// exit code is returned then, and -1 otherwise.
int parse_command_line(int argc, char** argv, BenchOptions& options);

/// `8:1M` with a factor, or a list such as `8,64K,1M`. Throws Error{InvalidArgument}.
std::vector<std::uint64_t> parse_sizes(const std::string& text, std::uint64_t factor);

/// A time with its unit, `20us`, `1.5ms` or `2s`, in nanoseconds: at most 10 s. A bare number is no
/// time, since it would be seconds in a setting and microseconds in every table.
std::optional<std::int64_t> parse_skew_ns(std::string_view text);

}  // namespace allrail::perf
