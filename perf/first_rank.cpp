#include "perf/first_rank.hpp"

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "include/allrail/error.hpp"
#include "lib/base/error.hpp"

namespace allrail::perf {

void fail_together(Communicator& communicator, std::string refusal) {
  std::vector<std::uint64_t> length{refusal.size()};
  communicator.broadcast(length, 0);
  refusal.resize(length.front());
  if (refusal.empty()) return;
  communicator.broadcast(refusal, 0);
  throw Error(Code::InvalidArgument, refusal);
}

void check_output(Communicator& communicator, const std::string& file) {
  if (file.empty()) return;
  std::string refusal;
  if (communicator.rank() == 0) {
    std::error_code unknown;
    const bool was_there = std::filesystem::exists(file, unknown);
    errno = 0;
    const bool opens = std::ofstream(file, std::ios::app).is_open();
    if (!opens) {
      refusal = fmt::format("cannot write {}: {}; check the path", file, base::errno_text(errno));
    } else if (!was_there) {
      std::filesystem::remove(file, unknown);
    }
  }
  fail_together(communicator, std::move(refusal));
}

}  // namespace allrail::perf
