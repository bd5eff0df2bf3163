// The connection manager: ids, their addresses and options, and which device they lead to.
#include <arpa/inet.h>

#include "tests/fake_verbs/world.hpp"

namespace allrail::fake_verbs {
namespace {

std::uint16_t port_of(const sockaddr_in& address) { return ntohs(address.sin_port); }

bool port_taken(const Device& device, std::uint16_t port) {
  return std::any_of(world().ids.begin(), world().ids.end(), [&](const auto& id) {
    return !id->abandoned && id->device == &device && port_of(id->route.addr.src_sin) == port &&
           id->at != IdState::Requested;
  });
}

/// 0, or the errno.
int bind_id(Id& id, const sockaddr_in& wanted) {
  if (wanted.sin_family != AF_INET) return EAFNOSUPPORT;
  Device* device = world().device_of(wanted.sin_addr.s_addr);
  if (device == nullptr) return EADDRNOTAVAIL;
  std::uint16_t port = port_of(wanted);
  if (port != 0 && port_taken(*device, port)) return EADDRINUSE;
  while (port == 0 || port_taken(*device, port)) port = ++world().next_port;
  id.device = device;
  id.verbs = &shared_context(*device).context;
  id.port_num = 1;
  id.route.addr.src_sin = wanted;
  id.route.addr.src_sin.sin_port = htons(port);
  return 0;
}

bool same_subnet(std::uint32_t a, std::uint32_t b) { return ((a ^ b) & htonl(0xffffff00)) == 0; }

/// The device that would send to `address`: of its subnet, else the first.
Device* route_to(std::uint32_t address) {
  const auto& devices = world().devices;
  for (const auto& device : devices)
    if (same_subnet(device->address, address)) return device.get();
  return devices.empty() ? nullptr : devices.front().get();
}

}  // namespace
}  // namespace allrail::fake_verbs

using namespace allrail::fake_verbs;  // NOLINT(google-build-using-namespace): for what follows

extern "C" {

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* user_context,
                   rdma_port_space space) {
  const Call call("rdma_create_id");
  if (call.error() != 0) return minus_one(call.error());
  if (!world().event_channels.holds(static_cast<EventChannel*>(channel)) || space != RDMA_PS_TCP) {
    world().misuse("an id is made without an event channel, or of another port space than TCP");
    return minus_one(EINVAL);
  }
  auto made = std::make_unique<Id>();
  made->channel = channel;
  made->context = user_context;
  made->ps = space;
  made->qp_type = IBV_QPT_RC;
  *id = &world().ids.add(std::move(made));
  return 0;
}

int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  const Call call("rdma_bind_addr");
  if (call.error() != 0) return minus_one(call.error());
  Id* ours = id_of(id);
  if (ours == nullptr || ours->at != IdState::Idle) return minus_one(EINVAL);
  const int error = bind_id(*ours, *reinterpret_cast<sockaddr_in*>(address));
  if (error != 0) return minus_one(error);
  ours->at = IdState::Bound;
  return 0;
}

int rdma_listen(rdma_cm_id* id, int backlog) {
  const Call call("rdma_listen");
  if (call.error() != 0) return minus_one(call.error());
  Id* ours = id_of(id);
  if (ours == nullptr || ours->at != IdState::Bound) return minus_one(EINVAL);
  ours->at = IdState::Listening;
  ours->backlog = backlog > 0 ? backlog : 1024;
  return 0;
}

int rdma_resolve_addr(rdma_cm_id* id, sockaddr* from, sockaddr* to, int) {
  const Call call("rdma_resolve_addr");
  if (call.error() != 0) return minus_one(call.error());
  Id* ours = id_of(id);
  const auto* there = reinterpret_cast<const sockaddr_in*>(to);
  if (ours == nullptr || (ours->at != IdState::Idle && ours->at != IdState::Bound))
    return minus_one(EINVAL);
  if (there->sin_family != AF_INET) return minus_one(EAFNOSUPPORT);
  if (ours->at == IdState::Idle) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    const Device* device = route_to(there->sin_addr.s_addr);
    if (device == nullptr) return minus_one(ENODEV);
    here.sin_addr.s_addr = device->address;
    if (from != nullptr) here = *reinterpret_cast<const sockaddr_in*>(from);
    const int error = bind_id(*ours, here);
    if (error != 0) return minus_one(error);
  }
  ours->route.addr.dst_sin = *there;
  if (ours->device->is_cut) {
    push_event(*ours, RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH);
    return 0;
  }
  const bool neighbour = same_subnet(ours->device->address, there->sin_addr.s_addr);
  if (neighbour && world().device_of(there->sin_addr.s_addr) == nullptr) {
    push_event(*ours, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
    return 0;
  }
  ours->at = IdState::AddressResolved;
  push_event(*ours, RDMA_CM_EVENT_ADDR_RESOLVED);
  return 0;
}

int rdma_resolve_route(rdma_cm_id* id, int) {
  const Call call("rdma_resolve_route");
  if (call.error() != 0) return minus_one(call.error());
  Id* ours = id_of(id);
  if (ours == nullptr || ours->at != IdState::AddressResolved) return minus_one(EINVAL);
  ours->at = IdState::RouteResolved;
  push_event(*ours, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return 0;
}

int rdma_set_option(rdma_cm_id* id, int level, int option, void* value, std::size_t bytes) {
  const Call call("rdma_set_option");
  if (call.error() != 0) return minus_one(call.error());
  if (id_of(id) == nullptr || level != RDMA_OPTION_ID || value == nullptr) return minus_one(EINVAL);
  const bool is_int = option == RDMA_OPTION_ID_REUSEADDR || option == RDMA_OPTION_ID_AFONLY;
  const bool is_byte = option == RDMA_OPTION_ID_TOS || option == RDMA_OPTION_ID_ACK_TIMEOUT;
  if (!is_int && !is_byte) return minus_one(ENOSYS);
  if (bytes != (is_int ? sizeof(int) : 1)) return minus_one(EINVAL);
  if (option == RDMA_OPTION_ID_ACK_TIMEOUT) id_of(id)->timeout = *static_cast<std::uint8_t*>(value);
  return 0;
}

__be16 rdma_get_src_port(rdma_cm_id* id) { return id->route.addr.src_sin.sin_port; }
__be16 rdma_get_dst_port(rdma_cm_id* id) { return id->route.addr.dst_sin.sin_port; }

ibv_context** rdma_get_devices(int* count) {
  const Call call("rdma_get_devices");
  if (call.error() != 0) return null_with(call.error());
  const auto& devices = world().devices;
  auto** contexts = new ibv_context*[devices.size() + 1]();
  for (std::size_t i = 0; i < devices.size(); ++i)
    contexts[i] = &shared_context(*devices[i]).context;
  if (count != nullptr) *count = static_cast<int>(devices.size());
  return contexts;
}

void rdma_free_devices(ibv_context** contexts) { delete[] contexts; }

}  // extern "C"
