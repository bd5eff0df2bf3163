// The connection manager: ids, addresses, and the handshakes between two ids of this process.
#include <arpa/inet.h>

#include "tests/fake_verbs/world.hpp"

namespace allrail::fake_verbs {
namespace {

constexpr int kConsumerRejected = 28;  // IB_CM_REJ_CONSUMER_DEFINED
constexpr int kInvalidService = 8;     // IB_CM_REJ_INVALID_SERVICE_ID
constexpr int kTimedOut = -ETIMEDOUT;

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

Id* listener_at(const sockaddr_in& address) {
  for (const auto& id : world().ids)
    if (!id->abandoned && id->at == IdState::Listening &&
        id->route.addr.src_sin.sin_addr.s_addr == address.sin_addr.s_addr &&
        id->route.addr.src_sin.sin_port == address.sin_port)
      return id.get();
  return nullptr;
}

/// A message of the connection manager from one device to the other. Whether it arrives.
bool sends(Device* from, Device* to) {
  if (from != nullptr && from->is_cut && from->options.manager_breaks)
    from->manager_is_broken = true;
  return path_open(from, to) && !from->manager_is_broken && !to->manager_is_broken;
}

void end_connection(Id& id, rdma_cm_event_type type, int status) {
  id.at = IdState::Done;
  push_event(id, type, status);
}

void say_disconnected(Id& id) {
  end_connection(id, RDMA_CM_EVENT_DISCONNECTED, 0);
  push_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

bool is_open(const Id& id) {
  return id.at == IdState::Connected || id.at == IdState::Accepted || id.at == IdState::Connecting;
}

void unlink_ids(Id& id) {
  if (id.other != nullptr && id.other->other == &id) id.other->other = nullptr;
  id.other = nullptr;
  for (const auto& channel : world().event_channels)
    for (const auto& event : channel->events)
      if (event->from == &id) event->from = nullptr;
}

/// What the other end learns when an id is destroyed as it is.
void tell_other_of_end(Id& id) {
  Id* other = id.other;
  const bool speaks =
      id.at >= IdState::Connecting && id.at != IdState::Disconnecting && id.at != IdState::Done;
  if (other == nullptr || !speaks) return;
  const bool heard = sends(id.device, other->device);
  if (id.at == IdState::Requested) {
    if (heard) reject_connection(*other, kConsumerRejected, nullptr, 0);
  } else if (id.at == IdState::Connecting) {
    if (heard && (other->at == IdState::Requested || other->at == IdState::Accepted))
      end_connection(*other, RDMA_CM_EVENT_REJECTED, 4);
  } else if (id.at == IdState::Connected || id.at == IdState::Accepted) {
    if (!heard || !is_open(*other)) return;
    other->at = IdState::Asked;
    push_event(*other, RDMA_CM_EVENT_DISCONNECTED);
  } else if (id.at == IdState::Asked && other->at == IdState::Disconnecting) {
    say_disconnected(*other);
  }
}

void request_connection(Id& id, const rdma_conn_param& wanted) {
  Device* there = world().device_of(id.route.addr.dst_sin.sin_addr.s_addr);
  id.at = IdState::Connecting;
  id.retry_count = wanted.retry_count;
  if (!sends(id.device, there)) {
    // The kernel says so after minutes, which counts as never where only the manager is broken.
    if (!path_open(id.device, there)) end_connection(id, RDMA_CM_EVENT_UNREACHABLE, kTimedOut);
    return;
  }
  Id* listener = listener_at(id.route.addr.dst_sin);
  if (listener == nullptr && world().no_listener == NoListener::Unreachable)
    return end_connection(id, RDMA_CM_EVENT_UNREACHABLE, kTimedOut);
  if (listener == nullptr) return reject_connection(id, kInvalidService, nullptr, 0);
  if (listener->backlog == 0) return reject_connection(id, kConsumerRejected, nullptr, 0);
  --listener->backlog;
  Event& event = push_event(*listener, RDMA_CM_EVENT_CONNECT_REQUEST);
  event.from = &id;
  event.param.conn = wanted;
  event.param.conn.qp_num = id.qp->qp_num;
  add_data(event, wanted.private_data, wanted.private_data_len, kRequestDataBytes);
}

}  // namespace

Id* id_of(rdma_cm_id* id) {
  auto* ours = static_cast<Id*>(id);
  if (world().ids.holds(ours)) return ours;
  world().misuse("an id is used that does not exist");
  return nullptr;
}

void reject_connection(Id& active, int status, const void* data, std::size_t bytes) {
  active.at = IdState::Done;
  Event& event = push_event(active, RDMA_CM_EVENT_REJECTED, status);
  add_data(event, data, bytes, kRejectDataBytes);
}

void end_waiting_connections(const Device& device) {
  for (const auto& id : world().ids) {
    if (id->abandoned || id->device == nullptr) continue;
    const Device* there = world().device_of(id->route.addr.dst_sin.sin_addr.s_addr);
    if (id->device != &device && there != &device) continue;
    if (id->at == IdState::Disconnecting) say_disconnected(*id);
    const bool answered = id->other != nullptr && id->other->at == IdState::Accepted;
    if (id->at == IdState::Connecting && !answered)
      end_connection(*id, RDMA_CM_EVENT_UNREACHABLE, kTimedOut);
  }
}

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

int rdma_destroy_id(rdma_cm_id* id) {
  const Call call("rdma_destroy_id");
  Id* ours = id_of(id);
  if (ours == nullptr) return minus_one(EINVAL);
  if (ours->unacknowledged != 0) {
    world().misuse("an id is destroyed with unacknowledged events: this hangs");
    for (const auto& event : world().events)
      if (event->owner == ours) event->owner = nullptr;
  }
  if (ours->qp != nullptr && !static_cast<Qp*>(ours->qp)->abandoned)
    world().misuse("an id is destroyed before its queue pair");
  tell_other_of_end(*ours);
  if (ours->channel != nullptr) drop_events(*ours);
  unlink_ids(*ours);
  if (call.error() != 0) {
    ours->abandoned = true;
    ours->at = IdState::Done;
    return minus_one(call.error());
  }
  world().ids.remove(ours);
  settle();
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

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* wanted) {
  const Call call("rdma_create_qp");
  if (call.error() != 0) return minus_one(call.error());
  Id* ours = id_of(id);
  if (ours == nullptr || ours->qp != nullptr || pd == nullptr || ours->verbs != pd->context)
    return minus_one(EINVAL);
  Qp* qp = nullptr;
  const int error = create_queue_pair(qp, pd, *wanted);
  if (error != 0) return minus_one(error);
  qp->now = qp->state = IBV_QPS_INIT;
  qp->attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  qp->attributes.port_num = 1;
  ours->qp = qp;
  ours->pd = pd;
  ours->send_cq = wanted->send_cq;
  ours->recv_cq = wanted->recv_cq;
  return 0;
}

void rdma_destroy_qp(rdma_cm_id* id) {
  const Call call;
  Id* ours = id_of(id);
  if (ours == nullptr) return;
  if (ours->qp == nullptr) return world().misuse("an id has no queue pair to destroy");
  remove_queue_pair(static_cast<Qp&>(*ours->qp));
  ours->qp = nullptr;
  settle();
}

int rdma_connect(rdma_cm_id* id, rdma_conn_param* wanted) {
  const Call call("rdma_connect");
  if (call.error() != 0) return minus_one(call.error());
  Id* ours = id_of(id);
  if (ours == nullptr || ours->at != IdState::RouteResolved || ours->qp == nullptr ||
      wanted == nullptr || wanted->private_data_len > kRequestDataBytes)
    return minus_one(EINVAL);
  request_connection(*ours, *wanted);
  return 0;
}

int rdma_accept(rdma_cm_id* id, rdma_conn_param* wanted) {
  const Call call("rdma_accept");
  if (call.error() != 0) return minus_one(call.error());
  Id* ours = id_of(id);
  if (ours == nullptr || ours->at != IdState::Requested || ours->qp == nullptr ||
      wanted == nullptr || wanted->private_data_len > kReplyDataBytes)
    return minus_one(EINVAL);
  Id* active = ours->other;
  Device* there = world().device_of(ours->route.addr.dst_sin.sin_addr.s_addr);
  const bool waiting = active != nullptr && active->at == IdState::Connecting;
  if (!sends(ours->device, there)) {
    // Both ends wait for a message that was lost.
    if (waiting) end_connection(*active, RDMA_CM_EVENT_UNREACHABLE, kTimedOut);
    end_connection(*ours, RDMA_CM_EVENT_UNREACHABLE, kTimedOut);
    return 0;
  }
  if (!waiting || active->qp == nullptr) return minus_one(EINVAL);
  ours->at = IdState::Accepted;
  connect_queue_pairs(*ours, *active);
  active->rnr_retry = wanted->rnr_retry_count;
  Event& event = push_event(*active, RDMA_CM_EVENT_CONNECT_RESPONSE);
  event.response = true;
  event.param.conn = *wanted;
  event.param.conn.qp_num = ours->qp->qp_num;
  add_data(event, wanted->private_data, wanted->private_data_len, kReplyDataBytes);
  settle();
  return 0;
}

int rdma_reject(rdma_cm_id* id, const void* data, std::uint8_t bytes) {
  const Call call("rdma_reject");
  if (call.error() != 0) return minus_one(call.error());
  Id* ours = id_of(id);
  if (ours == nullptr || ours->at != IdState::Requested || bytes > kRejectDataBytes)
    return minus_one(EINVAL);
  ours->at = IdState::Done;
  Id* active = ours->other;
  if (active == nullptr || active->at != IdState::Connecting) return 0;
  if (sends(ours->device, active->device))
    reject_connection(*active, kConsumerRejected, data, bytes);
  else
    end_connection(*active, RDMA_CM_EVENT_UNREACHABLE, kTimedOut);
  return 0;
}

int rdma_disconnect(rdma_cm_id* id) {
  const Call call("rdma_disconnect");
  if (call.error() != 0) return minus_one(call.error());
  Id* ours = id_of(id);
  if (ours == nullptr) return minus_one(EINVAL);
  if (ours->qp != nullptr && ours->at >= IdState::Accepted) {
    to_error(static_cast<Qp&>(*ours->qp));
    ours->qp->state = IBV_QPS_ERR;
  }
  Id* other = ours->other;
  const bool speaks =
      ours->at == IdState::Connected || ours->at == IdState::Accepted || ours->at == IdState::Asked;
  const bool heard = other != nullptr && speaks && sends(ours->device, other->device);
  if (ours->at == IdState::Connected || ours->at == IdState::Accepted) {
    ours->at = IdState::Disconnecting;
    if (!heard || !is_open(*other)) {
      say_disconnected(*ours);  // The request has timed out.
    } else {
      other->at = IdState::Asked;
      push_event(*other, RDMA_CM_EVENT_DISCONNECTED);
    }
  } else if (ours->at == IdState::Asked) {
    ours->at = IdState::Done;
    push_event(*ours, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    if (heard && other->at == IdState::Disconnecting) say_disconnected(*other);
  } else if (ours->at < IdState::Connecting) {
    return minus_one(EINVAL);
  }
  settle();
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
