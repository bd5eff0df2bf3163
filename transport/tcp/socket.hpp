// TCP sockets: addresses, listening, connecting without blocking.
//
// Every socket is non-blocking, close-on-exec, without Nagle's delay,
// never under BBR's pacing, and bound to one address of this host: never to all of them. Signals
// are avoided by MSG_NOSIGNAL at every send.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/handle.hpp"

struct sockaddr;

namespace allrail::transport {

/// An IPv4 or IPv6 address and a TCP port (0: any).
struct Endpoint {
  bool is_ipv6 = false;
  std::uint16_t port = 0;
  std::array<std::uint8_t, 16> address{};  // IPv4 in the first four bytes, network order

  bool is_loopback() const;
  std::string address_text() const;
  /// Such as "192.0.2.1:4711" or "[fd00::1]:4711".
  std::string text() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Bytes of an encoded endpoint, whatever its family.
inline constexpr std::size_t kEndpointBytes = 20;
std::array<std::byte, kEndpointBytes> encode_endpoint(const Endpoint& endpoint);
/// Empty for bytes that encode_endpoint() did not write (wrong length, family or padding).
std::optional<Endpoint> decode_endpoint(std::span<const std::byte> bytes);
/// Reads "127.0.0.2" or "fd00::1"; empty for anything else. The port is 0.
std::optional<Endpoint> parse_address(std::string_view text);
/// From what the system calls return; empty for other families.
std::optional<Endpoint> from_system_address(const sockaddr* address);
std::optional<Endpoint> local_endpoint(int fd);
std::optional<Endpoint> remote_endpoint(int fd);

/// A listening socket on `local`; port 0 lets the system choose (see local_endpoint()). Throws
/// Error{BadConfiguration} if the host cannot bind the address, Error{ResourceLimit} otherwise.
base::UniqueFd listen_on(const Endpoint& local, int backlog = 1024);

/// For options that only tune a socket, which works without them: a refusal is no error.
void set_socket_option(int fd, int level, int name, int value);

/// Starts a connection from the address of `from` (its port is ignored) to `to`. The socket is
/// writable (EPOLLOUT) when the outcome is known: see connect_error(). `device` names the network
/// interface that packets must leave by, where the system permits it; empty: routing decides.
/// Returns no descriptor and sets `error_number` if it failed at once.
base::UniqueFd start_connect(const Endpoint& from, const Endpoint& to, const std::string& device,
                             int& error_number);
/// 0, or the errno value that ended the connection attempt. Clears it.
int connect_error(int fd);

/// The next connection of a listening socket, set up as described above; no descriptor and
/// `error_number` (EAGAIN: none is waiting) otherwise.
base::UniqueFd accept_next(int listener_fd, int& error_number);

/// Whether the other host has not answered the kernel's retransmissions or probes for
/// kSilenceLimitSeconds. A peer that merely does not read is answered for by its kernel.
inline constexpr int kSilenceLimitSeconds = 20;
bool host_is_silent(int fd);

}  // namespace allrail::transport
