// The life of a queue pair that nobody moves but us. Each step names every attribute that the
// specification wants for it. All return 0 or an errno value.
#pragma once

#include <cstdint>

#include "transport/verbs/offer.hpp"
#include "transport/verbs/verbs_objects.hpp"

namespace allrail::transport::verbs {

/// Seven tries in all. 7 is for ever on soft-RoCE.
inline constexpr std::uint8_t kRetries = 6;
/// With credits a receive is always posted: one that is missing is an error of ours.
inline constexpr std::uint8_t kReceiverNotReadyRetries = 0;
/// 4.096 us x 2^N for each try: 67 ms where another rail can take over, a second where none can.
inline constexpr std::uint8_t kTimeoutWithSiblings = 14;
inline constexpr std::uint8_t kTimeoutAlone = 18;

constexpr std::uint8_t acknowledgement_timeout(bool has_siblings) {
  return has_siblings ? kTimeoutWithSiblings : kTimeoutAlone;
}

/// What a value of the queue pair's timeout means.
constexpr std::int64_t timeout_ns(std::uint8_t timeout) { return std::int64_t{4096} << timeout; }

/// The two ends of a direct link, as this one sees them.
struct DirectPath {
  PathFacts mine;
  PathFacts theirs;
  std::uint8_t port = 1;
  std::uint8_t gid_index = 0;
};

/// From here on receives can be posted.
int to_init(ibv_qp& pair, std::uint8_t port);
/// From here on the peer can write.
int to_ready_to_receive(ibv_qp& pair, const DirectPath& path);
/// From here on this end can.
int to_ready_to_send(ibv_qp& pair, const DirectPath& path, std::uint8_t timeout);
/// From here on nobody can: everything that is posted ends.
int to_error(ibv_qp& pair);

}  // namespace allrail::transport::verbs
