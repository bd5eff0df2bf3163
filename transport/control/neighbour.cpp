#include "transport/control/neighbour.hpp"

#include <utility>

#include "lib/base/clock.hpp"
#include "lib/base/log.hpp"

namespace allrail::transport::control {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kRedialNs = 100 * kMs;
/// The side that is connected to first gives the peer time to reconnect by itself.
constexpr std::int64_t kProbeAfterStartNs = 1'000 * kMs;
constexpr std::int64_t kProbeAfterLossNs = 200 * kMs;
constexpr std::int64_t kProbeEveryNs = 500 * kMs;

}  // namespace

Neighbour::Neighbour(EventLoop& loop, int node, DialPlan plan, NeighbourTimes times, Events events)
    : loop_(loop),
      node_(node),
      plan_(std::move(plan)),
      times_(times),
      events_(std::move(events)),
      sign_of_life_ns_(base::now_ns()),
      next_dial_ns_(sign_of_life_ns_ + (plan_.probe ? kProbeAfterStartNs : 0)) {}

void Neighbour::tick(std::int64_t now_ns) {
  if (state_ == State::Up) {
    // Keepalive finds a silent host only while nothing is in flight.
    if (host_is_silent(link_->descriptor())) on_closed("its host does not answer");
    return;
  }
  if (state_ != State::Connecting && state_ != State::Lost) return;
  if (dialer_) {
    dialer_->tick(now_ns);
  } else if (now_ns >= next_dial_ns_) {
    dialer_ = std::make_unique<Dialer>(
        loop_, plan_,
        Dialer::Events{
            [this](base::UniqueFd fd) { on_reached(std::move(fd)); }, [this] { on_sign_of_life(); },
            [this](bool refused, const std::string& reason) { on_dial_failed(refused, reason); }});
    dialer_->tick(now_ns);
  }
}

void Neighbour::on_reached(base::UniqueFd fd) {
  if (!plan_.probe) return adopt(std::move(fd));
  dialer_.reset();
  was_tried_ = true;
  // Somebody listens: the process lives, and will connect when it can. It may be stopped.
  on_sign_of_life();
  next_dial_ns_ = sign_of_life_ns_ + kProbeEveryNs;
}

void Neighbour::on_sign_of_life() {
  sign_of_life_ns_ = base::now_ns();
  has_answered_ = true;
}

void Neighbour::on_dial_failed(bool refused, const std::string& reason) {
  dialer_.reset();
  was_tried_ = true;
  const std::int64_t now_ns = base::now_ns();
  const std::int64_t patience_ns =
      state_ == State::Connecting ? times_.connect_ns : times_.reconnect_ns;
  if (!refused && now_ns - sign_of_life_ns_ < patience_ns) {
    next_dial_ns_ = now_ns + kRedialNs;
    return;
  }
  state_ = State::Dead;
  events_.dead(*this, lost_reason_ + ", and then " + reason);
}

void Neighbour::adopt(base::UniqueFd fd) {
  if (state_ == State::Left || state_ == State::Dead) return;
  dialer_.reset();
  link_.reset();
  link_ = std::make_unique<Link>(
      loop_, std::move(fd),
      Link::Events{[this](const Message& message) { events_.message(*this, message); },
                   [this](const std::string& reason) { on_closed(reason); }});
  if (state_ == State::Lost) base::log_info("the control link to node {} is back", node_);
  state_ = State::Up;
  events_.up(*this);
}

void Neighbour::on_closed(const std::string& reason) {
  link_.reset();
  if (state_ != State::Up) return;
  if (said_goodbye_) {
    state_ = State::Left;
    return;
  }
  base::log_info("the control link to node {} is lost: {}", node_, reason);
  state_ = State::Lost;
  lost_reason_ = "its control link was lost: " + reason;
  sign_of_life_ns_ = base::now_ns();
  next_dial_ns_ = sign_of_life_ns_ + (plan_.probe ? kProbeAfterLossNs : 0);
}

void Neighbour::send(const std::vector<std::byte>& message) {
  if (link_) link_->send(message);
}

void Neighbour::send_if_idle(const std::vector<std::byte>& message) {
  if (link_ && link_->idle()) link_->send(message);
}

void Neighbour::say_goodbye() {
  said_goodbye_ = true;
  if (!link_) return;
  link_->send(encode(Goodbye{}));
  link_->finish_sending();
}

}  // namespace allrail::transport::control
