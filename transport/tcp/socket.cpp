#include "transport/tcp/socket.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "lib/base/error.hpp"

namespace allrail::transport {
namespace {

struct SystemAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SystemAddress to_system_address(const Endpoint& endpoint) {
  SystemAddress result;
  if (endpoint.is_ipv6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(endpoint.port);
    std::memcpy(&address.sin6_addr, endpoint.address.data(), 16);
    std::memcpy(&result.storage, &address, sizeof(address));
    result.bytes = sizeof(address);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    std::memcpy(&address.sin_addr, endpoint.address.data(), 4);
    std::memcpy(&result.storage, &address, sizeof(address));
    result.bytes = sizeof(address);
  }
  return result;
}

/// TCP_USER_TIMEOUT is left alone on purpose: it also ends a connection whose peer answers every
/// probe but keeps its window closed because it computes. Silent hosts are found by keepalive
/// while nothing is in flight, and by host_is_silent() otherwise.
void tune(int fd) {
  set_socket_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_socket_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_socket_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 8);
  set_socket_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set_socket_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

/// Of the congestion controls that systems come with, BBR alone paces each connection by the rate
/// that it measured there. Connections of a rail share one port and send in bursts, so what one of
/// them measures is its share of the moment, and a call waits for the one with the least. The next
/// one may need a privilege; reno never does.
void avoid_pacing(int fd) {
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX
  socklen_t bytes = name.size();
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) != 0) return;
  if (!std::string_view(name.data(), bytes).starts_with("bbr")) return;
  for (const std::string_view other : {"cubic", "reno"}) {
    if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, other.data(),
                     static_cast<socklen_t>(other.size())) == 0)
      return;
  }
}

base::UniqueFd new_socket(const Endpoint& endpoint) {
  base::UniqueFd fd(::socket(endpoint.is_ipv6 ? AF_INET6 : AF_INET,
                             SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  // Before the connection is there: a listener's choice is that of the connections it accepts, and
  // one that BBR has begun stays paced.
  if (fd) avoid_pacing(fd.get());
  return fd;
}

using NameCall = int (*)(int, sockaddr*, socklen_t*);

std::optional<Endpoint> endpoint_by(NameCall call, int fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(storage);
  if (call(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return std::nullopt;
  return from_system_address(reinterpret_cast<const sockaddr*>(&storage));
}

}  // namespace

void set_socket_option(int fd, int level, int name, int value) {
  (void)::setsockopt(fd, level, name, &value, sizeof(value));
}

bool Endpoint::is_loopback() const {
  if (!is_ipv6) return address[0] == 127;
  for (std::size_t i = 0; i < 15; ++i) {
    if (address[i] != 0) return false;
  }
  return address[15] == 1;
}

std::string Endpoint::address_text() const {
  char buffer[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(is_ipv6 ? AF_INET6 : AF_INET, address.data(), buffer, sizeof(buffer));
  return buffer;
}

std::string Endpoint::text() const {
  return fmt::format(fmt::runtime(is_ipv6 ? "[{}]:{}" : "{}:{}"), address_text(), port);
}

std::array<std::byte, kEndpointBytes> encode_endpoint(const Endpoint& endpoint) {
  std::array<std::byte, kEndpointBytes> bytes{};
  bytes[0] = static_cast<std::byte>(endpoint.is_ipv6 ? 6 : 4);
  bytes[2] = static_cast<std::byte>(endpoint.port & 0xFF);
  bytes[3] = static_cast<std::byte>(endpoint.port >> 8);
  std::memcpy(bytes.data() + 4, endpoint.address.data(), endpoint.is_ipv6 ? 16 : 4);
  return bytes;
}

std::optional<Endpoint> decode_endpoint(std::span<const std::byte> bytes) {
  if (bytes.size() != kEndpointBytes) return std::nullopt;
  const int family = std::to_integer<int>(bytes[0]);
  if ((family != 4 && family != 6) || bytes[1] != std::byte{0}) return std::nullopt;
  Endpoint endpoint;
  endpoint.is_ipv6 = family == 6;
  endpoint.port = static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[2]) |
                                             std::to_integer<unsigned>(bytes[3]) << 8);
  std::memcpy(endpoint.address.data(), bytes.data() + 4, 16);
  for (std::size_t i = 4; !endpoint.is_ipv6 && i < 16; ++i) {
    if (endpoint.address[i] != 0) return std::nullopt;
  }
  return endpoint;
}

std::optional<Endpoint> parse_address(std::string_view text) {
  const std::string terminated(text);
  Endpoint endpoint;
  if (::inet_pton(AF_INET, terminated.c_str(), endpoint.address.data()) == 1) return endpoint;
  endpoint.address = {};
  endpoint.is_ipv6 = true;
  if (::inet_pton(AF_INET6, terminated.c_str(), endpoint.address.data()) == 1) return endpoint;
  return std::nullopt;
}

std::optional<Endpoint> from_system_address(const sockaddr* address) {
  Endpoint endpoint;
  if (address->sa_family == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, address, sizeof(ipv4));
    endpoint.port = ntohs(ipv4.sin_port);
    std::memcpy(endpoint.address.data(), &ipv4.sin_addr, 4);
    return endpoint;
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 ipv6{};
    std::memcpy(&ipv6, address, sizeof(ipv6));
    endpoint.is_ipv6 = true;
    endpoint.port = ntohs(ipv6.sin6_port);
    std::memcpy(endpoint.address.data(), &ipv6.sin6_addr, 16);
    return endpoint;
  }
  return std::nullopt;
}

std::optional<Endpoint> local_endpoint(int fd) {
  return endpoint_by([](int f, sockaddr* a, socklen_t* b) { return ::getsockname(f, a, b); }, fd);
}

std::optional<Endpoint> remote_endpoint(int fd) {
  return endpoint_by([](int f, sockaddr* a, socklen_t* b) { return ::getpeername(f, a, b); }, fd);
}

base::UniqueFd listen_on(const Endpoint& local, int backlog) {
  base::UniqueFd fd = new_socket(local);
  base::check_minus_one(fd.get(), "cannot make a TCP socket");
  set_socket_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  const SystemAddress address = to_system_address(local);
  if (::bind(fd.get(), address.get(), address.bytes) != 0) {
    base::fail(Code::BadConfiguration,
               "cannot listen on {}: {}; name an address or an interface of this host",
               local.text(), base::errno_text(errno));
  }
  base::check_minus_one(::listen(fd.get(), backlog), "cannot listen on a TCP socket");
  return fd;
}

base::UniqueFd start_connect(const Endpoint& from, const Endpoint& to, const std::string& device,
                             int& error_number) {
  error_number = 0;
  base::UniqueFd fd = new_socket(to);
  if (!fd) {
    error_number = errno;
    return fd;
  }
  tune(fd.get());
  set_socket_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // The port is chosen when connecting, so that one address serves more than 28,000 connections.
  set_socket_option(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  if (!device.empty() && !from.is_loopback()) {
    // Needs a privilege on old kernels; without it the source address still picks the route.
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, device.c_str(),
                       static_cast<socklen_t>(device.size()));
  }
  Endpoint source = from;
  source.port = 0;
  const SystemAddress source_address = to_system_address(source);
  const SystemAddress target_address = to_system_address(to);
  if (::bind(fd.get(), source_address.get(), source_address.bytes) != 0 ||
      (::connect(fd.get(), target_address.get(), target_address.bytes) != 0 &&
       errno != EINPROGRESS && errno != EINTR)) {
    error_number = errno;
    fd.reset();
  }
  return fd;
}

int connect_error(int fd) {
  int error_number = 0;
  socklen_t bytes = sizeof(error_number);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &bytes) != 0) return errno;
  return error_number;
}

base::UniqueFd accept_next(int listener_fd, int& error_number) {
  for (;;) {
    base::UniqueFd fd(::accept4(listener_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      error_number = 0;
      tune(fd.get());
      return fd;
    }
    // A connection that died in the queue is reported here and is no fault of the listener.
    if (errno == EINTR || errno == ECONNABORTED) continue;
    error_number = errno;
    return fd;
  }
}

bool host_is_silent(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
  // Both counters return to zero with any answer; one unanswered try may still be on its way.
  const bool unanswered = info.tcpi_retransmits >= 2 || info.tcpi_probes >= 2;
  return unanswered && info.tcpi_last_ack_recv > 1000U * kSilenceLimitSeconds;
}

}  // namespace allrail::transport
