// How the links of a verbs rail come and go, in whichever way they are connected
// (cm_connection.cpp, direct_connection.cpp): events, requests, failures and retries.
#include <algorithm>
#include <array>

#include <sys/epoll.h>
#include <unistd.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "transport/verbs/queue_pair.hpp"
#include "transport/verbs/verbs_rail_state.hpp"

namespace allrail::transport::verbs {
namespace {

/// Of the end that connects; the other one takes what comes.
const char* way_text(Way way) {
  switch (way) {
    case Way::Manager:
      return " by librdmacm";
    case Way::Direct:
      return " directly";
    case Way::None:
      return "";
  }
  return "";
}

}  // namespace

bool VerbsRail::service(RailEvents& events) {
  bool any = false;
  std::array<epoll_event, 16> ready{};
  const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    any |= take_ready(ready[static_cast<std::size_t>(i)].data.fd, events);
  }
  any |= take_pending_strangers(events);
  const std::int64_t now_ns = base::now_ns();
  check_overdue(now_ns, events);
  serviced_at_ns_ = now_ns;
  free_retired();
  any |= try_waiting(now_ns, events);
  service_now_ = false;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    service_now_ = service_now_ || in_transition(links_.at(i));
  }
  return any;
}

bool VerbsRail::take_ready(int descriptor, RailEvents& events) {
  if (events_ && descriptor == events_->fd) return take_connection_events(events);
  if (descriptor == device_->async_fd) return take_device_events(events);
  if (descriptor == channel_->fd) {
    take_completion_events();
    return false;
  }
  if (descriptor == wake_.get()) {
    std::uint64_t value = 0;
    (void)!::read(wake_.get(), &value, sizeof value);
    awake_ = false;
    return false;
  }
  return take_side_event(descriptor, events);
}

void VerbsRail::take_completion_events() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
}

Hello VerbsRail::my_hello(const Link& link) const {
  Hello hello;
  hello.rank = options_.rank;
  hello.rail = static_cast<std::uint8_t>(index());
  hello.probes = options_.rank < link.peer && !link.answered;
  hello.window_address = reinterpret_cast<std::uintptr_t>(window_.data());
  hello.window_key = window_region_ ? window_region_->rkey : 0;
  hello.credit_address = reinterpret_cast<std::uintptr_t>(&link.buffers->credit_from_peer);
  hello.credit_key = link.buffers_region->rkey;
  return hello;
}

HelloContext VerbsRail::context_of(int to_rank, int rail_of_acceptor) const {
  return {options_.secret, options_.job_hash, to_rank, rail_of_acceptor};
}

/// The peer asks for a new connection and proved who it is: it has given up the one that we still
/// have.
void VerbsRail::make_way(Link& link, RailEvents& events) {
  if (link.state == Link::State::Up) {
    take_down(link, link.doom.empty() ? "the peer connected again" : std::string(link.doom),
              events);
  } else if (link.state == Link::State::Accepting) {
    dismantle(link, &events);
  }
}

bool VerbsRail::try_waiting(std::int64_t now_ns, RailEvents& events) {
  bool any = false;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_.at(i);
    if (!link.wanted) continue;
    if (is_off_) {
      any |= turn_away(link, now_ns, events);
      continue;
    }
    if (link.early && link.state == Link::State::Idle) {
      accept(link, std::move(link.early), events);
      any = true;
    } else if (link.early_offered && link.state == Link::State::Idle) {
      accept_offer(link, events);
      any = true;
    } else if (link.state == Link::State::Waiting && now_ns >= link.next_try_ns) {
      if (link.way == Way::Direct) {
        start_side_channel(link, now_ns, events);
      } else {
        start_resolving(link, now_ns, events);
      }
      any = true;
    } else if (in_transition(link) && now_ns >= link.next_try_ns) {
      give_up_attempt(link, events);
      any = true;
    }
  }
  return any;
}

/// Nothing comes about over a device that is gone; who connects tries other pairs of rails.
bool VerbsRail::turn_away(Link& link, std::int64_t now_ns, RailEvents& events) {
  link.early.reset();
  if (link.early_offered) drop_early_side(link);
  if (link.state == Link::State::Up) take_down(link, "its device is gone", events);
  const bool due =
      in_transition(link) || (link.state == Link::State::Waiting && now_ns >= link.next_try_ns);
  if (due) connecting_failed(link, "its device is gone", events);
  return due;
}

/// Who answered comes when it may: nothing has failed, and the next attempt asks whether it still
/// is there.
void VerbsRail::give_up_attempt(Link& link, RailEvents& events) {
  if (!link.answered || link.proves_path) return connecting_failed(link, "no answer", events);
  dismantle(link, &events);
  wait_for_retry(link);
}

bool VerbsRail::make_queue_pair(Link& link, const MakePair& make) {
  ibv_cq* const queue =
      completion_queues_[static_cast<std::size_t>(link.completion_queue)].queue.get();
  // A device that offers less inline space than wanted says so by EINVAL.
  for (const std::uint32_t inline_bytes : {kWantedInlineBytes, 0U}) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = queue;
    wanted.recv_cq = queue;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap.max_send_wr = kSendDepth;
    wanted.cap.max_recv_wr = kReceiveDepth;
    wanted.cap.max_send_sge = 1;
    wanted.cap.max_recv_sge = 1;
    wanted.cap.max_inline_data = inline_bytes;
    link.pair = make(wanted);
    if (link.pair != nullptr) {
      link.inline_bytes = std::min(wanted.cap.max_inline_data, kWantedInlineBytes);
      break;
    }
    if (inline_bytes == 0 || errno != EINVAL) return false;
  }
  for (int i = 0; i < kReceiveDepth; ++i) {
    if (post_receive(link, static_cast<std::uint16_t>(i))) continue;
    errno = ENOMEM;
    return false;
  }
  return true;
}

void VerbsRail::prepare_buffers(Link& link) {
  if (link.buffers || is_off_) return;
  try {
    make_buffers(link);
  } catch (const Error&) {
    if (!gave_up_device()) throw;
  }
}

void VerbsRail::make_buffers(Link& link) {
  // Only ranks that have links, the leaders, pin the node's memory.
  if (!window_region_ && !window_.empty()) {
    window_region_ = register_memory(window_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  }
  auto buffers = std::make_unique<LinkBuffers>();
  MemoryRegion region = register_memory(std::as_bytes(std::span(buffers.get(), 1)),
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  const auto fits = [&](const CompletionQueueUse& use) {
    return (use.links + 1) * kCompletionsPerLink <= completions_per_queue_;
  };
  auto use = std::ranges::find_if(completion_queues_, fits);
  if (use == completion_queues_.end()) {
    completion_queues_.push_back(
        {check_pointer(
             ibv_create_cq(data_context(), completions_per_queue_, nullptr, channel_.get(), 0),
             name(), "make a completion queue"),
         0});
    use = completion_queues_.end() - 1;
  }
  ++use->links;
  link.completion_queue = static_cast<int>(use - completion_queues_.begin());
  link.buffers = std::move(buffers);
  link.buffers_region = std::move(region);
  link.free_control = (std::uint64_t{1} << kControlDepth) - 1;
}

void VerbsRail::connecting_failed(Link& link, const std::string& reason, RailEvents& events) {
  const std::string text = fmt::format("cannot connect{}: {}", way_text(link.way), reason);
  if (link.proves_path) link.path_failed.set(link.remote.rail);
  // The side channel did not come about: its next address is tried next.
  if (link.state == Link::State::Resolving && link.way == Way::Direct) ++link.tries;
  dismantle(link, &events);
  // What fails may be librdmacm rather than the network.
  take_other_way(link);
  wait_for_retry(link);
  base::log_debug("rail {}, rank {}: {}", name(), link.peer, text);
  events.link_down(index(), link.peer, text);
}

/// Each rail of the peer has its own turns, because they are tried by turns as well: a pair would
/// go the same way every time.
void VerbsRail::take_other_way(Link& link) const {
  link.other_way.flip(static_cast<std::size_t>(link.remote.rail));
  link.way = next_way(my_address(), link.remote, link.way);
}

void VerbsRail::wait_for_retry(Link& link) {
  // The peer, or the way to it, may be gone: the next attempt is a probe again, and is not waited
  // for as long as for a peer that is known to be there.
  link.answered = false;
  if (options_.rank > link.peer || !link.wanted) return;
  link.state = Link::State::Waiting;
  link.next_try_ns = base::now_ns() + retry_delay_.next_ns(link.retry_delay_ms);
}

void VerbsRail::go_up(Link& link, RailEvents& events) {
  link.state = Link::State::Up;
  link.retry_delay_ms = 0;
  link.proves_path = false;
  link.path_failed.reset();
  device_failed_ = false;
  events.link_up(index(), link.peer, link.theirs.rail);
}

/// True if nobody can tell.
bool VerbsRail::port_is_active() const {
  ibv_port_attr port{};
  return ibv_query_port(device_.get(), port_, &port) != 0 || port.state == IBV_PORT_ACTIVE;
}

/// Ends what librdmacm made. The peer is told so by a message, and soft-RoCE's connection manager
/// never hears anything again once it could not send one: while the port is down, it waits.
void VerbsRail::let_go(ConnectionId id) {
  if (!id || silent_.size() == silent_.capacity() || port_is_active()) return;
  if (id->qp != nullptr) rdma_destroy_qp(id.get());
  silent_.push_back(std::move(id));
}

/// Ends the connection. What had landed is reported; when this returns the queue pair is gone:
/// nothing that the peer wrote through it lands any more, and completions that were left in the
/// queue are of an old generation.
void VerbsRail::dismantle(Link& link, RailEvents* events) {
  const bool is_managed = link.id != nullptr;
  if (link.pair != nullptr) {
    bool ends = is_managed && port_is_active() && rdma_disconnect(link.id.get()) == 0;
    // A device that is gone takes no word of either kind, and ends no request.
    if (!ends) ends = to_error(*link.pair) == 0;
    if (events != nullptr && link.has_queue_pair()) {
      drained_ = drain(link, ends ? drain_limit_ns_ : 0, *events);
    }
  }
  ++link.generation;
  if (link.pair != nullptr && is_managed) let_go(std::move(link.id));
  link.pair = nullptr;
  link.proves_path = false;
  link.id.reset();
  link.direct_pair.reset();
  // Only now does the peer learn of it.
  link.side = SideChannel();
  link.receives_posted = 0;
  if (!link.doom.empty()) {
    link.doom.clear();
    --doomed_links_;
  }
  link.state = Link::State::Idle;
  if (link.sends.has_list()) std::erase(listed_links_, link.slot);
  link.sends.clear();
  link.receives_used = link.receives_again = link.receives_told = 0;
  if (link.buffers) {
    link.buffers->credit_from_peer = 0;
    link.free_control = (std::uint64_t{1} << kControlDepth) - 1;
  }
}

void VerbsRail::take_down(Link& link, std::string_view reason, RailEvents& events) {
  const std::string text(reason);  // may be part of the link
  dismantle(link, &events);
  wait_for_retry(link);
  events.link_down(index(), link.peer, text);
}

/// A device that has ended nothing of one link in all its time is not waited for at the others.
void VerbsRail::take_all_down(std::string_view reason, RailEvents& events) {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_.at(i);
    drained_ = true;
    if (link.state == Link::State::Up) {
      take_down(link, reason, events);
    } else if (in_transition(link)) {
      connecting_failed(link, std::string(reason), events);
    }
    if (!drained_) drain_limit_ns_ = 0;
  }
  drain_limit_ns_ = kDrainLimitNs;
}

}  // namespace allrail::transport::verbs
