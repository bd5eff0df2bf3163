// What can be known of RDMA ports without having any: sysfs, tables, and that nothing throws.
#include "transport/verbs/ports.hpp"

#include <set>

#include <gtest/gtest.h>

#include "tests/unit/verbs/made_up_sysfs.hpp"
#include "transport/verbs/port_facts.hpp"

namespace allrail::transport {
namespace {

using test::Sysfs;

TEST(Rates, AreDecoded) {
  EXPECT_EQ(rate_from_codes(1, 1), 2'500U) << "what soft RoCE reports";
  EXPECT_EQ(rate_from_codes(4, 2), 40'000U);
  EXPECT_EQ(rate_from_codes(16, 2), 56'000U);
  EXPECT_EQ(rate_from_codes(32, 1), 25'000U);
  EXPECT_EQ(rate_from_codes(32, 2), 100'000U);
  EXPECT_EQ(rate_from_codes(64, 16), 100'000U) << "two lanes of HDR";
  EXPECT_EQ(rate_from_codes(128, 2), 400'000U);
  EXPECT_EQ(rate_from_codes(128, 4), 800'000U);
  EXPECT_EQ(rate_from_codes(0, 2), 0U);
  EXPECT_EQ(rate_from_codes(32, 0), 0U);
  EXPECT_EQ(rate_from_codes(3, 3), 0U);
}

TEST(Rates, AreReadFromText) {
  EXPECT_EQ(rate_from_text("100 Gb/sec (4X EDR)"), 100'000U);
  EXPECT_EQ(rate_from_text("2.5 Gb/sec (1X SDR)"), 2'500U);
  EXPECT_EQ(rate_from_text("800 Gb/sec (4X XDR)"), 800'000U);
  EXPECT_EQ(rate_from_text(""), 0U);
  EXPECT_EQ(rate_from_text("100"), 0U);
  EXPECT_EQ(rate_from_text("many Gb/sec"), 0U);
  EXPECT_EQ(rate_from_text("1.2.3 Gb/sec"), 0U);
  EXPECT_EQ(rate_from_text("99999999999999999999 Gb/sec"), 0U);
}

TEST(PcieRate, IsAfterLineCoding) {
  EXPECT_EQ(pcie_rate("2.5 GT/s PCIe", "8"), 16'000U);
  EXPECT_EQ(pcie_rate("5.0 GT/s PCIe", "8"), 32'000U);
  EXPECT_EQ(pcie_rate("5 GT/s", "8"), 32'000U) << "as older kernels write it";
  EXPECT_EQ(pcie_rate("8.0 GT/s PCIe", "16"), 126'016U);
  EXPECT_EQ(pcie_rate("16.0 GT/s PCIe", "16"), 252'048U);
  EXPECT_EQ(pcie_rate("64.0 GT/s PCIe", "16"), 968'000U);
  EXPECT_EQ(pcie_rate("Unknown", "16"), 0U);
  EXPECT_EQ(pcie_rate("Unknown speed", "0"), 0U);
  EXPECT_EQ(pcie_rate("8.0 GT/s PCIe", "255"), 0U) << "what a virtual machine shows";
  EXPECT_EQ(pcie_rate("8.0 GT/s PCIe", "0"), 0U);
  EXPECT_EQ(pcie_rate("", ""), 0U);
}

TEST(PciAddress, IsRecognised) {
  EXPECT_TRUE(is_pci_address("0000:3b:00.1"));
  EXPECT_TRUE(is_pci_address("10000:e1:00.0"));
  for (const char* text : {"", "virtio3", "0000:3b:00", "0000:3b:00.", "000:3b:00.1",
                           "0000-3b-00.1", "g000:3b:00.1", "0000:3b:00.12"}) {
    EXPECT_FALSE(is_pci_address(text)) << text;
  }
}

TEST(DevicePlace, IsReadFromSysfs) {
  const Sysfs sysfs;
  sysfs.add_device("mlx5_0", "devices/pci0000:3a/0000:3b:00.0");
  const DevicePlace place = read_device_place(sysfs.root() / "class/infiniband/mlx5_0/device");
  EXPECT_EQ(place.pci_address, "0000:3b:00.0");
  EXPECT_EQ(place.physical_function, "");
  EXPECT_EQ(place.numa_node, 1);
  EXPECT_EQ(place.pcie_mbit, 126'016U);
}

TEST(DevicePlace, IsFoundAboveDevicesOfTheDriver) {
  const Sysfs sysfs;
  sysfs.add_device("mlx5_0", "devices/pci0000:3a/0000:3b:00.0");
  sysfs.link("class/infiniband/irdma0/device", "devices/pci0000:3a/0000:3b:00.0/ice.roce.0");
  EXPECT_EQ(read_device_place(sysfs.root() / "class/infiniband/irdma0/device").pci_address,
            "0000:3b:00.0");
}

TEST(DevicePlace, OfAVirtualFunctionHasTheLinkOfItsOwner) {
  const Sysfs sysfs;
  sysfs.add_device("mlx5_0", "devices/pci0000:3a/0000:3b:00.0");
  sysfs.link("class/infiniband/mlx5_1/device", "devices/pci0000:3a/0000:3b:00.2");
  sysfs.write("devices/pci0000:3a/0000:3b:00.2/current_link_speed", "Unknown");
  sysfs.write("devices/pci0000:3a/0000:3b:00.2/numa_node", "-1");
  sysfs.link("devices/pci0000:3a/0000:3b:00.2/physfn", "devices/pci0000:3a/0000:3b:00.0");
  const DevicePlace place = read_device_place(sysfs.root() / "class/infiniband/mlx5_1/device");
  EXPECT_EQ(place.pci_address, "0000:3b:00.2");
  EXPECT_EQ(place.physical_function, "0000:3b:00.0");
  EXPECT_EQ(place.numa_node, -1);
  EXPECT_EQ(place.pcie_mbit, 126'016U);
}

TEST(DevicePlace, IsNowhereForSoftwareDevices) {
  const Sysfs sysfs;
  sysfs.link("class/infiniband/rxe0/device", "devices/virtual/net/d0");
  for (const char* link : {"class/infiniband/rxe0/device", "class/infiniband/rxe1/device"}) {
    const DevicePlace place = read_device_place(sysfs.root() / link);
    EXPECT_EQ(place.pci_address, "");
    EXPECT_EQ(place.numa_node, -1);
    EXPECT_EQ(place.pcie_mbit, 0U);
  }
}

TEST(HardwareText, SaysWhatIsKnownAndWhatIsNot) {
  VerbsPort port;
  EXPECT_EQ(port.hardware_text(), "MTU unknown, not on PCI, NUMA node unknown");
  port.active_mtu_bytes = 4096;
  port.pci_address = "0000:3b:00.2";
  port.numa_node = 0;
  EXPECT_EQ(port.hardware_text(), "MTU 4096, PCI 0000:3b:00.2, NUMA node 0");
  port.physical_function = "0000:3b:00.0";
  EXPECT_EQ(port.hardware_text(), "MTU 4096, PCI 0000:3b:00.2 (of 0000:3b:00.0), NUMA node 0");
}

TEST(ListVerbsPorts, ThrowsNowhereAndIsEmptyWithoutRdma) {
  std::set<std::string> names;
  for (const VerbsPort& port : list_verbs_ports()) {
    EXPECT_TRUE(names.insert(port.name()).second) << port.name() << " is there twice";
    EXPECT_TRUE(!port.defect.empty() || !port.state.empty()) << port.name();
  }
  // Other machines may have some.
  EXPECT_EQ(names.empty(), list_folder("/sys/class/infiniband").empty());
}

TEST(ListVerbsPorts, ShowsDevicesThatOnlyTheKernelHas) {
  const Sysfs sysfs;
  sysfs.add_device("unseen0", "devices/pci0000:3a/0000:3b:00.0");
  sysfs.write("class/infiniband/unseen0/ports/2/rate", "100 Gb/sec (4X EDR)");
  std::vector<VerbsPort> ports = list_verbs_ports(sysfs.root().string());
  std::erase_if(ports, [](const VerbsPort& port) { return port.device != "unseen0"; });
  ASSERT_EQ(ports.size(), 2U);
  EXPECT_EQ(ports[0].name(), "unseen0:1");
  EXPECT_EQ(ports[1].name(), "unseen0:2");
  EXPECT_NE(ports[0].defect.find("libibverbs does not"), std::string::npos);
  EXPECT_EQ(ports[0].numa_node, 1);
}

}  // namespace
}  // namespace allrail::transport
