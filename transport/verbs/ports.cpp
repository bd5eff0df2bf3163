#include "transport/verbs/ports.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <span>

#include <endian.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"
#include "transport/verbs/gid_choice.hpp"
#include "transport/verbs/port_facts.hpp"
#include "transport/verbs/verbs_objects.hpp"

namespace allrail::transport {
namespace {

namespace fs = std::filesystem;

/// An address of this host as a GID would hold it, with the bits that name its network.
struct HostAddress {
  GidBytes bytes{};
  int prefix_bits = 0;
};

int count_bits(std::span<const std::uint8_t> mask) {
  int bits = 0;
  for (const std::uint8_t byte : mask) bits += std::popcount(byte);
  return bits;
}

std::vector<HostAddress> host_addresses() {
  std::vector<HostAddress> addresses;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(
      first, [](ifaddrs* list) { ::freeifaddrs(list); });
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr) continue;
    HostAddress found;
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* address = reinterpret_cast<const std::uint8_t*>(
          &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr);
      const auto* mask = reinterpret_cast<const std::uint8_t*>(
          &reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask)->sin_addr);
      found.bytes[10] = found.bytes[11] = 0xFF;
      std::copy_n(address, 4, found.bytes.begin() + 12);
      found.prefix_bits = 96 + count_bits({mask, 4});
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      const auto* mask = reinterpret_cast<const sockaddr_in6*>(entry->ifa_netmask);
      std::copy_n(address->sin6_addr.s6_addr, 16, found.bytes.begin());
      found.prefix_bits = count_bits({mask->sin6_addr.s6_addr, 16});
    } else {
      continue;
    }
    addresses.push_back(found);
  }
  return addresses;
}

const char* state_text(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "waiting for a subnet manager";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE_DEFER:
      return "deferred";
    default:
      return "in an unknown state";
  }
}

const char* transport_text(ibv_transport_type transport) {
  switch (transport) {
    case IBV_TRANSPORT_IB:
      return "InfiniBand";
    case IBV_TRANSPORT_IWARP:
      return "iWARP";
    case IBV_TRANSPORT_USNIC:
    case IBV_TRANSPORT_USNIC_UDP:
      return "usNIC";
    default:
      return "a transport of the vendor";
  }
}

LinkLayer layer_of(int link_layer) {
  // Drivers from before RoCE leave it unspecified; they are InfiniBand.
  if (link_layer == IBV_LINK_LAYER_ETHERNET) return LinkLayer::Ethernet;
  return link_layer == IBV_LINK_LAYER_INFINIBAND || link_layer == IBV_LINK_LAYER_UNSPECIFIED
             ? LinkLayer::InfiniBand
             : LinkLayer::Unknown;
}

GidType gid_type_of(std::uint32_t type) {
  if (type == IBV_GID_TYPE_ROCE_V2) return GidType::RoceV2;
  return type == IBV_GID_TYPE_ROCE_V1 ? GidType::RoceV1 : GidType::InfiniBand;
}

VerbsGid make_gid(const ibv_gid_entry& entry, const std::vector<HostAddress>& addresses) {
  VerbsGid gid;
  gid.index = static_cast<int>(entry.gid_index);
  std::copy_n(entry.gid.raw, gid.bytes.size(), gid.bytes.begin());
  gid.type = gid_type_of(entry.gid_type);
  char name[IF_NAMESIZE] = {};
  if (entry.ndev_ifindex != 0 && ::if_indextoname(entry.ndev_ifindex, name) != nullptr) {
    gid.interface = name;
  }
  const auto found = std::ranges::find(addresses, gid.bytes, &HostAddress::bytes);
  if (found != addresses.end()) gid.prefix_bits = found->prefix_bits;
  return gid;
}

/// What all ports of a device have in common.
struct DeviceFacts {
  std::string name;
  fs::path folder;  // in sysfs
  DevicePlace place;
  std::string transport;
  bool can_write_with_immediate = false;

  VerbsPort port(int number) const {
    VerbsPort port;
    port.device = name;
    port.number = number;
    port.transport = transport;
    port.can_write_with_immediate = can_write_with_immediate;
    port.pci_address = place.pci_address;
    port.physical_function = place.physical_function;
    port.numa_node = place.numa_node;
    port.pcie_mbit = place.pcie_mbit;
    return port;
  }

  /// All ports that sysfs shows, at least one, for a device that says nothing itself.
  std::vector<VerbsPort> defective_ports(const std::string& defect) const {
    std::vector<VerbsPort> ports;
    for (const std::string& number : list_folder(folder / "ports")) {
      if (const auto value = base::parse_number(number)) {
        ports.push_back(port(static_cast<int>(*value)));
      }
    }
    if (ports.empty()) ports.push_back(port(1));
    for (VerbsPort& one : ports) one.defect = defect;
    return ports;
  }
};

DeviceFacts facts_of(const std::string& name, const fs::path& class_folder) {
  DeviceFacts facts;
  facts.name = name;
  facts.folder = class_folder / name;
  facts.place = read_device_place(facts.folder / "device");
  return facts;
}

void fill_port(VerbsPort& port, const ibv_port_attr& attributes, const fs::path& device_folder) {
  port.link_layer = layer_of(attributes.link_layer);
  port.is_active = attributes.state == IBV_PORT_ACTIVE;
  port.state = state_text(attributes.state);
  port.rate_mbit = rate_from_codes(attributes.active_speed, attributes.active_width);
  if (port.rate_mbit == 0) {
    port.rate_mbit =
        rate_from_text(read_line(device_folder / "ports" / std::to_string(port.number) / "rate"));
  }
  if (attributes.active_mtu >= IBV_MTU_256 && attributes.active_mtu <= IBV_MTU_4096) {
    port.active_mtu_bytes = 128U << attributes.active_mtu;
  }
  port.max_message_bytes = attributes.max_msg_sz;
  port.lid = attributes.lid;
}

void fill_gids(VerbsPort& port, ibv_context* context, int table_length,
               const std::vector<HostAddress>& addresses) {
  for (int index = 0; index < std::min(table_length, kMostGids); ++index) {
    ibv_gid_entry entry{};
    // An entry that is not set is reported as an error (ENODATA).
    if (::ibv_query_gid_ex(context, static_cast<std::uint32_t>(port.number),
                           static_cast<std::uint32_t>(index), &entry, 0) != 0) {
      continue;
    }
    port.gids.push_back(make_gid(entry, addresses));
    const VerbsGid& gid = port.gids.back();
    if (port.interface.empty()) port.interface = gid.interface;
    if (index == 0) port.subnet_prefix = be64toh(entry.gid.global.subnet_prefix);
  }
}

/// The library says ENOENT where it has no permission: it goes on to look elsewhere.
std::string why_not_opened(const char* file_name, int error) {
  const std::string file = std::string("/dev/infiniband/") + file_name;
  if (::access(file.c_str(), R_OK | W_OK) != 0 && errno == EACCES) error = EACCES;
  return fmt::format("it cannot be opened: {} ({})", base::errno_text(error != 0 ? error : ENODEV),
                     file);
}

std::vector<VerbsPort> query_device(ibv_device* device, DeviceFacts facts,
                                    const std::vector<HostAddress>& addresses) {
  facts.transport = transport_text(device->transport_type);
  facts.can_write_with_immediate = device->transport_type == IBV_TRANSPORT_IB;
  errno = 0;
  const verbs::DeviceContext context(::ibv_open_device(device));
  if (!context) {
    return facts.defective_ports(why_not_opened(device->dev_name, errno));
  }
  ibv_device_attr device_attributes{};
  if (const int error = ::ibv_query_device(context.get(), &device_attributes); error != 0) {
    return facts.defective_ports("it does not tell its attributes: " + base::errno_text(error));
  }
  std::vector<VerbsPort> ports;
  for (int number = 1; number <= device_attributes.phys_port_cnt; ++number) {
    VerbsPort port = facts.port(number);
    ibv_port_attr attributes{};
    if (const int error =
            ibv_query_port(context.get(), static_cast<std::uint8_t>(number), &attributes);
        error != 0) {
      port.defect = "it does not tell its attributes: " + base::errno_text(error);
    } else {
      fill_port(port, attributes, facts.folder);
      fill_gids(port, context.get(), attributes.gid_tbl_len, addresses);
    }
    ports.push_back(std::move(port));
  }
  return ports;
}

}  // namespace

std::string VerbsPort::name() const { return fmt::format("{}:{}", device, number); }

std::string VerbsPort::hardware_text() const {
  const std::string mtu =
      active_mtu_bytes == 0 ? "MTU unknown" : fmt::format("MTU {}", active_mtu_bytes);
  const std::string pci = pci_address.empty() ? "not on PCI" : "PCI " + pci_address;
  const std::string owner =
      physical_function.empty() ? "" : fmt::format(" (of {})", physical_function);
  const std::string node =
      numa_node < 0 ? "NUMA node unknown" : fmt::format("NUMA node {}", numa_node);
  return fmt::format("{}, {}{}, {}", mtu, pci, owner, node);
}

std::vector<VerbsPort> list_verbs_ports(const std::string& sysfs) {
  const fs::path class_folder = fs::path(sysfs) / "class" / "infiniband";
  std::vector<VerbsPort> ports;
  std::vector<std::string> unseen = list_folder(class_folder);
  int count = 0;
  const verbs::DeviceList list(::ibv_get_device_list(&count));
  const std::vector<HostAddress> addresses =
      list && count > 0 ? host_addresses() : std::vector<HostAddress>();
  for (int i = 0; list && i < count; ++i) {
    ibv_device* device = list.get()[i];
    const std::string name = ::ibv_get_device_name(device);
    std::erase(unseen, name);
    std::ranges::move(query_device(device, facts_of(name, class_folder), addresses),
                      std::back_inserter(ports));
  }
  // In a container the devices of the host are seen in sysfs, but not always given to it.
  for (const std::string& name : unseen) {
    std::ranges::move(
        facts_of(name, class_folder)
            .defective_ports("the kernel has it, but libibverbs does not: its file in "
                             "/dev/infiniband or its provider library is missing"),
        std::back_inserter(ports));
  }
  return ports;
}

}  // namespace allrail::transport
