// What this process may know about its machine: cores, memories, and where network ports are.
//
// The only folder that includes hwloc. HWLOC_XMLFILE and HWLOC_SYNTHETIC replace the machine by
// another one, for tests.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace allrail::topology {

/// A network interface or RDMA device as hwloc knows it.
struct Device {
  std::string name;         // "eth0", "mlx5_0"
  int numa_node = -1;       // the nearest memory; -1: unknown, or equally near to several
  std::string pci_address;  // "0000:3b:00.0"; empty: not on PCI
  bool is_rdma = false;     // no interface
};

/// How far cores are from a device, smaller is nearer: levels of the hardware tree between them.
struct Distance {
  int levels = 0;
  bool same_numa_node = true;
};

struct RankPlace;   // leaders.hpp
class MachineTree;  // topology.cpp

class Machine {
 public:
  /// Takes some milliseconds; with devices the PCI tree is read too, which can take ten more.
  /// Throws Error{ResourceLimit} where hwloc cannot read the machine.
  enum class Detail { CoresOnly, WithDevices };
  static Machine discover(Detail detail);
  /// The machine that a file of lstopo (XML) describes. Throws Error{InvalidArgument}.
  static Machine read(const std::string& xml_file);

  Machine(Machine&&) noexcept;
  Machine& operator=(Machine&&) noexcept;
  ~Machine();

  /// Cores (not hardware threads) that this process may run on; at least 1.
  int usable_cores() const;
  int numa_nodes() const;
  /// Where locality ends: memories, or sockets on a machine with one memory; at least 1.
  int domains() const;
  /// The cpus that this process may run on, such as "0-3,8-11".
  std::string cpuset() const;
  /// The memory nearest to the cpus of this process; -1 where it may run near several.
  int own_numa_node() const;

  /// Network interfaces and RDMA devices; empty unless discovered WithDevices.
  std::vector<Device> devices() const;
  /// NUMA node of a network interface, RDMA device or PCI address; -1: unknown.
  int numa_node_of(std::string_view device) const;
  /// Whether there is such an interface, RDMA device or PCI address.
  bool knows(std::string_view device) const;
  /// From the cpus in `cpuset` (as cpuset() writes it) to the device; levels -1 where either is
  /// unknown.
  Distance distance(const std::string& cpuset, std::string_view device) const;
  /// Of a rank that may run on these cpus and has these rails: interfaces and RDMA devices by name,
  /// or by PCI address such as "0000:3b:00.0". Eight rails count.
  RankPlace place_of(const std::string& cpuset, std::span<const std::string> devices) const;
  /// Cpus for so many ranks, each bound to a core, spread evenly over all cores in their order.
  std::vector<std::string> one_core_each(int ranks) const;

  /// Whether these ranks of one node, each with the cpus it may run on, are more than the cores
  /// they share: then a rank that spins takes time from one that it waits for. Empty strings stand
  /// for "anywhere".
  bool outnumbered(std::span<const std::string> cpusets) const;
  /// The cpu on which a rank should stay that has to share it, so that every cpu has as many ranks
  /// and neighbours are together. Of ranks of one machine in the order of that neighbourhood, those
  /// with the same cpus as rank `own` count. -1: they do not outnumber these cpus, or
  /// have only one.
  int home_cpu(std::span<const std::string> cpusets, std::size_t own) const;

 private:
  explicit Machine(std::unique_ptr<MachineTree> tree);
  std::unique_ptr<MachineTree> tree_;
};

}  // namespace allrail::topology
