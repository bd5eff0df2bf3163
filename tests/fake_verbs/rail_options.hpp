// Rails over the devices of default_devices(), for each way to connect, and loops that look at
// them.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "transport/verbs/verbs_rail.hpp"

namespace allrail::fake_verbs {

/// What a rail offers its peers.
enum class Ways { Manager, Direct, Both };

inline const char* ways_text(Ways ways) {
  return ways == Ways::Manager ? "manager" : ways == Ways::Direct ? "direct" : "both";
}

inline transport::VerbsRailOptions rail_options(int device, Ways ways) {
  transport::VerbsRailOptions options;
  options.device = "fake" + std::to_string(device);
  options.name = options.device + ":1";
  if (ways != Ways::Direct) options.address = "10.9." + std::to_string(device) + ".1";
  if (ways != Ways::Manager) options.side_addresses = {"127.0.0.1"};
  // The link-local address as RoCE v2: devices without another have it too.
  options.gid_index = 1;
  return options;
}

/// For loops that look at rails: what has taken that many looks waits for a clock, and other tests
/// can use the core.
inline void rest_after_many(int looks) {
  if (looks > 200) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

/// Looks, which is to poll the rails, until `done`; false if that takes too long.
template <typename Done, typename Look>
bool look_until(Done done, Look look) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int looks = 0; !done(); ++looks) {
    if (std::chrono::steady_clock::now() > end) return false;
    rest_after_many(looks);
    look();
  }
  return true;
}

}  // namespace allrail::fake_verbs
