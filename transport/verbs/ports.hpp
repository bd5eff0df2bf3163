// The RDMA ports of this host, as libibverbs and sysfs describe them.
//
// Which of them become rails is decided elsewhere, by pure functions over these facts
// (port_choice.hpp), so that every host can be tested without having it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace allrail::transport {

enum class LinkLayer : std::uint8_t { Unknown, InfiniBand, Ethernet };
enum class GidType : std::uint8_t { InfiniBand, RoceV1, RoceV2 };

using GidBytes = std::array<std::uint8_t, 16>;

/// One entry of a port's GID table.
struct VerbsGid {
  int index = 0;
  GidBytes bytes{};
  GidType type = GidType::RoceV2;
  std::string interface;  // the network interface it belongs to; empty on InfiniBand
  /// Leading bits of `bytes` that name the network, IPv4 addresses counted in their mapped form
  /// (10.0.0.1/24 has 120); 0: not known.
  int prefix_bits = 0;
};

struct VerbsPort {
  std::string device;  // "mlx5_0"
  int number = 1;      // from 1
  /// Why nothing else is known, half a sentence such as "it cannot be opened: Permission denied".
  std::string defect;

  LinkLayer link_layer = LinkLayer::Unknown;
  bool is_active = false;
  std::string state;            // "active", "down", "armed"
  std::uint32_t rate_mbit = 0;  // 0: not known
  std::uint32_t active_mtu_bytes = 0;
  std::uint32_t max_message_bytes = 0;
  std::uint16_t lid = 0;            // 0 on Ethernet
  std::uint64_t subnet_prefix = 0;  // of InfiniBand
  std::vector<VerbsGid> gids;       // by index, only entries that are set
  std::string interface;            // the network interface of the first GID that has one
  std::string transport;            // "InfiniBand" (RoCE too), "iWARP", "usNIC"
  bool can_write_with_immediate = false;

  std::string pci_address;        // "0000:3b:00.0"; empty: not on PCI
  std::string physical_function;  // of a virtual function: the PCI address of its owner
  int numa_node = -1;             // -1: not known
  std::uint32_t pcie_mbit = 0;    // what the PCIe link carries; 0: not known

  /// Such as "mlx5_0:1".
  std::string name() const;
  /// For people: "MTU 4096, PCI 0000:3b:00.0, NUMA node 1"; says what is not known, too.
  std::string hardware_text() const;
};

/// All of them, devices in the library's order. Empty without RDMA in the kernel or without
/// devices; a device that cannot be used appears with its defect. Never throws Error.
std::vector<VerbsPort> list_verbs_ports(const std::string& sysfs = "/sys");

}  // namespace allrail::transport
