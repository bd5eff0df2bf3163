// Event channels of the connection manager, and what librdmacm does as it hands out an event.
#include <cstring>

#include "tests/fake_verbs/world.hpp"

namespace allrail::fake_verbs {
namespace {

EventChannel* channel_of(rdma_event_channel* channel) {
  auto* ours = static_cast<EventChannel*>(channel);
  if (world().event_channels.holds(ours)) return ours;
  world().misuse("an event channel is used that does not exist");
  return nullptr;
}

/// `mtu`: of the end that connects, for both.
void set_ready(Qp& qp, std::uint32_t peer, const Id& id, ibv_mtu mtu) {
  qp.now = qp.state = IBV_QPS_RTS;
  qp.attributes.dest_qp_num = peer;
  qp.attributes.rnr_retry = id.rnr_retry;
  qp.attributes.path_mtu = mtu;
  qp.attributes.timeout = id.timeout;
  qp.attributes.retry_cnt = id.retry_count;
}

/// A request becomes an id of the program only now.
void make_requested_id(Event& event) {
  Id& listener = *event.owner;
  auto made = std::make_unique<Id>();
  made->channel = listener.channel;
  made->context = listener.context;
  made->ps = listener.ps;
  made->qp_type = IBV_QPT_RC;
  made->device = listener.device;
  made->verbs = &shared_context(*listener.device).context;
  made->port_num = 1;
  made->at = IdState::Requested;
  made->route.addr.src_sin = listener.route.addr.src_sin;
  event.id = made.get();
  event.listen_id = &listener;
  Id& id = world().ids.add(std::move(made));
  if (event.from == nullptr) {
    // The connecting end has gone meanwhile; the program learns so by the next event.
    id.at = IdState::Done;
    push_event(id, RDMA_CM_EVENT_REJECTED, 4);
    return;
  }
  id.other = event.from;
  id.rnr_retry = event.param.conn.rnr_retry_count;
  id.retry_count = event.param.conn.retry_count;
  id.route.addr.dst_sin = event.from->route.addr.src_sin;
  event.from->other = &id;
}

/// The reply has come: the connecting end becomes ready and says so to the other one.
void finish_connection(Event& event) {
  Id& id = *event.owner;
  auto* qp = static_cast<Qp*>(id.qp);
  Id* other = id.other;
  if (qp == nullptr || qp->now != IBV_QPS_INIT) {
    event.event = RDMA_CM_EVENT_CONNECT_ERROR;
    event.status = -1;
    id.at = IdState::Done;
    if (other == nullptr) return;
    if (other->at == IdState::Accepted) {
      other->at = IdState::Done;
      push_event(*other, RDMA_CM_EVENT_REJECTED, 28);
    }
    other->other = nullptr;
    id.other = nullptr;
    return;
  }
  event.event = RDMA_CM_EVENT_ESTABLISHED;
  set_ready(*qp, event.param.conn.qp_num, id, id.device->options.mtu);
  if (id.at == IdState::Connecting) id.at = IdState::Connected;
  if (other == nullptr || other->at != IdState::Accepted) return;
  other->at = IdState::Connected;
  push_event(*other, RDMA_CM_EVENT_ESTABLISHED);
}

void hand_out(Event& event) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) make_requested_id(event);
  if (event.response) finish_connection(event);
  Id& id = *static_cast<Id*>(event.id);
  if (event.event == RDMA_CM_EVENT_REJECTED && id.qp != nullptr) {
    to_error(*static_cast<Qp*>(id.qp));
    id.qp->state = IBV_QPS_ERR;
  }
  if (event.event == RDMA_CM_EVENT_ADDR_RESOLVED) {
    id.verbs = &shared_context(*id.device).context;
    id.port_num = 1;
  }
}

}  // namespace

Event& push_event(Id& id, rdma_cm_event_type type, int status) {
  auto event = std::make_unique<Event>();
  event->id = &id;
  event->owner = &id;
  event->event = type;
  event->status = status;
  auto& channel = static_cast<EventChannel&>(*id.channel);
  channel.bell.ring();
  return *channel.events.emplace_back(std::move(event));
}

void add_data(Event& event, const void* data, std::size_t bytes, std::size_t room) {
  event.data.assign(room, std::byte{0});
  if (bytes > 0) std::memcpy(event.data.data(), data, bytes);
  event.param.conn.private_data = event.data.data();
  event.param.conn.private_data_len = static_cast<std::uint8_t>(room);
}

void drop_events(Id& id) {
  auto& channel = static_cast<EventChannel&>(*id.channel);
  std::vector<Id*> rejected;
  const auto belongs = [&](const std::unique_ptr<Event>& event) {
    if (event->owner != &id) return false;
    if (event->from != nullptr) rejected.push_back(event->from);
    return true;
  };
  for (auto count = std::erase_if(channel.events, belongs); count > 0; --count) channel.bell.take();
  for (Id* active : rejected) reject_connection(*active, 28, nullptr, 0);
}

void connect_queue_pairs(Id& id, const Id& other) {
  set_ready(static_cast<Qp&>(*id.qp), other.qp->qp_num, id, other.device->options.mtu);
}

}  // namespace allrail::fake_verbs

using namespace allrail::fake_verbs;  // NOLINT(google-build-using-namespace): for what follows

extern "C" {

rdma_event_channel* rdma_create_event_channel() {
  const Call call("rdma_create_event_channel");
  if (call.error() != 0) return null_with(call.error());
  auto channel = std::make_unique<EventChannel>();
  channel->fd = channel->bell.descriptor();
  return &world().event_channels.add(std::move(channel));
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
  const Call call;
  EventChannel* ours = channel_of(channel);
  if (ours == nullptr) return;
  for (const auto& id : world().ids)
    if (id->channel == channel && !id->abandoned)
      return world().misuse("an event channel is destroyed that an id still uses");
  for (const auto& event : world().events)
    if (event->owner != nullptr && event->owner->channel == channel && !event->owner->abandoned)
      world().misuse("an event channel is destroyed with unacknowledged events");
  // Ids whose release was made to fail have nothing to say any more.
  for (const auto& id : world().ids)
    if (id->channel == channel) id->channel = nullptr;
  world().event_channels.remove(ours);
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  Call call;
  EventChannel* ours = channel_of(channel);
  if (ours == nullptr) return minus_one(EINVAL);
  while (ours->events.empty()) {
    if (ours->bell.nonblocking()) return minus_one(EAGAIN);
    call.wait_for(ours->bell);
  }
  call.count("rdma_get_cm_event");
  if (call.error() != 0) return minus_one(call.error());
  std::unique_ptr<Event> got = std::move(ours->events.front());
  ours->events.pop_front();
  ours->bell.take();
  Id& listener = *got->owner;
  if (got->event == RDMA_CM_EVENT_CONNECT_REQUEST) ++listener.backlog;
  hand_out(*got);
  ++got->owner->unacknowledged;
  *event = &world().events.add(std::move(got));
  settle();
  return 0;
}

int rdma_ack_cm_event(rdma_cm_event* event) {
  const Call call;
  auto* ours = static_cast<Event*>(event);
  if (event == nullptr || !world().events.holds(ours)) {
    world().misuse("an event of the connection manager is acknowledged twice");
    return minus_one(EINVAL);
  }
  if (ours->owner != nullptr) --ours->owner->unacknowledged;
  world().events.remove(ours);
  return 0;
}

}  // extern "C"
