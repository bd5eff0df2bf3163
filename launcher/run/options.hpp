// The command line of allrail-run.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace allrail::launcher::run {

struct Options {
  int ranks = 0;
  std::string nodes;                     // the value for ALLRAIL_NODES, or empty
  std::chrono::milliseconds timeout{0};  // 0: none
  bool tag_output = false;
  bool keep_going = false;           // a rank that fails does not end the job
  std::vector<std::string> command;  // the program and its arguments
};

/// The options, or the code to exit with after --help or an error that was already printed.
std::variant<Options, int> parse_options(int argc, char** argv);

struct Program {
  std::string path;   // what to execute, empty when there is none
  std::string error;  // why not, as a sentence
  int exit_code = 0;  // 127: not found, 126: not executable, as shells do
};
/// Finds `name` as a shell does: as a path when it has a slash, else along PATH.
Program find_program(const std::string& name);

}  // namespace allrail::launcher::run
