// What the two ends of a verbs link tell each other in the private data of librdmacm's connection
// requests: who they are, and where the other may write. 56 bytes is all that fits.
//
//   connector -> acceptor  hello: rank, rail, whether it probes, window, credit word, MAC
//   acceptor -> connector  the same, its MAC covers the connector's hello; with the acceptance, or,
//                          where a probe came before the link was wanted, with the rejection
//
// The MAC is keyed BLAKE2b with the job's secret. A request that was overheard can be sent again,
// which gains its sender a queue pair in the protection domain; RDMA networks have no better guard.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "transport/job_secret.hpp"

namespace allrail::transport::verbs {

inline constexpr std::uint16_t kHelloVersion = 2;
inline constexpr std::size_t kHelloMacBytes = 16;
inline constexpr std::size_t kHelloBytes = 56;

struct Hello {
  std::int32_t rank = -1;
  std::uint8_t rail = 0;             // the sender's
  bool probes = false;               // to be answered at once, whether the link is wanted or not
  std::uint64_t window_address = 0;  // the sender's primary window
  std::uint32_t window_key = 0;
  std::uint64_t credit_address = 0;  // the word in which it learns of receives posted again
  std::uint32_t credit_key = 0;
  friend bool operator==(const Hello&, const Hello&) = default;
};

using HelloBytes = std::array<std::byte, kHelloBytes>;

/// What both ends know without telling: a hello for another job, rail or rank does not fit.
struct HelloContext {
  const JobSecret& secret;
  std::uint64_t job_hash = 0;
  int to_rank = 0;
  int rail_of_acceptor = 0;
};

using HelloMac = std::array<std::byte, kHelloMacBytes>;

/// Over a message of either way to connect, which `label` names, so that none passes for another.
HelloMac hello_mac(std::string_view label, std::span<const std::byte> body,
                   const HelloContext& context, std::span<const std::byte> request);

/// `request` is the hello that this one answers, empty for the connector's own.
HelloBytes encode(const Hello& hello, const HelloContext& context,
                  std::span<const std::byte> request);
/// Nothing if it is no hello, of another version, or its MAC is wrong. `bytes` may be longer:
/// librdmacm pads private data. Input is untrusted.
std::optional<Hello> decode(std::span<const std::byte> bytes, const HelloContext& context,
                            std::span<const std::byte> request);

}  // namespace allrail::transport::verbs
