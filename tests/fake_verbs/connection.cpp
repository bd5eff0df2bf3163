// The connection manager: queue pairs of ids, and the handshakes between two ids of this process.
#include <arpa/inet.h>

#include "tests/fake_verbs/world.hpp"

namespace allrail::fake_verbs {
namespace {

constexpr int kConsumerRejected = 28;  // IB_CM_REJ_CONSUMER_DEFINED
constexpr int kInvalidService = 8;     // IB_CM_REJ_INVALID_SERVICE_ID
constexpr int kTimedOut = -ETIMEDOUT;

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

}  // extern "C"
