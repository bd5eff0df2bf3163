#include "transport/tcp/socket.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "include/allrail/error.hpp"
#include "transport/tcp/interfaces.hpp"

namespace allrail::transport {
namespace {

TEST(Endpoint, SurvivesEncoding) {
  for (const char* text : {"127.0.0.1", "192.0.2.77", "::1", "fd00::1234"}) {
    Endpoint endpoint = parse_address(text).value();
    endpoint.port = 40'000;
    EXPECT_EQ(endpoint.address_text(), text);
    EXPECT_EQ(decode_endpoint(encode_endpoint(endpoint)), endpoint);
  }
  EXPECT_EQ(parse_address("fd00::1").value().text(), "[fd00::1]:0");
}

TEST(Endpoint, RefusesForeignBytes) {
  auto bytes = encode_endpoint(parse_address("127.0.0.1").value());
  EXPECT_FALSE(decode_endpoint(std::span(bytes).first(19)));
  bytes[10] = std::byte{1};  // padding of an IPv4 address
  EXPECT_FALSE(decode_endpoint(bytes));
  bytes[10] = std::byte{0};
  bytes[0] = std::byte{5};
  EXPECT_FALSE(decode_endpoint(bytes));
  EXPECT_FALSE(parse_address("127.0.0.256"));
  EXPECT_FALSE(parse_address("localhost"));
  EXPECT_FALSE(parse_address(""));
}

TEST(Endpoint, KnowsLoopback) {
  EXPECT_TRUE(parse_address("127.3.2.1").value().is_loopback());
  EXPECT_TRUE(parse_address("::1").value().is_loopback());
  EXPECT_FALSE(parse_address("192.0.2.1").value().is_loopback());
  EXPECT_FALSE(parse_address("::2").value().is_loopback());
}

TEST(Interfaces, ListContainsLoopback) {
  bool found = false;
  for (const Interface& one : list_interfaces()) {
    if (one.name != "lo") continue;
    found = true;
    EXPECT_TRUE(one.is_loopback);
    EXPECT_EQ(one.address.address_text(), "127.0.0.1");
  }
  EXPECT_TRUE(found);
}

TEST(Interfaces, ResolvesNamesAndAddresses) {
  const RailPlace by_name = resolve_rail_item("lo");
  EXPECT_EQ(by_name.device, "lo");
  EXPECT_EQ(by_name.address.address_text(), "127.0.0.1");
  const RailPlace by_address = resolve_rail_item("127.0.0.2");
  EXPECT_EQ(by_address.device, "");
  EXPECT_EQ(by_address.name, "127.0.0.2");
  EXPECT_TRUE(by_address.is_loopback);
}

TEST(Interfaces, ErrorsNameTheItemAndWhatThereIs) {
  for (const char* item : {"nonsense0", "198.51.100.77", "", "lo:1", "fe80::1"}) {
    try {
      (void)resolve_rail_item(item);
      FAIL() << item << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::BadConfiguration);
      const std::string text = error.what();
      EXPECT_NE(text.find(item), std::string::npos) << text;
      EXPECT_NE(text.find("lo (127.0.0.1)"), std::string::npos) << text;
    }
  }
}

std::string congestion_control_of(int fd) {
  std::array<char, 32> name{};
  socklen_t bytes = name.size() - 1;
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes), 0);
  return name.data();
}

/// Both ends have what the system gives to everybody, but where that is BBR. Says nothing of BBR on
/// a system that has another.
TEST(Socket, IsNotPacedByItsOwnRate) {
  const base::UniqueFd listener = listen_on(parse_address("127.0.0.1").value());
  int error_number = 0;
  const base::UniqueFd client = start_connect(
      parse_address("127.0.0.1").value(), local_endpoint(listener.get()).value(), "", error_number);
  ASSERT_TRUE(client);
  base::UniqueFd server;
  while (!server) server = accept_next(listener.get(), error_number);
  const base::UniqueFd any(::socket(AF_INET, SOCK_STREAM, 0));
  const std::string usual = congestion_control_of(any.get());
  for (const int fd : {client.get(), server.get()}) {
    const std::string name = congestion_control_of(fd);
    if (usual.starts_with("bbr")) {
      EXPECT_TRUE(name == "cubic" || name == "reno") << name;
    } else {
      EXPECT_EQ(name, usual);
    }
  }
}

TEST(Socket, ConnectsFromTheRailsOwnAddress) {
  const base::UniqueFd listener = listen_on(parse_address("127.0.0.1").value());
  const Endpoint target = local_endpoint(listener.get()).value();
  int error_number = 0;
  const base::UniqueFd client =
      start_connect(parse_address("127.0.0.9").value(), target, "", error_number);
  ASSERT_TRUE(client);
  base::UniqueFd server;
  while (!server) server = accept_next(listener.get(), error_number);
  EXPECT_EQ(remote_endpoint(server.get()).value().address_text(), "127.0.0.9");
  EXPECT_FALSE(host_is_silent(server.get()));
}

}  // namespace
}  // namespace allrail::transport
