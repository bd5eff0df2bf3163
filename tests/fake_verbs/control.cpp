// What tests call: see fake_verbs.hpp.
#include <cstdio>

#include <arpa/inet.h>

#include "tests/fake_verbs/world.hpp"

namespace allrail::fake_verbs {
namespace {

using Lock = std::lock_guard<std::mutex>;

std::unique_ptr<Device> make_device(const DeviceOptions& options, int index) {
  auto device = std::make_unique<Device>();
  device->options = options;
  device->node_type = options.iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
  device->transport_type = options.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
  const char* name = options.name.c_str();
  std::snprintf(device->name, sizeof device->name, "%s", name);
  std::snprintf(device->dev_name, sizeof device->dev_name, "uverbs%d", index);
  std::snprintf(device->ibdev_path, sizeof device->ibdev_path, "/sys/class/infiniband/%s", name);
  std::snprintf(device->dev_path, sizeof device->dev_path, "/sys/class/infiniband_verbs/uverbs%d",
                index);
  if (inet_pton(AF_INET, options.address.c_str(), &device->address) != 1)
    world().misuse("the address of " + options.name + " is no IPv4 address: " + options.address);
  return device;
}

void tell_contexts(const Device& device, ibv_event_type type) {
  ibv_async_event event{};
  event.element.port_num = 1;
  event.event_type = type;
  for (const auto& context : world().contexts)
    if (context->owner == &device) raise_asynchronous(*context, event);
  if (device.shared) raise_asynchronous(*device.shared, event);
}

void add_part(std::string& text, int count, const char* one, const char* several) {
  if (count == 0) return;
  if (!text.empty()) text += ", ";
  text += std::to_string(count) + " " + (count == 1 ? one : several);
}

}  // namespace

std::vector<DeviceOptions> default_devices() {
  DeviceOptions first;
  DeviceOptions second;
  second.name = "fake1";
  second.address = "10.9.1.1";
  return {first, second};
}

void reset(std::uint64_t seed, std::vector<DeviceOptions> devices) {
  World& all = world();
  const Lock lock(all.mutex);
  static_cast<State&>(all) = State{};
  all.engine.seed(seed);
  all.next_qp_num = 16 + static_cast<std::uint32_t>(all.random(1000));
  all.next_key = 256 + static_cast<std::uint32_t>(all.random(1000));
  all.next_port = static_cast<std::uint16_t>(32768 + all.random(10000));
  for (const DeviceOptions& options : devices)
    all.devices.push_back(make_device(options, static_cast<int>(all.devices.size())));
}

void fail_call(int n, int error) { fail_call_of("", n, error); }

void fail_call_of(const std::string& function, int n, int error) {
  const Lock lock(world().mutex);
  world().call_failures.push_back({function, n, error});
}

int calls() {
  const Lock lock(world().mutex);
  return static_cast<int>(world().calls.size());
}

std::string name_of_call(int n) {
  const Lock lock(world().mutex);
  const auto index = static_cast<std::size_t>(n) - 1;
  return index < world().calls.size() ? world().calls[index] : std::string();
}

std::vector<std::string> failed_calls() {
  const Lock lock(world().mutex);
  return world().failed;
}

void fail_completion(int n, ibv_wc_status status) {
  const Lock lock(world().mutex);
  world().completion_failures.emplace_back(world().completions + n, status);
}

void refuse_send(int n, int error) {
  const Lock lock(world().mutex);
  world().send_refusals.emplace_back(world().given_sends + n, error);
}

void fail_send(int n, ibv_wc_status status) {
  const Lock lock(world().mutex);
  world().send_failures.emplace_back(world().posted_sends.requests + n, status);
}

PostedSends posted_sends() {
  const Lock lock(world().mutex);
  return world().posted_sends;
}

int completions() {
  const Lock lock(world().mutex);
  return world().completions;
}

void cut(const std::string& name) {
  const Lock lock(world().mutex);
  Device* device = world().device_named(name);
  if (device == nullptr || device->is_cut) return;
  lose_acknowledgements(*device);
  device->is_cut = true;
  tell_contexts(*device, IBV_EVENT_PORT_ERR);
  end_waiting_connections(*device);
  settle();
}

void blackhole(const std::string& name) {
  const Lock lock(world().mutex);
  Device* device = world().device_named(name);
  if (device == nullptr || device->is_blackholed) return;
  lose_acknowledgements(*device);
  device->is_blackholed = true;
  end_waiting_connections(*device);
  settle();
}

void freeze(const std::string& name) {
  const Lock lock(world().mutex);
  if (Device* device = world().device_named(name)) device->is_frozen = true;
}

void renumber(const std::string& name) {
  const Lock lock(world().mutex);
  Device* device = world().device_named(name);
  if (device == nullptr) return;
  ++device->times_renumbered;
  tell_contexts(*device, device->options.infiniband ? IBV_EVENT_LID_CHANGE : IBV_EVENT_GID_CHANGE);
}

void tell(const std::string& name, ibv_event_type type) {
  const Lock lock(world().mutex);
  if (const Device* device = world().device_named(name)) tell_contexts(*device, type);
}

void tell_removal(const std::string& name) {
  const Lock lock(world().mutex);
  const Device* device = world().device_named(name);
  for (const auto& id : world().ids)
    if (!id->abandoned && id->device == device) push_event(*id, RDMA_CM_EVENT_DEVICE_REMOVAL);
}

void restore(const std::string& name) {
  const Lock lock(world().mutex);
  Device* device = world().device_named(name);
  if (device == nullptr) return;
  device->is_blackholed = false;
  device->is_frozen = false;
  if (device->is_cut) {
    device->is_cut = false;
    tell_contexts(*device, IBV_EVENT_PORT_ACTIVE);
  }
  settle();
}

void break_manager(const std::string& name) {
  const Lock lock(world().mutex);
  if (Device* device = world().device_named(name)) device->manager_is_broken = true;
}

void set_no_listener(NoListener answer) {
  const Lock lock(world().mutex);
  world().no_listener = answer;
}

int LiveObjects::total() const {
  return device_lists + contexts + protection_domains + memory_regions + completion_channels +
         completion_queues + queue_pairs + event_channels + ids + unacknowledged_events;
}

std::string LiveObjects::text() const {
  std::string text;
  add_part(text, device_lists, "device list", "device lists");
  add_part(text, contexts, "context", "contexts");
  add_part(text, protection_domains, "protection domain", "protection domains");
  add_part(text, memory_regions, "memory region", "memory regions");
  add_part(text, completion_channels, "completion channel", "completion channels");
  add_part(text, completion_queues, "completion queue", "completion queues");
  add_part(text, queue_pairs, "queue pair", "queue pairs");
  add_part(text, event_channels, "event channel", "event channels");
  add_part(text, ids, "id", "ids");
  add_part(text, unacknowledged_events, "unacknowledged event", "unacknowledged events");
  return text.empty() ? "nothing" : text;
}

LiveObjects live() {
  World& all = world();
  const Lock lock(all.mutex);
  LiveObjects now;
  now.device_lists = all.lists.alive();
  now.contexts = all.contexts.alive();
  now.protection_domains = all.domains.alive();
  now.memory_regions = all.regions.alive();
  now.completion_channels = all.channels.alive();
  now.completion_queues = all.cqs.alive();
  now.queue_pairs = all.qps.alive();
  now.event_channels = all.event_channels.alive();
  now.ids = all.ids.alive();
  now.unacknowledged_events = all.events.alive();
  return now;
}

std::vector<ibv_qp_attr> queue_pairs() {
  const Lock lock(world().mutex);
  std::vector<ibv_qp_attr> all;
  for (const auto& qp : world().qps) {
    if (qp->abandoned) continue;
    all.push_back(qp->attributes);
    all.back().qp_state = qp->now;
  }
  return all;
}

int receiver_not_ready() {
  const Lock lock(world().mutex);
  return world().receiver_not_ready;
}

int completion_queue_overflows() {
  const Lock lock(world().mutex);
  return world().overflows;
}

int advance(int steps) {
  const Lock lock(world().mutex);
  int made = 0;
  while (made < steps && step()) ++made;
  return made;
}

void set_misuse_handler(std::function<void(const std::string&)> handler) {
  const Lock lock(world().mutex);
  misuse_handler = std::move(handler);
}

}  // namespace allrail::fake_verbs
