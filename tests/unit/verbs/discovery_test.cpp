// list_verbs_ports() over a libibverbs that is made up here and linked in place of the real one.
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include "tests/unit/verbs/made_up_ports.hpp"
#include "tests/unit/verbs/made_up_sysfs.hpp"
#include "transport/verbs/ports.hpp"

namespace {

struct MadeUpDevice {
  ibv_device device{};
  ibv_context context{};
  int open_error = 0;
  int query_device_error = 0;
  std::vector<ibv_port_attr> ports;
  std::map<int, int> query_port_errors;               // by port number
  std::map<std::pair<int, int>, ibv_gid_entry> gids;  // by port number and index
};

/// What the made-up library has, and what it was asked to give back.
struct MadeUpLibrary {
  std::vector<MadeUpDevice*> devices;
  bool is_there = true;
  int lists_open = 0;
  int contexts_open = 0;
};
MadeUpLibrary library;

MadeUpDevice& owner_of(const ibv_context* context) {
  for (MadeUpDevice* one : library.devices) {
    if (&one->context == context) return *one;
  }
  std::abort();
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  if (!library.is_there) {
    errno = ENOSYS;
    return nullptr;
  }
  auto** list = new ibv_device*[library.devices.size() + 1]();
  for (std::size_t i = 0; i < library.devices.size(); ++i) list[i] = &library.devices[i]->device;
  if (count != nullptr) *count = static_cast<int>(library.devices.size());
  ++library.lists_open;
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  --library.lists_open;
  delete[] list;
}

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
  for (MadeUpDevice* one : library.devices) {
    if (&one->device != device) continue;
    errno = one->open_error;
    if (one->open_error != 0) return nullptr;
    ++library.contexts_open;
    return &one->context;
  }
  return nullptr;
}

int ibv_close_device(ibv_context*) {
  --library.contexts_open;
  return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  const MadeUpDevice& device = owner_of(context);
  attributes->phys_port_cnt = static_cast<std::uint8_t>(device.ports.size());
  return device.query_device_error;
}

// The header's inline wrapper, which this name is a macro for, comes here with a context that is
// not an extended one; the attributes are then those of the library's first version.
#undef ibv_query_port
int ibv_query_port(ibv_context* context, std::uint8_t number, _compat_ibv_port_attr* attributes) {
  MadeUpDevice& device = owner_of(context);
  if (device.query_port_errors.contains(number)) return device.query_port_errors[number];
  std::memcpy(reinterpret_cast<void*>(attributes), &device.ports[number - 1U],
              offsetof(ibv_port_attr, port_cap_flags2));
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t number, std::uint32_t index,
                      ibv_gid_entry* entry, std::uint32_t, std::size_t) {
  const auto& gids = owner_of(context).gids;
  const auto found = gids.find({static_cast<int>(number), static_cast<int>(index)});
  if (found == gids.end()) return ENODATA;
  *entry = found->second;
  return 0;
}

}  // extern "C"

namespace allrail::transport {
namespace {

class Discovery : public testing::Test {
 protected:
  void SetUp() override { library = MadeUpLibrary(); }
  void TearDown() override {
    EXPECT_EQ(library.lists_open, 0);
    EXPECT_EQ(library.contexts_open, 0);
  }

  MadeUpDevice& add(const std::string& name, ibv_transport_type transport = IBV_TRANSPORT_IB) {
    devices_.push_back(std::make_unique<MadeUpDevice>());
    MadeUpDevice& added = *devices_.back();
    std::strncpy(added.device.name, name.c_str(), sizeof(added.device.name) - 1);
    added.device.transport_type = transport;
    added.context.device = &added.device;
    library.devices.push_back(&added);
    return added;
  }

  static ibv_port_attr port(int link_layer, ibv_port_state state = IBV_PORT_ACTIVE) {
    ibv_port_attr attributes{};
    attributes.state = state;
    attributes.link_layer = static_cast<std::uint8_t>(link_layer);
    attributes.active_mtu = IBV_MTU_4096;
    attributes.active_speed = 32;
    attributes.active_width = 2;
    attributes.max_msg_sz = 1U << 30;
    attributes.gid_tbl_len = 8;
    return attributes;
  }

  static void add_gid(MadeUpDevice& device, int number, int index, const std::string& address,
                      ibv_gid_type type, std::uint32_t interface = 0) {
    ibv_gid_entry entry{};
    entry.gid_index = static_cast<std::uint32_t>(index);
    entry.gid_type = static_cast<std::uint32_t>(type);
    entry.ndev_ifindex = interface;
    std::memcpy(entry.gid.raw, test::gid_bytes(address).data(), 16);
    device.gids[{number, index}] = entry;
  }

  std::vector<VerbsPort> list() const { return list_verbs_ports(sysfs_.root().string()); }

  test::Sysfs sysfs_;
  std::vector<std::unique_ptr<MadeUpDevice>> devices_;
};

TEST_F(Discovery, IsEmptyWithoutLibraryOrDevices) {
  EXPECT_TRUE(list().empty());
  library.is_there = false;
  EXPECT_TRUE(list().empty());
}

TEST_F(Discovery, DescribesAnInfiniBandDeviceWithTwoPorts) {
  sysfs_.add_device("mlx4_0", "devices/pci0000:3a/0000:3b:00.0");
  MadeUpDevice& device = add("mlx4_0");
  device.ports = {port(IBV_LINK_LAYER_INFINIBAND), port(IBV_LINK_LAYER_UNSPECIFIED, IBV_PORT_INIT)};
  device.ports[0].lid = 17;
  add_gid(device, 1, 0, "fec0:0:0:5::1", IBV_GID_TYPE_IB);
  add_gid(device, 1, 4, "2001:db8::1", IBV_GID_TYPE_IB);
  const auto ports = list();
  ASSERT_EQ(ports.size(), 2U);
  EXPECT_EQ(ports[0].name(), "mlx4_0:1");
  EXPECT_EQ(ports[0].defect, "");
  EXPECT_EQ(ports[0].link_layer, LinkLayer::InfiniBand);
  EXPECT_TRUE(ports[0].is_active);
  EXPECT_EQ(ports[0].state, "active");
  EXPECT_EQ(ports[0].rate_mbit, 100'000U);
  EXPECT_EQ(ports[0].active_mtu_bytes, 4096U);
  EXPECT_EQ(ports[0].max_message_bytes, 1U << 30);
  EXPECT_EQ(ports[0].lid, 17U);
  EXPECT_EQ(ports[0].subnet_prefix, 0xFEC0'0000'0000'0005U);
  ASSERT_EQ(ports[0].gids.size(), 2U);
  EXPECT_EQ(ports[0].gids[1].index, 4);
  EXPECT_EQ(ports[0].gids[1].type, GidType::InfiniBand);
  EXPECT_TRUE(ports[0].can_write_with_immediate);
  EXPECT_EQ(ports[0].pci_address, "0000:3b:00.0");
  EXPECT_EQ(ports[0].numa_node, 1);
  EXPECT_EQ(ports[0].pcie_mbit, 126'016U);
  EXPECT_EQ(ports[1].name(), "mlx4_0:2");
  EXPECT_EQ(ports[1].link_layer, LinkLayer::InfiniBand) << "drivers from before RoCE";
  EXPECT_FALSE(ports[1].is_active);
  EXPECT_EQ(ports[1].state, "waiting for a subnet manager");
  EXPECT_TRUE(ports[1].gids.empty());
}

TEST_F(Discovery, DescribesARocePortWithItsInterface) {
  MadeUpDevice& device = add("rxe0");
  device.ports = {port(IBV_LINK_LAYER_ETHERNET)};
  device.ports[0].active_mtu = IBV_MTU_1024;
  add_gid(device, 1, 0, "fe80::1", IBV_GID_TYPE_ROCE_V1);
  // The loopback interface is the one that every machine has.
  add_gid(device, 1, 1, "127.0.0.1", IBV_GID_TYPE_ROCE_V2, 1);
  const auto ports = list();
  ASSERT_EQ(ports.size(), 1U);
  EXPECT_EQ(ports[0].link_layer, LinkLayer::Ethernet);
  EXPECT_EQ(ports[0].active_mtu_bytes, 1024U);
  EXPECT_EQ(ports[0].interface, "lo");
  ASSERT_EQ(ports[0].gids.size(), 2U);
  EXPECT_EQ(ports[0].gids[0].type, GidType::RoceV1);
  EXPECT_EQ(ports[0].gids[0].prefix_bits, 0);
  EXPECT_EQ(ports[0].gids[1].type, GidType::RoceV2);
  EXPECT_EQ(ports[0].gids[1].interface, "lo");
  EXPECT_EQ(ports[0].gids[1].prefix_bits, 96 + 8);
  EXPECT_EQ(ports[0].pci_address, "");
}

TEST_F(Discovery, ReadsTheRateFromSysfsWhereTheCodeIsTooNew) {
  sysfs_.add_device("mlx5_0", "devices/pci0000:3a/0000:3b:00.0");
  sysfs_.write("class/infiniband/mlx5_0/ports/1/rate", "800 Gb/sec (4X XDR)");
  MadeUpDevice& device = add("mlx5_0");
  device.ports = {port(IBV_LINK_LAYER_INFINIBAND)};
  device.ports[0].active_speed = 0;
  ASSERT_EQ(list().size(), 1U);
  EXPECT_EQ(list()[0].rate_mbit, 800'000U);
}

TEST_F(Discovery, KnowsWhatCannotWriteWithImmediateData) {
  add("siw0", IBV_TRANSPORT_IWARP).ports = {port(IBV_LINK_LAYER_ETHERNET)};
  add("usnic0", IBV_TRANSPORT_USNIC_UDP).ports = {port(IBV_LINK_LAYER_ETHERNET)};
  add("efa0", IBV_TRANSPORT_UNSPECIFIED).ports = {port(IBV_LINK_LAYER_UNSPECIFIED)};
  const auto ports = list();
  ASSERT_EQ(ports.size(), 3U);
  EXPECT_EQ(ports[0].transport, "iWARP");
  EXPECT_EQ(ports[1].transport, "usNIC");
  for (const VerbsPort& one : ports) EXPECT_FALSE(one.can_write_with_immediate) << one.name();
}

TEST_F(Discovery, GoesOnAfterADeviceThatFails) {
  sysfs_.add_device("mlx5_0", "devices/pci0000:3a/0000:3b:00.0");
  sysfs_.write("class/infiniband/mlx5_0/ports/2/rate", "");
  add("mlx5_0").open_error = EACCES;
  MadeUpDevice& silent = add("mlx5_1");
  silent.query_device_error = EIO;
  MadeUpDevice& half = add("mlx5_2");
  half.ports = {port(IBV_LINK_LAYER_INFINIBAND), port(IBV_LINK_LAYER_INFINIBAND)};
  half.query_port_errors = {{1, ENODEV}};
  const auto ports = list();
  ASSERT_EQ(ports.size(), 5U);
  EXPECT_EQ(ports[0].name(), "mlx5_0:1");
  EXPECT_NE(ports[0].defect.find("cannot be opened: Permission denied"), std::string::npos)
      << ports[0].defect;
  EXPECT_EQ(ports[1].name(), "mlx5_0:2");
  EXPECT_FALSE(ports[1].defect.empty());
  EXPECT_EQ(ports[2].name(), "mlx5_1:1");
  EXPECT_NE(ports[2].defect.find("Input/output error"), std::string::npos) << ports[2].defect;
  EXPECT_NE(ports[3].defect.find("No such device"), std::string::npos) << ports[3].defect;
  EXPECT_EQ(ports[4].name(), "mlx5_2:2");
  EXPECT_EQ(ports[4].defect, "");
}

}  // namespace
}  // namespace allrail::transport
