// What sysfs and the tables of the specifications say about an RDMA device. No verbs call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/verbs/ports.hpp"

namespace allrail::transport {

/// Mbit/s of a port, from the codes that ibv_query_port() gives for speed and width; 0 for codes
/// that are not known here.
std::uint32_t rate_from_codes(int speed_code, int width_code);
/// Mbit/s from the port's sysfs file `rate`, such as "100 Gb/sec (4X EDR)"; 0 for other texts.
std::uint32_t rate_from_text(std::string_view text);
/// Mbit/s that a PCIe link carries, from texts such as "8.0 GT/s PCIe" and "16": after line coding,
/// before packet headers. 0 where either is not known.
std::uint32_t pcie_rate(std::string_view speed, std::string_view width);

/// Where a device sits.
struct DevicePlace {
  std::string pci_address;
  std::string physical_function;
  int numa_node = -1;
  std::uint32_t pcie_mbit = 0;
};
/// From the folder that the link `device` of an RDMA device points to. A device without one (soft
/// RoCE) is nowhere.
DevicePlace read_device_place(const std::filesystem::path& device_link);

/// "0000:3b:00.1" is; "virtio3" is not.
bool is_pci_address(std::string_view text);
/// The first line of a file; empty where it cannot be read.
std::string read_line(const std::filesystem::path& file);
/// Names in a folder, sorted; empty where there is none.
std::vector<std::string> list_folder(const std::filesystem::path& folder);

}  // namespace allrail::transport
