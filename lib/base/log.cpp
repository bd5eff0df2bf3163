#include "lib/base/log.hpp"

#include <atomic>
#include <memory>
#include <string>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace allrail::base {
namespace {

std::atomic<Level> threshold{Level::Warning};

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::Trace:
      return spdlog::level::trace;
    case Level::Debug:
      return spdlog::level::debug;
    case Level::Info:
      return spdlog::level::info;
    case Level::Warning:
      return spdlog::level::warn;
    case Level::Error:
      return spdlog::level::err;
    case Level::Off:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("allrail",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_level(spdlog::level::trace);
    made->set_pattern("allrail %l: %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log(Level level, int rank) {
  threshold.store(level, std::memory_order_relaxed);
  logger().set_pattern(rank < 0 ? std::string("allrail %l: %v")
                                : fmt::format("allrail rank {} %l: %v", rank));
}

bool log_enabled(Level level) noexcept {
  return level >= threshold.load(std::memory_order_relaxed) && level != Level::Off;
}

void write_log(Level level, std::string_view text) noexcept {
  try {
    logger().log(to_spdlog(level), "{}", text);
  } catch (...) {  // a log line is never worth an exception
  }
}

}  // namespace allrail::base
