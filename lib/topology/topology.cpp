#include "lib/topology/topology.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <hwloc.h>

#include "lib/base/error.hpp"
#include "lib/topology/leaders.hpp"

namespace allrail::topology {
namespace {

/// A set of cpus that is freed with its owner.
class CpuSet {
 public:
  CpuSet() : bits_(::hwloc_bitmap_alloc()) {}
  explicit CpuSet(hwloc_const_bitmap_t from) : bits_(::hwloc_bitmap_dup(from)) {}
  ~CpuSet() { ::hwloc_bitmap_free(bits_); }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;
  CpuSet(CpuSet&& other) noexcept : bits_(std::exchange(other.bits_, nullptr)) {}
  hwloc_bitmap_t get() const noexcept { return bits_; }

 private:
  hwloc_bitmap_t bits_;
};

std::string list_of(hwloc_const_bitmap_t cpus) {
  char* text = nullptr;
  if (::hwloc_bitmap_list_asprintf(&text, cpus) < 0) return "";
  std::string result(text);
  std::free(text);
  return result;
}

void check(int result, const char* action) {
  if (result != 0) {
    base::fail(Code::ResourceLimit, "{} with hwloc failed: {}", action, base::errno_text(errno));
  }
}

}  // namespace

class MachineTree {
 public:
  /// Of this machine, or of the one that a file describes.
  explicit MachineTree(Machine::Detail detail, const std::string& xml_file = {});
  ~MachineTree() {
    if (tree_ != nullptr) ::hwloc_topology_destroy(tree_);
  }
  MachineTree(const MachineTree&) = delete;
  MachineTree& operator=(const MachineTree&) = delete;

  hwloc_topology_t get() const noexcept { return tree_; }
  hwloc_const_bitmap_t own() const noexcept { return own_.get(); }
  hwloc_obj_t find_device(std::string_view name) const;
  /// The cpus that `text` names and this machine has; all of the process's own for an empty text.
  CpuSet read(const std::string& text) const;
  /// Cores with at least one of those cpus.
  int cores_in(hwloc_const_bitmap_t cpus) const;
  int numa_node_near(hwloc_const_bitmap_t cpus) const;
  hwloc_obj_type_t domain_type() const {
    return ::hwloc_get_nbobjs_by_type(tree_, HWLOC_OBJ_NUMANODE) > 1 ? HWLOC_OBJ_NUMANODE
                                                                     : HWLOC_OBJ_PACKAGE;
  }
  /// Whether the device is known to be nearer to some domain than to another.
  bool has_place(std::string_view device) const;
  /// The domain that all these cpus are in; -1: in none, or in several.
  int domain_of(hwloc_const_bitmap_t cpus) const;

 private:
  hwloc_topology_t tree_ = nullptr;
  CpuSet own_;
};

MachineTree::MachineTree(Machine::Detail detail, const std::string& xml_file) {
  check(::hwloc_topology_init(&tree_), "starting");
  if (!xml_file.empty() && ::hwloc_topology_set_xml(tree_, xml_file.c_str()) != 0) {
    ::hwloc_topology_destroy(std::exchange(tree_, nullptr));
    base::fail(Code::InvalidArgument,
               "'{}' is no machine that hwloc can read: name a file that lstopo --of xml wrote",
               xml_file);
  }
  // Caches and groups decide nothing here, and the PCI tree is what takes long.
  ::hwloc_topology_set_cache_types_filter(tree_, HWLOC_TYPE_FILTER_KEEP_NONE);
  ::hwloc_topology_set_type_filter(tree_, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
  ::hwloc_topology_set_io_types_filter(tree_, detail == Machine::Detail::WithDevices
                                                  ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT
                                                  : HWLOC_TYPE_FILTER_KEEP_NONE);
  if (::hwloc_topology_load(tree_) != 0) {
    const int error_number = errno;
    ::hwloc_topology_destroy(std::exchange(tree_, nullptr));
    base::fail(Code::ResourceLimit, "reading the machine's topology with hwloc failed: {}",
               base::errno_text(error_number));
  }
  // The binding of a machine that is only described (HWLOC_XMLFILE) is unknown: all of it then.
  if (::hwloc_topology_is_thissystem(tree_) == 0 ||
      ::hwloc_get_cpubind(tree_, own_.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    ::hwloc_bitmap_copy(own_.get(), ::hwloc_topology_get_allowed_cpuset(tree_));
  }
  ::hwloc_bitmap_and(own_.get(), own_.get(), ::hwloc_topology_get_topology_cpuset(tree_));
}

hwloc_obj_t MachineTree::find_device(std::string_view name) const {
  hwloc_obj_t device = nullptr;
  while ((device = ::hwloc_get_next_osdev(tree_, device)) != nullptr) {
    if (device->name != nullptr && name == device->name) return device;
  }
  // Not const in hwloc, which changes nothing.
  return ::hwloc_get_pcidev_by_busidstring(tree_, std::string(name).c_str());
}

CpuSet MachineTree::read(const std::string& text) const {
  CpuSet cpus;
  // A text that is no list of cpus comes from another rank: treated as "anywhere".
  if (text.empty() || ::hwloc_bitmap_list_sscanf(cpus.get(), text.c_str()) != 0) {
    return CpuSet(own());
  }
  ::hwloc_bitmap_and(cpus.get(), cpus.get(), ::hwloc_topology_get_topology_cpuset(tree_));
  if (::hwloc_bitmap_iszero(cpus.get()) != 0) return CpuSet(own());
  return cpus;
}

int MachineTree::cores_in(hwloc_const_bitmap_t cpus) const {
  int cores = 0;
  hwloc_obj_t core = nullptr;
  while ((core = ::hwloc_get_next_obj_by_type(tree_, HWLOC_OBJ_CORE, core)) != nullptr) {
    if (::hwloc_bitmap_intersects(core->cpuset, cpus) != 0) ++cores;
  }
  // Some virtual machines show no cores: then every hardware thread counts as one.
  return cores > 0 ? cores : std::max(1, ::hwloc_bitmap_weight(cpus));
}

int MachineTree::numa_node_near(hwloc_const_bitmap_t cpus) const {
  int found = -1;
  hwloc_obj_t node = nullptr;
  while ((node = ::hwloc_get_next_obj_by_type(tree_, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    if (node->cpuset == nullptr || ::hwloc_bitmap_intersects(node->cpuset, cpus) == 0) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(node->os_index);
  }
  return found;
}

bool MachineTree::has_place(std::string_view device) const {
  hwloc_obj* const object = find_device(device);
  if (object == nullptr) return false;
  // What the firmware says nothing of hangs from the root.
  const hwloc_obj* const near = ::hwloc_get_non_io_ancestor_obj(tree_, object);
  return near != nullptr && near->parent != nullptr;
}

int MachineTree::domain_of(hwloc_const_bitmap_t cpus) const {
  int found = -1;
  hwloc_obj_t domain = nullptr;
  while ((domain = ::hwloc_get_next_obj_by_type(tree_, domain_type(), domain)) != nullptr) {
    if (domain->cpuset == nullptr || ::hwloc_bitmap_intersects(domain->cpuset, cpus) == 0) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(domain->os_index);
  }
  return found;
}

Machine Machine::discover(Detail detail) { return Machine(std::make_unique<MachineTree>(detail)); }

Machine Machine::read(const std::string& xml_file) {
  return Machine(std::make_unique<MachineTree>(Detail::WithDevices, xml_file));
}

Machine::Machine(std::unique_ptr<MachineTree> tree) : tree_(std::move(tree)) {}
Machine::Machine(Machine&&) noexcept = default;
Machine& Machine::operator=(Machine&&) noexcept = default;
Machine::~Machine() = default;

int Machine::usable_cores() const { return tree_->cores_in(tree_->own()); }

int Machine::numa_nodes() const {
  return std::max(1, ::hwloc_get_nbobjs_by_type(tree_->get(), HWLOC_OBJ_NUMANODE));
}

int Machine::domains() const {
  return std::max(1, ::hwloc_get_nbobjs_by_type(tree_->get(), tree_->domain_type()));
}

std::string Machine::cpuset() const { return list_of(tree_->own()); }

int Machine::own_numa_node() const { return tree_->numa_node_near(tree_->own()); }

std::vector<Device> Machine::devices() const {
  std::vector<Device> devices;
  hwloc_obj_t object = nullptr;
  while ((object = ::hwloc_get_next_osdev(tree_->get(), object)) != nullptr) {
    const hwloc_obj_osdev_type_t type = object->attr->osdev.type;
    if (object->name == nullptr ||
        (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS)) {
      continue;
    }
    Device device;
    device.name = object->name;
    device.numa_node = numa_node_of(device.name);
    device.is_rdma = type == HWLOC_OBJ_OSDEV_OPENFABRICS;
    if (object->parent != nullptr && object->parent->type == HWLOC_OBJ_PCI_DEVICE) {
      const auto& pci = object->parent->attr->pcidev;
      device.pci_address =
          fmt::format("{:04x}:{:02x}:{:02x}.{:x}", static_cast<unsigned>(pci.domain), pci.bus,
                      pci.dev, pci.func);
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

int Machine::numa_node_of(std::string_view device) const {
  hwloc_obj* const object = tree_->find_device(device);
  if (object == nullptr) return -1;
  hwloc_obj* const near = ::hwloc_get_non_io_ancestor_obj(tree_->get(), object);
  return near == nullptr || near->cpuset == nullptr ? -1 : tree_->numa_node_near(near->cpuset);
}

bool Machine::knows(std::string_view device) const { return tree_->find_device(device) != nullptr; }

Distance Machine::distance(const std::string& cpuset, std::string_view device) const {
  hwloc_obj* const object = tree_->find_device(device);
  if (object == nullptr) return {-1, false};
  hwloc_obj* const near = ::hwloc_get_non_io_ancestor_obj(tree_->get(), object);
  const CpuSet cpus = tree_->read(cpuset);
  hwloc_obj* const covering = ::hwloc_get_obj_covering_cpuset(tree_->get(), cpus.get());
  if (near == nullptr || covering == nullptr) return {-1, false};
  hwloc_obj* const common = ::hwloc_get_common_ancestor_obj(tree_->get(), near, covering);
  Distance distance;
  // Levels up from the device: a rank that is bound below the device's socket is not farther away
  // than one that is bound to all of that socket.
  distance.levels = near->depth - common->depth;
  distance.same_numa_node = ::hwloc_bitmap_intersects(near->cpuset, cpus.get()) != 0;
  return distance;
}

RankPlace Machine::place_of(const std::string& cpuset, std::span<const std::string> devices) const {
  RankPlace place;
  const int domain = tree_->domain_of(tree_->read(cpuset).get());
  if (domain >= 0 && domain < kUnknownPlace) place.domain = static_cast<std::uint8_t>(domain);
  for (std::size_t rail = 0; rail < std::min<std::size_t>(devices.size(), 8); ++rail) {
    if (!tree_->has_place(devices[rail])) continue;
    const int levels = distance(cpuset, devices[rail]).levels;
    if (levels < 0 || levels > place.rail_levels) continue;
    if (levels < place.rail_levels) place.near_rails = 0;
    place.rail_levels = static_cast<std::uint8_t>(levels);
    place.near_rails = static_cast<std::uint8_t>(place.near_rails | 1U << rail);
  }
  return place;
}

std::vector<std::string> Machine::one_core_each(int ranks) const {
  // Some virtual machines show no cores.
  const bool has_cores = ::hwloc_get_nbobjs_by_type(tree_->get(), HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  const long long cores = ::hwloc_get_nbobjs_by_type(tree_->get(), type);
  std::vector<std::string> cpusets;
  for (long long rank = 0; rank < ranks; ++rank) {
    // More ranks than cores take turns, as neighbours.
    const auto at = static_cast<unsigned>(rank * cores / ranks);
    cpusets.push_back(list_of(::hwloc_get_obj_by_type(tree_->get(), type, at)->cpuset));
  }
  return cpusets;
}

bool Machine::outnumbered(std::span<const std::string> cpusets) const {
  // Exact for the two cases that launchers make: everybody bound to the same cpus, or to parts
  // that do not overlap. Ranks are handed to cores greedily, most constrained first.
  std::vector<CpuSet> ranks;
  for (const std::string& text : cpusets) ranks.push_back(tree_->read(text));
  std::vector<std::pair<int, std::size_t>> order;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    order.emplace_back(tree_->cores_in(ranks[rank].get()), rank);
  }
  std::sort(order.begin(), order.end());
  CpuSet taken;
  for (const auto& [cores, rank] : order) {
    bool found = false;
    for (hwloc_obj_t core = nullptr; !found;) {
      core = ::hwloc_get_next_obj_by_type(tree_->get(), HWLOC_OBJ_CORE, core);
      if (core == nullptr) break;
      if (::hwloc_bitmap_intersects(core->cpuset, ranks[rank].get()) == 0 ||
          ::hwloc_bitmap_intersects(core->cpuset, taken.get()) != 0) {
        continue;
      }
      ::hwloc_bitmap_or(taken.get(), taken.get(), core->cpuset);
      found = true;
    }
    if (!found) return true;
  }
  return false;
}

int Machine::home_cpu(std::span<const std::string> cpusets, std::size_t own) const {
  const auto same = [&](const std::string& cpuset) { return cpuset == cpusets[own]; };
  const long long ranks = std::ranges::count_if(cpusets, same);
  const long long before = std::ranges::count_if(cpusets.first(own), same);
  // In hwloc's order, where threads of a core and cores of a socket are neighbours.
  std::vector<unsigned> cpus;
  const CpuSet allowed = tree_->read(cpusets[own]);
  hwloc_obj_t cpu = nullptr;
  while ((cpu = ::hwloc_get_next_obj_by_type(tree_->get(), HWLOC_OBJ_PU, cpu)) != nullptr) {
    if (::hwloc_bitmap_isset(allowed.get(), cpu->os_index) != 0) cpus.push_back(cpu->os_index);
  }
  const auto count = static_cast<long long>(cpus.size());
  if (count == 1 || ranks <= count) return -1;
  return static_cast<int>(cpus[static_cast<std::size_t>(before * count / ranks)]);
}

}  // namespace allrail::topology
