// A sysfs of a machine that nobody has to have, in a folder that is removed at the end.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <stdlib.h>

namespace allrail::transport::test {

class Sysfs {
 public:
  Sysfs() {
    std::string name = (std::filesystem::temp_directory_path() / "allrail-sysfs-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  Sysfs(const Sysfs&) = delete;
  Sysfs& operator=(const Sysfs&) = delete;
  ~Sysfs() {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }

  const std::filesystem::path& root() const { return root_; }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  void link(const std::string& from, const std::string& to) const {
    std::filesystem::create_directories((root_ / from).parent_path());
    std::filesystem::create_directories(root_ / to);
    std::filesystem::create_directory_symlink(root_ / to, root_ / from);
  }

  /// An RDMA device with one port on a PCI device with 16 lanes of the third generation.
  void add_device(const std::string& name, const std::string& pci_folder) const {
    write(pci_folder + "/numa_node", "1");
    write(pci_folder + "/current_link_speed", "8.0 GT/s PCIe");
    write(pci_folder + "/current_link_width", "16");
    write("class/infiniband/" + name + "/ports/1/rate", "100 Gb/sec (4X EDR)");
    link("class/infiniband/" + name + "/device", pci_folder);
  }

 private:
  std::filesystem::path root_;
};

}  // namespace allrail::transport::test
