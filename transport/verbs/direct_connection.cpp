// How links of a verbs rail are made and ended without librdmacm: the two ends tell each other's
// queue pair over a side channel and move their own through its states themselves.
//
// The lower rank connects: it opens the side channel, makes its queue pair, posts its receives and
// sends its offer. The higher one makes its own ready, receives and all, before it answers with
// its offer; then the lower one makes its own ready, and writes its first credit word, which is
// zero. Once that has arrived there is a way through the network, and the lower one says in one
// byte that the link stands.
#include <algorithm>

#include <sodium.h>
#include <sys/epoll.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "transport/verbs/queue_pair.hpp"
#include "transport/verbs/verbs_rail_state.hpp"

namespace allrail::transport::verbs {
namespace {

constexpr std::byte kReadyWord{1};
constexpr std::uint32_t kMask24Bits = 0xff'ffff;

}  // namespace

void VerbsRail::listen_for_side_channels() {
  const HandshakeIdentity identity{options_.secret, options_.job_hash, options_.rank,
                                   options_.size,   options_.index,    Purpose::SideChannel};
  for (const std::string& text : options_.side_addresses) {
    if (acceptors_.size() == kMaxSideAddresses) break;
    const std::optional<Endpoint> local = parse_address(text);
    if (!local) base::fail(Code::BadConfiguration, "rail {}: '{}' is no IP address", name(), text);
    acceptors_.push_back(std::make_unique<Acceptor>(*local, identity));
    watch(acceptors_.back()->event_descriptor());
  }
}

bool VerbsRail::watch_side(const SideChannel& side, bool is_new) {
  epoll_event event{};
  event.events = side.wants_write() ? EPOLLOUT : EPOLLIN;
  event.data.fd = side.descriptor();
  return ::epoll_ctl(epoll_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, side.descriptor(),
                     &event) == 0;
}

/// Deadlines of handshakes pass without an event.
bool VerbsRail::take_pending_strangers(RailEvents& events) {
  bool any = false;
  for (const auto& acceptor : acceptors_) {
    if (acceptor->needs_poll()) any |= take_accepted(*acceptor, events);
  }
  return any;
}

bool VerbsRail::take_side_event(int descriptor, RailEvents& events) {
  for (const auto& acceptor : acceptors_) {
    if (descriptor == acceptor->event_descriptor()) return take_accepted(*acceptor, events);
  }
  // A link may have changed since the event: every step is right for any state.
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_.at(i);
    if (link.side && link.side.descriptor() == descriptor) {
      advance_side(link, events);
      return true;
    }
    if (link.early_side && link.early_side.descriptor() == descriptor) {
      advance_early(link, events);
      return true;
    }
  }
  return false;
}

bool VerbsRail::take_accepted(Acceptor& acceptor, RailEvents& events) {
  bool any = false;
  while (std::optional<AcceptedConnection> accepted = acceptor.poll()) {
    // The lower rank connects; a higher one that does is confused, and is not listened to.
    if (accepted->peer_rank >= options_.rank) continue;
    Link& link = link_of(accepted->peer_rank);
    link.early_side = SideChannel(std::move(accepted->fd));
    link.early_offered = false;
    if (!watch_side(link.early_side, true)) link.early_side = SideChannel();
    if (link.early_side) advance_early(link, events);
    any = true;
  }
  return any;
}

void VerbsRail::start_side_channel(Link& link, std::int64_t now_ns, RailEvents& events) {
  const auto& addresses = link.remote.side_channel;
  const Endpoint& to = addresses[link.tries % addresses.size()];
  const HandshakeIdentity identity{options_.secret, options_.job_hash, options_.rank,
                                   options_.size,   link.remote.rail,  Purpose::SideChannel};
  link.state = Link::State::Resolving;
  link.next_try_ns = now_ns + kProbeLimitNs;
  if (!link.side.start(to, identity, link.peer)) {
    return connecting_failed(link, link.side.reason(), events);
  }
  if (!watch_side(link.side, true)) connecting_failed(link, base::errno_text(errno), events);
}

void VerbsRail::advance_side(Link& link, RailEvents& events) {
  switch (link.state) {
    case Link::State::Resolving:
      return prove_side(link, events);
    case Link::State::Connecting:
      return take_answer(link, events);
    case Link::State::Accepting:
      return take_ready_word(link, events);
    case Link::State::Up:
      return watch_for_end(link, events);
    case Link::State::Idle:
    case Link::State::Waiting:
      return;
  }
}

void VerbsRail::prove_side(Link& link, RailEvents& events) {
  const bool was_connected = link.side.is_connected();
  const SideChannel::Step step = link.side.prove();
  if (step == SideChannel::Step::Failed) {
    const auto& addresses = link.remote.side_channel;
    const Endpoint& to = addresses[link.tries % addresses.size()];
    return connecting_failed(link, fmt::format("{}: {}", to.text(), link.side.reason()), events);
  }
  if (!was_connected && link.side.is_connected()) {
    // Somebody listens there. When the peer looks is its own affair.
    link.next_try_ns = base::now_ns() + connect_timeout_ns();
  }
  if (!watch_side(link.side, false)) {
    return connecting_failed(link, base::errno_text(errno), events);
  }
  if (step == SideChannel::Step::Again) return;
  // The peer's rail has proved who it is, whether it wants the link yet or not.
  link.answered = true;
  // It listens on another network. Who found out that nothing gets through has no pair that
  // answers.
  if (!link.path_failed.test(link.remote.rail)) events.link_answered(index(), link.peer);
  if (!make_direct_pair(link)) return connecting_failed(link, base::errno_text(errno), events);
  link.offer = encode({my_hello(link), link.my_path}, context_of(link.peer, link.remote.rail), {});
  if (!link.side.send(link.offer)) return connecting_failed(link, link.side.reason(), events);
  link.state = Link::State::Connecting;
}

void VerbsRail::take_answer(Link& link, RailEvents& events) {
  const SideChannel::Step step = link.side.receive(link.inbox);
  if (step == SideChannel::Step::Again) return;
  if (step == SideChannel::Step::Failed) {
    // It keeps the offer until it wants the link, so it has come, and cannot reach us.
    link.proves_path = link.side.ended_by_peer();
    return connecting_failed(link, link.side.reason(), events);
  }
  const auto answer =
      decode_offer(link.inbox, context_of(options_.rank, link.remote.rail), link.offer);
  if (!answer || answer->hello.rank != link.peer || answer->hello.rail != link.remote.rail) {
    return connecting_failed(link, "its answer does not prove that it is of this job", events);
  }
  link.theirs = answer->hello;
  // The side channel says nothing about the network that the link uses. On Ethernet the kernel asks
  // there for the peer first.
  link.proves_path = true;
  link.next_try_ns = base::now_ns() + connect_timeout_ns();
  if (!make_ready(link, answer->path)) {
    return connecting_failed(link, base::errno_text(errno), events);
  }
  post_credit(link);
}

void VerbsRail::path_proved(Link& link, RailEvents& events) {
  if (!link.side.send(std::span(&kReadyWord, 1))) {
    return connecting_failed(link, link.side.reason(), events);
  }
  go_up(link, events);
}

void VerbsRail::drop_early_side(Link& link) {
  link.early_side = SideChannel();
  link.early_offered = false;
}

void VerbsRail::advance_early(Link& link, RailEvents& events) {
  // Once the offer is there, only the end of the channel can come.
  const SideChannel::Step step = link.early_side.receive(link.early_inbox);
  if (step == SideChannel::Step::Again) return;
  if (step == SideChannel::Step::Failed || link.early_offered) return drop_early_side(link);
  const auto offer = decode_offer(link.early_inbox, context_of(options_.rank, index()), {});
  if (!offer || offer->hello.rank != link.peer || offer->hello.rail >= kMaxRails) {
    base::log_debug("rail {}: refused a connection that is not of this job", name());
    return drop_early_side(link);
  }
  // One rail of the peer at a time asks: it has given up what another one asked for before.
  let_go(std::move(link.early));
  link.early_offer = *offer;
  link.offer = link.early_inbox;
  link.early_offered = true;
  make_way(link, events);
}

void VerbsRail::accept_offer(Link& link, RailEvents& events) {
  link.side = std::move(link.early_side);
  link.early_side = SideChannel();
  link.early_offered = false;
  link.theirs = link.early_offer.hello;
  link.next_try_ns = base::now_ns() + connect_timeout_ns();
  if (!make_direct_pair(link) || !make_ready(link, link.early_offer.path)) {
    return connecting_failed(link, base::errno_text(errno), events);
  }
  const OfferBytes answer =
      encode({my_hello(link), link.my_path}, context_of(link.peer, index()), link.offer);
  if (!link.side.send(answer)) return connecting_failed(link, link.side.reason(), events);
  link.state = Link::State::Accepting;
}

void VerbsRail::take_ready_word(Link& link, RailEvents& events) {
  const SideChannel::Step step = link.side.receive(std::span(link.inbox).first(1));
  if (step == SideChannel::Step::Again) return;
  if (step == SideChannel::Step::Failed) {
    return connecting_failed(link, link.side.reason(), events);
  }
  if (link.inbox[0] != kReadyWord) {
    return connecting_failed(link, "its side channel carries what it should not", events);
  }
  go_up(link, events);
}

/// The ready word may come when the first data has already told of it.
void VerbsRail::watch_for_end(Link& link, RailEvents& events) {
  const SideChannel::Step step = link.side.receive(std::span(link.inbox).first(1));
  if (step != SideChannel::Step::Failed) return;
  if (link.side.closed_by_peer()) return take_down(link, link.side.reason(), events);
  // The network between fails, which need not be the one that the link uses: data will tell.
  base::log_debug("rail {}, rank {}: lost its side channel: {}", name(), link.peer,
                  link.side.reason());
  link.side = SideChannel();
}

bool VerbsRail::make_direct_pair(Link& link) {
  const bool made = make_queue_pair(link, [&](ibv_qp_init_attr& wanted) -> ibv_qp* {
    link.direct_pair.reset(ibv_create_qp(domain_.get(), &wanted));
    if (!link.direct_pair) return nullptr;
    const int error_number = to_init(*link.direct_pair, port_);
    if (error_number == 0) return link.direct_pair.get();
    link.direct_pair.reset();
    // Not EINVAL, which would ask for another one with less inline space.
    errno = error_number == EINVAL ? EIO : error_number;
    return nullptr;
  });
  return made && make_path(link);
}

/// Asked anew for each connection: a subnet manager may have given the port another LID.
bool VerbsRail::make_path(Link& link) {
  ibv_port_attr port{};
  if (const int error_number = ibv_query_port(data_context(), port_, &port)) {
    errno = error_number;
    return false;
  }
  if (port.state != IBV_PORT_ACTIVE) {
    errno = ENETDOWN;
    return false;
  }
  ibv_gid gid{};
  errno = ENODATA;  // what the library need not set
  if (ibv_query_gid(data_context(), port_, options_.gid_index, &gid) != 0) return false;
  PathFacts& path = link.my_path;
  path.qp_number = link.pair->qp_num;
  path.first_packet = randombytes_random() & kMask24Bits;
  path.lid = port.lid;
  path.needs_gids = (port.flags & IBV_QPF_GRH_REQUIRED) != 0;
  path.mtu_code = static_cast<std::uint8_t>(port.active_mtu);
  path.is_ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  std::ranges::copy(gid.raw, path.gid.begin());
  return true;
}

bool VerbsRail::make_ready(Link& link, const PathFacts& theirs) {
  if (theirs.is_ethernet != link.my_path.is_ethernet) {
    errno = ENETUNREACH;
    return false;
  }
  const DirectPath path{link.my_path, theirs, port_, static_cast<std::uint8_t>(options_.gid_index)};
  int error_number = to_ready_to_receive(*link.pair, path);
  if (error_number == 0) {
    error_number = to_ready_to_send(*link.pair, path, timeout_of(link));
  }
  errno = error_number;
  return error_number == 0;
}

}  // namespace allrail::transport::verbs
