#include "transport/control/control_plane.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "lib/base/thread.hpp"
#include "transport/control/control_plane_state.hpp"

namespace allrail::transport {
namespace {

using control::Neighbour;

constexpr std::int64_t kMs = 1'000'000;
/// While a link is being made, somebody is in a call, or nothing happens: how late the thread may
/// notice what no descriptor tells it.
constexpr int kConnectingTickMs = 20;
constexpr int kInCallTickMs = 50;

std::vector<Endpoint> decode_address(const ControlPeer& peer) {
  std::vector<Endpoint> endpoints;
  const std::span<const std::byte> bytes(peer.address);
  for (std::size_t at = 0; at + kEndpointBytes <= bytes.size(); at += kEndpointBytes) {
    const auto endpoint = decode_endpoint(bytes.subspan(at, kEndpointBytes));
    if (endpoint) endpoints.push_back(*endpoint);
  }
  if (endpoints.size() * kEndpointBytes != bytes.size() || endpoints.empty()) {
    base::fail_with_peer(Code::Bootstrap, peer.rank,
                         "rank {} sent a control address of {} bytes that is none; do all ranks "
                         "run the same Allrail?",
                         peer.rank, peer.address.size());
  }
  return endpoints;
}

}  // namespace

ControlPlaneState::ControlPlaneState(ControlListener listener, const ControlOptions& options,
                                     std::span<const ControlPeer> peers,
                                     std::span<const pid_t> local_pids, LocalNode& local)
    : options_(options),
      local_(local),
      listener_(std::move(listener)),
      kick_fd_(base::check_minus_one(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                     "creating the eventfd of the control plane")),
      calls_(
          options.compare_after_ms * kMs,
          [&local](std::size_t index, std::uint64_t call) { return local.stamp_of(index, call); }),
      late_(options.size),
      progress_(local_pids.size()) {
  watch_processes(local_pids);
  make_neighbours(peers);
  watch_listeners();
  thread_ = base::start_thread("the control plane", [this] { run(); });
}

ControlPlaneState::~ControlPlaneState() {
  leaving_.store(true, std::memory_order_release);
  kick();
  thread_.join();
}

void ControlPlaneState::kick() noexcept {
  const std::uint64_t one = 1;
  // Fails only where the counter is full, and then the thread is awake anyway.
  (void)!::write(kick_fd_.get(), &one, sizeof(one));
}

void ControlPlaneState::watch_processes(std::span<const pid_t> pids) {
  processes_.resize(pids.size());
  for (std::size_t index = 0; index < pids.size(); ++index) {
    WatchedProcess& process = processes_[index];
    process.pid = pids[index];
    if (process.pid <= 0) continue;
    process.fd = base::UniqueFd(
        static_cast<int>(::syscall(SYS_pidfd_open, static_cast<long>(process.pid), 0L)));
    if (!process.fd) {
      const int error_number = errno;
      local_.read_progress(progress_);
      // A job can be so short that a rank has left before this one is ready.
      if (error_number == ESRCH && progress_[index].state == LocalProgress::State::Goodbye)
        continue;
      base::fail(error_number == ESRCH ? Code::PeerLost : Code::ResourceLimit,
                 "watching process {} of this node failed: {}{}", process.pid,
                 base::refusal_text(error_number),
                 error_number == ESRCH ? "; see its own output" : "");
    }
    process.key = loop_.add(process.fd.get(), EPOLLIN,
                            [this, index](std::uint32_t) { on_process_ended(index); });
  }
}

void ControlPlaneState::make_neighbours(std::span<const ControlPeer> peers) {
  if (static_cast<int>(peers.size()) != options_.node_count) {
    base::fail(Code::Internal, "the control plane got {} addresses for {} nodes", peers.size(),
               options_.node_count);
  }
  control::NeighbourTimes times;
  times.connect_ns = options_.connect_ms * kMs;
  times.reconnect_ns = options_.reconnect_ms * kMs;
  for (const int node : control_neighbours(options_.node, options_.node_count)) {
    const ControlPeer& peer = peers[static_cast<std::size_t>(node)];
    control::DialPlan plan;
    plan.identity.secret = options_.secret;
    plan.identity.job_hash = options_.job_hash;
    plan.identity.rank = options_.rank;
    plan.identity.size = options_.size;
    plan.identity.purpose = Purpose::ControlLink;
    plan.to_rank = peer.rank;
    plan.from = listener_.places;
    plan.to = decode_address(peer);
    plan.probe = node < options_.node;  // the lower node connects
    Neighbour::Events events;
    events.up = [this](Neighbour& neighbour) {
      linked_at_ns_ = base::now_ns();
      if (cause_) neighbour.send(control::encode(*cause_));
      if (said_goodbye_) neighbour.say_goodbye();
    };
    events.message = [this](Neighbour& from, const control::Message& message) {
      on_message(from, message);
    };
    events.dead = [this](Neighbour& neighbour, const std::string& reason) {
      on_neighbour_dead(neighbour, reason);
    };
    neighbours_.push_back(
        std::make_unique<Neighbour>(loop_, node, std::move(plan), times, std::move(events)));
  }
}

void ControlPlaneState::watch_listeners() {
  for (const auto& acceptor : listener_.acceptors) {
    Acceptor* const watched = acceptor.get();
    loop_.add(watched->event_descriptor(), EPOLLIN,
              [this, watched](std::uint32_t) { take_connections(*watched); });
  }
  loop_.add(kick_fd_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count = 0;
    (void)!::read(kick_fd_.get(), &count, sizeof(count));
  });
}

void ControlPlaneState::run() noexcept {
  try {
    while (!finished()) {
      loop_.run_once(timeout_ms());
      tick();
    }
  } catch (const std::exception& error) {
    // Without its control plane a node would notice nothing any more: better to end the job.
    base::log_error("the control plane of node {} failed: {}", options_.node, error.what());
    local_.set_abort(
        {static_cast<int>(Code::Internal), options_.rank,
         fmt::format("the control plane of node {} failed: {}", options_.node, error.what())});
  }
}

int ControlPlaneState::timeout_ms() const {
  const bool connecting =
      std::any_of(neighbours_.begin(), neighbours_.end(), [](const auto& neighbour) {
        return neighbour->state() == Neighbour::State::Connecting ||
               neighbour->state() == Neighbour::State::Lost;
      });
  if (connecting || leaving_since_ns_ != 0) return kConnectingTickMs;
  const bool in_call = std::any_of(progress_.begin(), progress_.end(),
                                   [](const LocalProgress& rank) { return rank.in_call; });
  return in_call ? std::min(kInCallTickMs, options_.heartbeat_ms) : options_.heartbeat_ms;
}

bool ControlPlaneState::finished() const {
  if (leaving_since_ns_ == 0) return false;
  const std::int64_t now_ns = base::now_ns();
  if (now_ns - leaving_since_ns_ >= options_.unheard_ms * kMs) return true;
  if (now_ns - std::max(leaving_since_ns_, linked_at_ns_) >= options_.goodbye_ms * kMs) {
    return cause_ || std::ranges::none_of(
                         neighbours_, [](const auto& neighbour) { return neighbour->may_come(); });
  }
  // The peers close their end when they have read our goodbye.
  return said_goodbye_ && std::ranges::all_of(neighbours_, [](const auto& neighbour) {
           return !neighbour->linked() && (neighbour->state() == Neighbour::State::Left ||
                                           neighbour->state() == Neighbour::State::Dead);
         });
}

void ControlPlaneState::tick() {
  const std::int64_t now_ns = base::now_ns();
  if (leaving_since_ns_ == 0 && leaving_.load(std::memory_order_acquire)) {
    leaving_since_ns_ = now_ns;
  }
  for (const auto& acceptor : listener_.acceptors) {
    if (acceptor->needs_poll()) take_connections(*acceptor);
  }
  local_.read_progress(progress_);
  adopt_local_abort();
  check_calls(now_ns);
  check_goodbye(now_ns);
  int up = 0;
  for (const auto& neighbour : neighbours_) {
    neighbour->tick(now_ns);
    if (neighbour->state() == Neighbour::State::Up) ++up;
  }
  links_up_.store(up, std::memory_order_relaxed);
}

void ControlPlaneState::take_connections(Acceptor& acceptor) {
  while (auto connection = acceptor.poll()) {
    for (const auto& neighbour : neighbours_) {
      if (neighbour->rank() == connection->peer_rank && !neighbour->dials()) {
        neighbour->adopt(std::move(connection->fd));
        break;
      }
    }
  }
}

void ControlPlaneState::on_message(Neighbour& from, const control::Message& message) {
  if (const auto* cause = std::get_if<AbortCause>(&message)) {
    learn(*cause);
  } else if (const auto* heartbeat = std::get_if<control::Heartbeat>(&message)) {
    if (const auto different = calls_.compare(heartbeat->waits)) learn(*different);
    for (const control::Wait& wait : heartbeat->waits) late_.wanted(wait.sequence);
    late_.heard(heartbeat->late, base::now_ns());
  } else if (std::holds_alternative<control::Goodbye>(message)) {
    from.mark_left();
  }
}

void ControlPlaneState::on_process_ended(std::size_t index) {
  WatchedProcess& process = processes_[index];
  loop_.remove(process.key);
  local_.read_progress(progress_);
  const LocalProgress& progress = progress_[index];
  if (progress.state == LocalProgress::State::Goodbye) return;
  // It will never say goodbye, and nobody needs to wait for it when leaving.
  learn({static_cast<int>(Code::PeerLost), progress.rank,
         fmt::format("rank {} (process {}) on node {} died", progress.rank, process.pid,
                     options_.node)});
}

void ControlPlaneState::on_neighbour_dead(const Neighbour& neighbour, const std::string& reason) {
  if (said_goodbye_ || cause_) return;
  learn({static_cast<int>(Code::PeerLost), neighbour.rank(),
         fmt::format("rank {}, the first of node {}, is lost: {}", neighbour.rank(),
                     neighbour.node(), reason)});
}

void ControlPlaneState::adopt_local_abort() {
  if (cause_ || !local_.aborted()) return;
  cause_ = local_.abort_cause();
  const std::vector<std::byte> message = control::encode(*cause_);
  for (const auto& neighbour : neighbours_) neighbour->send(message);
}

void ControlPlaneState::learn(const AbortCause& cause) {
  if (cause_) return;
  local_.set_abort(cause);
  adopt_local_abort();
}

void ControlPlaneState::check_calls(std::int64_t now_ns) {
  if (cause_) return;
  if (const auto different = calls_.observe(progress_, now_ns)) return learn(*different);
  late_.observe(progress_);
  if (now_ns < next_heartbeat_ns_) return;
  next_heartbeat_ns_ = now_ns + options_.heartbeat_ms * kMs;
  for (const control::Wait& wait : calls_.waits()) late_.wanted(wait.sequence);
  const auto late = late_.late(now_ns);
  local_.set_late(late ? late->rank : -1);
  if (calls_.waits().empty() && !late) return;
  const std::vector<std::byte> message =
      control::encode(control::Heartbeat{calls_.waits(), late.value_or(control::LateRank{})});
  for (const auto& neighbour : neighbours_) neighbour->send_if_idle(message);
}

void ControlPlaneState::check_goodbye(std::int64_t now_ns) {
  if (said_goodbye_) return;
  const bool all = std::all_of(progress_.begin(), progress_.end(), [](const LocalProgress& rank) {
    return rank.state == LocalProgress::State::Goodbye;
  });
  const bool late = leaving_since_ns_ != 0 &&
                    (cause_ || now_ns - leaving_since_ns_ >= options_.goodbye_ms * kMs / 2);
  if (!(all && !progress_.empty()) && !late) return;
  said_goodbye_ = true;
  for (const auto& neighbour : neighbours_) neighbour->say_goodbye();
}

ControlPlane::ControlPlane(ControlListener listener, const ControlOptions& options,
                           std::span<const ControlPeer> peers, std::span<const pid_t> local_pids,
                           LocalNode& local)
    : state_(std::make_unique<ControlPlaneState>(std::move(listener), options, peers, local_pids,
                                                 local)) {}
ControlPlane::~ControlPlane() = default;
void ControlPlane::kick() noexcept { state_->kick(); }
int ControlPlane::links_up() const noexcept { return state_->links_up(); }

}  // namespace allrail::transport
