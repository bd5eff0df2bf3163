// How librdmacm makes and ends the links of a verbs rail.
//
// The lower rank connects: resolve the address, resolve the route, make the queue pair, post its
// receives, ask. The higher one makes its own queue pair and receives before it accepts, so that
// both can be written to as soon as either knows of the connection.
#include <algorithm>
#include <cstring>

#include <netinet/in.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "transport/verbs/queue_pair.hpp"
#include "transport/verbs/verbs_rail_state.hpp"

namespace allrail::transport::verbs {
namespace {

constexpr int kBacklog = 128;
constexpr int kResolveTimeoutMs = 2'000;

sockaddr_storage system_address(const Endpoint& endpoint) {
  sockaddr_storage storage{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
  storage.ss_family = endpoint.is_ipv6 ? AF_INET6 : AF_INET;
  // The port lies at the same place in both families.
  v4.sin_port = htons(endpoint.port);
  if (endpoint.is_ipv6) {
    std::memcpy(&v6.sin6_addr, endpoint.address.data(), 16);
  } else {
    std::memcpy(&v4.sin_addr, endpoint.address.data(), 4);
  }
  return storage;
}

rdma_conn_param connection_parameters(const HelloBytes& hello) {
  rdma_conn_param parameters{};
  parameters.private_data = hello.data();
  parameters.private_data_len = static_cast<std::uint8_t>(hello.size());
  parameters.retry_count = kRetries;
  parameters.rnr_retry_count = kReceiverNotReadyRetries;
  return parameters;
}

void set_timeout(rdma_cm_id& id, std::uint8_t timeout) {
  // An older kernel keeps its own choice, which is longer.
  (void)rdma_set_option(&id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
}

std::string event_text(const ConnectionEvent& event) {
  const char* const what = rdma_event_str(event.type);
  if (event.status == 0) return what;
  return fmt::format(
      "{} ({})", what,
      event.status < 0 ? base::errno_text(-event.status) : fmt::format("status {}", event.status));
}

}  // namespace

void VerbsRail::listen() {
  const std::optional<Endpoint> own = parse_address(options_.address);
  if (!own) {
    base::fail(Code::BadConfiguration, "rail {}: '{}' is no IP address", name(), options_.address);
  }
  events_ = check_pointer(rdma_create_event_channel(), name(), "make a connection event channel");
  make_nonblocking(events_->fd, name());
  rdma_cm_id* id = nullptr;
  check_minus_one(rdma_create_id(events_.get(), &id, nullptr, RDMA_PS_TCP), name(),
                  "make a listener");
  listener_.reset(id);
  sockaddr_storage address = system_address(*own);
  if (rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)) != 0 || id->verbs == nullptr) {
    base::fail(Code::BadConfiguration,
               "rail {}: its address {} belongs to no RDMA port of this host ({}); name another "
               "port in ALLRAIL_RAILS or another of its addresses by ALLRAIL_GID_INDEX, of those "
               "that allrail-info lists, or set ALLRAIL_CONNECT=direct",
               name(), options_.address, base::errno_text(errno));
  }
  check_minus_one(rdma_listen(id, kBacklog), name(), "listen for connections");
  port_ = id->port_num;
  watch(events_->fd);
}

bool VerbsRail::take_connection_events(RailEvents& events) {
  bool any = false;
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(events_.get(), &event) == 0) {
    ConnectionEvent copy;
    copy.type = event->event;
    copy.id = event->id;
    copy.status = event->status;
    if (event->param.conn.private_data != nullptr &&
        (copy.type == RDMA_CM_EVENT_CONNECT_REQUEST || copy.type == RDMA_CM_EVENT_ESTABLISHED ||
         copy.type == RDMA_CM_EVENT_REJECTED)) {
      copy.data_bytes = std::min<std::size_t>(event->param.conn.private_data_len, copy.data.size());
      std::memcpy(copy.data.data(), event->param.conn.private_data, copy.data_bytes);
    }
    // An id can only be destroyed once its events are acknowledged.
    (void)rdma_ack_cm_event(event);
    on_connection_event(copy, events);
    any = true;
  }
  return any;
}

void VerbsRail::on_connection_event(const ConnectionEvent& event, RailEvents& events) {
  if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(event, events);
  if (event.id == listener_.get()) {
    if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
      device_failed_ = true;
      take_all_down("its device was removed", events);
    }
    return;
  }
  Link& link = *static_cast<Link*>(event.id->context);
  if (link.early.get() == event.id) {
    // The peer gave up before it was wanted here.
    link.early.reset();
    return;
  }
  if (link.id.get() != event.id) return;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return on_address(link, events);
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return on_route(link, events);
    case RDMA_CM_EVENT_ESTABLISHED:
      return on_established(link, event, events);
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return;
    default:
      return on_ended(link, event, events);
  }
}

void VerbsRail::on_request(const ConnectionEvent& event, RailEvents& events) {
  ConnectionId id(event.id);
  const auto hello =
      decode({event.data.data(), event.data_bytes}, context_of(options_.rank, index()), {});
  // The lower rank connects; a higher one that does is confused, and is not listened to.
  if (!hello || hello->rank < 0 || hello->rank >= options_.rank || hello->rail >= kMaxRails) {
    base::log_debug("rail {}: refused a connection that is not of this job", name());
    (void)rdma_reject(id.get(), nullptr, 0);
    return;
  }
  if (const Link* known = find(hello->rank);
      hello->probes && (known == nullptr || !known->wanted)) {
    return reject_probe(*id, *hello, event.data);
  }
  Link& link = link_of(hello->rank);
  if (link.early_offered) drop_early_side(link);
  link.early = std::move(id);
  link.early->context = &link;
  link.early_hello = *hello;
  std::ranges::copy(event.data, link.request.begin());
  make_way(link, events);
}

/// The peer learns that it has found this rail, and asks again without haste.
void VerbsRail::reject_probe(rdma_cm_id& id, const Hello& hello,
                             std::span<const std::byte> request) const {
  Hello answer;
  answer.rank = options_.rank;
  answer.rail = static_cast<std::uint8_t>(index());
  const HelloBytes bytes = encode(answer, context_of(hello.rank, index()), request);
  (void)rdma_reject(&id, bytes.data(), static_cast<std::uint8_t>(bytes.size()));
}

/// What the wanted peer said to our request; nothing if it does not prove who it is.
std::optional<Hello> VerbsRail::answer_of(const Link& link, const ConnectionEvent& event) const {
  const auto hello = decode({event.data.data(), event.data_bytes},
                            context_of(options_.rank, link.remote.rail), link.request);
  const bool fits = hello && hello->rank == link.peer && hello->rail == link.remote.rail;
  return fits ? hello : std::nullopt;
}

void VerbsRail::start_resolving(Link& link, std::int64_t now_ns, RailEvents& events) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(events_.get(), &id, &link, RDMA_PS_TCP) != 0) {
    return connecting_failed(link, base::errno_text(errno), events);
  }
  link.id.reset(id);
  link.state = Link::State::Resolving;
  link.next_try_ns = now_ns + (link.answered ? connect_timeout_ns() : kProbeLimitNs);
  sockaddr_storage from{};
  const sockaddr* const own = rdma_get_local_addr(listener_.get());
  std::memcpy(&from, own, own->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  reinterpret_cast<sockaddr_in&>(from).sin_port = 0;
  sockaddr_storage to = system_address(*link.remote.manager);
  if (rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&from), reinterpret_cast<sockaddr*>(&to),
                        kResolveTimeoutMs) != 0) {
    connecting_failed(link, base::errno_text(errno), events);
  }
}

void VerbsRail::on_address(Link& link, RailEvents& events) {
  if (link.id->verbs != listener_->verbs) {
    return connecting_failed(link, "its route leaves by another device", events);
  }
  set_timeout(*link.id, timeout_of(link));
  if (rdma_resolve_route(link.id.get(), kResolveTimeoutMs) != 0) {
    connecting_failed(link, base::errno_text(errno), events);
  }
}

void VerbsRail::on_route(Link& link, RailEvents& events) {
  link.request = encode(my_hello(link), context_of(link.peer, link.remote.rail), {});
  rdma_conn_param parameters = connection_parameters(link.request);
  if (!make_managed_pair(link, *link.id) || rdma_connect(link.id.get(), &parameters) != 0) {
    return connecting_failed(link, base::errno_text(errno), events);
  }
  link.state = Link::State::Connecting;
}

void VerbsRail::accept(Link& link, ConnectionId id, RailEvents& events) {
  link.id = std::move(id);
  link.theirs = link.early_hello;
  link.next_try_ns = base::now_ns() + connect_timeout_ns();
  const HelloBytes answer = encode(my_hello(link), context_of(link.peer, index()), link.request);
  rdma_conn_param parameters = connection_parameters(answer);
  set_timeout(*link.id, timeout_of(link));
  if (!make_managed_pair(link, *link.id) || rdma_accept(link.id.get(), &parameters) != 0) {
    return connecting_failed(link, base::errno_text(errno), events);
  }
  link.state = Link::State::Accepting;
}

void VerbsRail::on_established(Link& link, const ConnectionEvent& event, RailEvents& events) {
  if (link.state == Link::State::Accepting) return go_up(link, events);
  if (link.state != Link::State::Connecting) return;
  const auto hello = answer_of(link, event);
  if (!hello) {
    return connecting_failed(link, "its answer does not prove that it is of this job", events);
  }
  link.theirs = *hello;
  go_up(link, events);
}

void VerbsRail::on_ended(Link& link, const ConnectionEvent& event, RailEvents& events) {
  const bool is_answer = link.state == Link::State::Connecting && !link.answered &&
                         event.type == RDMA_CM_EVENT_REJECTED && answer_of(link, event);
  if (is_answer) {
    dismantle(link, &events);
    link.answered = true;
    link.state = Link::State::Waiting;
    link.next_try_ns = 0;
    return events.link_answered(index(), link.peer);
  }
  if (link.state == Link::State::Up) {
    take_down(link,
              event.type == RDMA_CM_EVENT_DISCONNECTED ? "the peer closed the connection"
                                                       : event_text(event),
              events);
  } else {
    connecting_failed(link, event_text(event), events);
  }
}

bool VerbsRail::make_managed_pair(Link& link, rdma_cm_id& id) {
  return make_queue_pair(link, [&](ibv_qp_init_attr& wanted) {
    return rdma_create_qp(&id, domain_.get(), &wanted) == 0 ? id.qp : nullptr;
  });
}

}  // namespace allrail::transport::verbs
