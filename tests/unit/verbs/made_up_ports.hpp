// Ports of hosts that nobody has to have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "include/allrail/error.hpp"
#include "transport/verbs/gid_choice.hpp"
#include "transport/verbs/ports.hpp"

namespace allrail::transport::test {

/// "10.0.0.1" in its mapped form, or an IPv6 address.
inline GidBytes gid_bytes(const std::string& address) {
  GidBytes bytes{};
  if (::inet_pton(AF_INET, address.c_str(), bytes.data() + 12) == 1) {
    bytes[10] = bytes[11] = 0xFF;
  } else if (::inet_pton(AF_INET6, address.c_str(), bytes.data()) != 1) {
    ADD_FAILURE() << address << " is no address";
  }
  return bytes;
}

inline VerbsGid make_gid(int index, const std::string& address, GidType type = GidType::RoceV2,
                         int prefix_bits = 0) {
  VerbsGid gid;
  gid.index = index;
  gid.bytes = gid_bytes(address);
  gid.type = type;
  gid.prefix_bits = prefix_bits;
  return gid;
}

inline VerbsPort make_port(const std::string& device, int number, LinkLayer layer) {
  VerbsPort port;
  port.device = device;
  port.number = number;
  port.link_layer = layer;
  port.is_active = true;
  port.state = "active";
  port.rate_mbit = 100'000;
  port.transport = "InfiniBand";
  port.can_write_with_immediate = true;
  return port;
}

inline VerbsPort infiniband_port(const std::string& device, int number = 1) {
  VerbsPort port = make_port(device, number, LinkLayer::InfiniBand);
  port.lid = 7;
  port.subnet_prefix = 0xFE80'0000'0000'0000;
  port.gids = {make_gid(0, "fe80::2:c903:0:1", GidType::InfiniBand)};
  return port;
}

/// With the GIDs that every RoCE port has: link-local ones, and its IPv4 address as the entries 2
/// (version 1) and 3 (version 2).
inline VerbsPort roce_port(const std::string& device, const std::string& ipv4 = "10.0.0.1",
                           int prefix_length = 24) {
  VerbsPort port = make_port(device, 1, LinkLayer::Ethernet);
  port.interface = "eth-" + device;
  port.gids = {make_gid(0, "fe80::1", GidType::RoceV1), make_gid(1, "fe80::1", GidType::RoceV2),
               make_gid(2, ipv4, GidType::RoceV1, 96 + prefix_length),
               make_gid(3, ipv4, GidType::RoceV2, 96 + prefix_length)};
  return port;
}

inline VerbsPort down(VerbsPort port) {
  port.is_active = false;
  port.state = "down";
  return port;
}

inline VerbsPort at(VerbsPort port, const std::string& pci_address, std::uint32_t pcie_mbit,
                    int numa_node = -1) {
  port.pci_address = pci_address;
  port.pcie_mbit = pcie_mbit;
  port.numa_node = numa_node;
  return port;
}

/// Expects Error{BadConfiguration} with all these words in its text.
template <class Call>
void expect_bad_configuration(Call call, std::initializer_list<const char*> words) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::BadConfiguration);
    for (const char* word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "'" << word << "' is missing in: " << error.what();
    }
  }
}

}  // namespace allrail::transport::test
