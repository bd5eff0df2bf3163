#include "transport/fabric.hpp"

#include <algorithm>
#include <cerrno>

#include <sys/epoll.h>

#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "transport/fabric_state.hpp"

namespace allrail::transport {

namespace {

// Consumed puts that the sender is told of together: what is left of kMaxOpenPuts must last until
// it hears of them. Where half as many puts go back neither side runs far ahead of the other, and
// it may be twice as many.
constexpr std::uint64_t kConsumedBatch = 32;
static_assert(2 * kConsumedBatch <= kMaxOpenPuts / 2);
// Timers (stalls, repeated fences) need a progress() now and then.
constexpr int kLongestSleepMs = 100;

}  // namespace

FabricState::FabricState(int rank, int size, std::vector<std::unique_ptr<Rail>> rails,
                         FabricOptions options)
    : rank_(rank), size_(size), options_(std::move(options)) {
  if (rails.empty() || rails.size() > kMaxRails)
    base::fail(Code::InvalidArgument, "rank {}: a fabric has 1 to {} rails, not {}", rank,
               kMaxRails, rails.size());
  bool can_sleep = true;
  for (auto& rail : rails) {
    RailState state;
    state.queue_depth = std::min(rail->queue_depth(), kMaxLinkChunks);
    state.resend_after_ns = rail->resend_after_ns();
    state.counters.name = rail->name();
    can_sleep = can_sleep && rail->event_descriptor() >= 0;
    state.rail = std::move(rail);
    rails_.push_back(std::move(state));
  }
  if (!can_sleep) return;
  epoll_ = base::UniqueFd(base::check_minus_one(epoll_create1(EPOLL_CLOEXEC), "epoll_create1"));
  for (const RailState& state : rails_) {
    epoll_event event{};
    event.events = EPOLLIN;
    base::check_minus_one(
        epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, state.rail->event_descriptor(), &event),
        "epoll_ctl");
  }
}

Peer& FabricState::look_for(int rank) const {
  Peer* found = peers_.find(rank);
  if (found == nullptr)
    base::fail(Code::Internal, "rank {} was asked for rank {}, to which it is not connected", rank_,
               rank);
  last_rank_ = rank;
  last_peer_ = found;
  return *found;
}

bool FabricState::progress() {
  now_ns_ = now();
  hand_over();
  const bool any = poll_all();
  look_at_departures();
  after_polls(any);
  return any;
}

bool FabricState::poll_all() {
  all_polled_ns_ = now_ns_;
  was_asked_ = false;
  bool any = false;
  for (RailState& state : rails_) any = state.rail->poll(*this) || any;
  return any;
}

bool FabricState::glance(int peer_rank, std::uint64_t bytes, int port) {
  Peer& from = peer(peer_rank);
  if (from.last_rail < 0 || !active_.empty()) return progress();
  const int rail_of_port = from.rail_of(port);
  const int expected_rail = rail_of_port >= 0 ? rail_of_port : from.last_rail;
  hand_over();
  const std::int64_t last_read_ns = now_ns_;
  const bool is_one_chunk = bytes <= std::max(options_.stripe_threshold_bytes, from.whole_bytes);
  bool any = false;
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    if (is_one_chunk && static_cast<int>(i) != expected_rail) continue;
    if (from.links[i].up) any = rails_[i].rail->poll_peer(*this, peer_rank) || any;
  }
  look_at_departures();
  if (!any && !owed_) return false;
  if (now_ns_ == last_read_ns) now_ns_ = now();
  // Or the peer would take the rails that were not looked at for silent ones.
  if (was_asked_) any = poll_all() || any;
  after_polls(any);
  return any;
}

void FabricState::after_polls(bool any) {
  if (!condemned_.empty()) close_condemned();
  if (probes_due_) try_pairs();
  if (now_ns_ >= next_check_ns_) {
    check_peers();
    pump_needed_ = pump_needed_ || !active_.empty();
  }
  if (owed_) send_owed();
  if (any || pump_needed_) {
    for (Peer* peer : active_)
      for (Link& link : peer->links) link.blocked = false;
    pump();
  }
  submit();
}

void FabricState::submit() {
  if (!to_submit_) return;
  const bool held = std::exchange(holds_, false);
  to_submit_ = false;
  holding_.released();
  for (RailState& state : rails_) state.rail->submit();
  if (!held) return;
  const std::int64_t now_ns = now();
  for (RailState& state : rails_) state.watch_held(now_ns);
  left_some_ = !rails_flushed();
}

bool FabricState::holds() {
  if (left_some_) left_some_ = !rails_flushed();
  return holds_ || left_some_;
}

bool FabricState::rails_flushed() const {
  return std::all_of(rails_.begin(), rails_.end(),
                     [](const RailState& state) { return state.rail->flushed(); });
}

void FabricState::send_told() {
  if (!owed_) return;
  now_ns_ = now();
  send_owed();
  submit();
}

void FabricState::flush_acknowledgements() {
  hand_over();
  for (Peer* peer : connected_)
    if (peer->arrivals.lowest() > peer->told_consumed) owe_state(*peer);
  send_told();
  acknowledge();
}

void FabricState::acknowledge() {
  hand_over();
  for (RailState& state : rails_) state.rail->flush_acknowledgements();
}

void FabricState::say_goodbye() {
  said_goodbye_ = true;
  for (Peer* peer : connected_) {
    for (std::size_t i = 0; i < peer->links.size(); ++i) {
      ControlMessage message;
      message.kind = ControlMessage::Kind::Goodbye;
      if (peer->links[i].up) send(*peer, static_cast<int>(i), message);
    }
  }
  submit();
}

void FabricState::shut_down() {
  if (said_goodbye_) return;
  for (Peer* peer : connected_)
    for (std::size_t i = 0; i < peer->links.size(); ++i) {
      rails_[i].rail->forget(peer->rank);
      rails_[i].rail->close(peer->rank, *this);
      peer->links[i].up = false;
    }
}

void FabricState::give_up(int peer, std::string text, bool mismatch) {
  if (failure_) return;
  base::log_error("{}", text);
  failure_ = FabricFailure{peer, std::move(text), mismatch};
}

Fabric::Fabric(int rank, int size, std::vector<std::unique_ptr<Rail>> rails, FabricOptions options)
    : state_(std::make_unique<FabricState>(rank, size, std::move(rails), std::move(options))) {}

Fabric::~Fabric() { shut_down(); }

int Fabric::rail_count() const { return static_cast<int>(state_->rails_.size()); }

void Fabric::set_primary_window(std::span<std::byte> memory) {
  for (RailState& state : state_->rails_) state.rail->set_primary_window(memory);
}

RemoteWindow Fabric::register_window(std::span<std::byte> memory) {
  RemoteWindow window;
  window.bytes = memory.size();
  try {
    for (RailState& state : state_->rails_) {
      window.keys.push_back(state.rail->register_window(memory));
      ++state.counters.registrations;
    }
  } catch (...) {
    unregister_window(window);
    throw;
  }
  return window;
}

void Fabric::unregister_window(const RemoteWindow& window) {
  for (std::size_t i = 0; i < window.keys.size() && i < state_->rails_.size(); ++i)
    state_->rails_[i].rail->unregister_window(window.keys[i]);
}

void Fabric::register_source(std::span<const std::byte> memory) {
  std::size_t done = 0;
  try {
    for (; done < state_->rails_.size(); ++done) {
      state_->rails_[done].rail->register_source(memory);
      ++state_->rails_[done].counters.registrations;
    }
  } catch (...) {
    for (std::size_t i = 0; i < done; ++i) state_->rails_[i].rail->unregister_source(memory);
    throw;
  }
}

void Fabric::unregister_source(std::span<const std::byte> memory) {
  for (RailState& state : state_->rails_) state.rail->unregister_source(memory);
}

void Fabric::connect(int peer, const PeerRails& rails) { state_->connect(peer, rails); }

bool Fabric::knows(int peer) const { return state_->peers_.find(peer) != nullptr; }

int Fabric::partner(int peer, int rail) const {
  return state_->peer(peer).links[static_cast<std::size_t>(rail)].peer_rail;
}

bool Fabric::connected(int peer) const {
  const auto& links = state_->peer(peer).links;
  return std::any_of(links.begin(), links.end(), [](const Link& link) { return link.up; });
}

std::uint64_t Fabric::put(const Put& put) { return state_->put(put); }

bool Fabric::can_put(int peer) const {
  const Peer& to = state_->peer(peer);
  return to.next - to.head < kPutQueue;
}

bool Fabric::completed(int peer, std::uint64_t number) const {
  Peer& to = state_->peer(peer);
  if (number < to.head) return true;
  const OpenPut& put = to.put(number);
  return number < to.next && put.done_chunks == put.cut.count;
}

std::uint64_t Fabric::oldest_open_call() const {
  return state_->oldest_ != nullptr ? state_->oldest_->call : UINT64_MAX;
}

std::uint64_t Fabric::bytes_in_flight() const {
  std::uint64_t bytes = 0;
  for (const RailState& state : state_->rails_) bytes += state.in_flight_bytes;
  return bytes;
}

bool Fabric::flushed(std::uint64_t call) const {
  // What later calls have under way, and peers do not take, is no affair of this one.
  if (oldest_open_call() > call) return true;
  for (Peer* peer : state_->connected_) {
    // The oldest first: calls of puts only grow.
    if (!peer->requeued.empty() && peer->put(peer->requeued.front().put).call <= call) return false;
    if (peer->unsent < peer->next && peer->put(peer->unsent).call <= call) return false;
    for (const Link& link : peer->links)
      if (link.fence.open && link.fence.count > 0) return false;
  }
  return state_->has_held() || state_->rails_flushed();
}

Fabric::Sent Fabric::sent() const {
  Sent sent{0, bytes_in_flight()};
  for (const RailState& state : state_->rails_) sent.bytes += state.counters.bytes_sent;
  return sent;
}

bool Fabric::delivered() const {
  if (!flushed() || state_->has_held()) return false;
  return std::ranges::none_of(state_->connected_, [this](const Peer* peer) {
    for (std::size_t i = 0; peer->head < peer->next && i < peer->links.size(); ++i) {
      if (!peer->links[i].up) continue;
      const std::int64_t bytes = state_->rails_[i].rail->undelivered_bytes(peer->rank);
      if (bytes > 0 || (bytes < 0 && peer->links[i].in_flight > 0)) return true;
    }
    return false;
  });
}

bool Fabric::is_cut_off() const {
  return std::ranges::any_of(state_->connected_, [](const Peer* peer) {
    return peer->was_connected && !peer->left &&
           std::ranges::none_of(peer->links, [](const Link& link) { return link.up; });
  });
}

bool Fabric::holds() const { return state_->holds(); }

void Fabric::hand_over() { state_->hand_over(); }

std::uint64_t Fabric::expect(int peer, std::uint64_t bytes) {
  bool mismatch = false;
  const std::uint64_t number = state_->peer(peer).arrivals.expect(bytes, mismatch);
  if (mismatch)
    state_->give_up(peer,
                    fmt::format("rank {} received more bytes of put {} from rank {} than the {} of "
                                "the call here: the ranks made different calls; every rank must "
                                "make the same collective calls in the same order with the same "
                                "sizes and algorithm",
                                state_->rank_, number, peer, bytes),
                    true);
  return number;
}

bool Fabric::can_expect(int peer) const { return state_->peer(peer).arrivals.can_expect(); }

bool Fabric::first_chunk_arrived(int peer, std::uint64_t number) const {
  return state_->peer(peer).arrivals.first_chunk_arrived(number);
}

bool Fabric::arrived(int peer, std::uint64_t number) const {
  return state_->peer(peer).arrivals.arrived(number);
}

void FabricState::consume(int peer_rank, std::uint64_t number, int port) {
  Peer& from = peer(peer_rank);
  from.arrivals.consume(number);
  from.rail_of(port) = from.rail_of_put[number % kMaxOpenPuts];
  const std::uint64_t untold = from.arrivals.lowest() - from.told_consumed;
  if (untold < kConsumedBatch) return;
  const bool goes_both_ways = 2 * (from.next - from.told_at_put) >= untold;
  if (!goes_both_ways || untold >= 2 * kConsumedBatch) owe_state(from);
}

void Fabric::consume(int peer, std::uint64_t number, int port) {
  state_->consume(peer, number, port);
}

void Fabric::tell_done(int peer, std::uint64_t done) {
  Peer& to = state_->peer(peer);
  if (done <= to.done) return;
  to.done = done;
  state_->owe_state(to);
}

void Fabric::send_told() { state_->send_told(); }

std::uint64_t Fabric::told_done(int peer) const { return state_->peer(peer).peer_done; }

bool Fabric::progress() { return state_->progress(); }

bool Fabric::glance(int peer, std::uint64_t bytes, int port) {
  return state_->glance(peer, bytes, port);
}

void Fabric::flush_acknowledgements() { state_->flush_acknowledgements(); }
void Fabric::acknowledge() { state_->acknowledge(); }

bool Fabric::sleep(int timeout_ms) {
  if (!state_->epoll_) return false;
  state_->hand_over();
  for (RailState& state : state_->rails_) state.rail->prepare_sleep();
  epoll_event event;
  const int limit_ms = timeout_ms < 0 ? kLongestSleepMs : std::min(timeout_ms, kLongestSleepMs);
  epoll_wait(state_->epoll_.get(), &event, 1, limit_ms);
  return true;
}

const std::optional<FabricFailure>& Fabric::failure() const { return state_->failure_; }

Pace Fabric::pace() const {
  Pace pace = Pace::Unknown;
  for (const RailState& state : state_->rails_) {
    if (state.pace.pace() == Pace::Slow) return Pace::Slow;
    if (state.pace.pace() == Pace::Fast) pace = Pace::Fast;
  }
  return pace;
}

std::vector<RailCounters> Fabric::counters() const {
  std::vector<RailCounters> counters;
  for (const RailState& state : state_->rails_) {
    counters.push_back(state.counters);
    counters.back().rate_bytes_per_second = state.rate.bytes_per_second();
  }
  return counters;
}

void Fabric::say_goodbye() { state_->say_goodbye(); }

void Fabric::shut_down() { state_->shut_down(); }

}  // namespace allrail::transport
