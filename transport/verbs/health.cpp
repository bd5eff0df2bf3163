// What tells a verbs rail, beside completions with errors, that links are of no use any more: the
// events of its device, and queue pairs that complete nothing.
#include <algorithm>
#include <utility>

#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "transport/verbs/verbs_rail_state.hpp"

namespace allrail::transport::verbs {
namespace {

/// A device makes each try last up to four times as long as it was told.
constexpr std::int64_t kLongestTry = 4;
/// One chunk may take this long on a rail that is slow and well.
constexpr std::int64_t kLeastOverdueNs = 10'000'000'000;
/// A rank that looks seldom, or was stopped, has not waited for all of that time.
constexpr std::int64_t kMostPerLookNs = 100'000'000;

}  // namespace

bool VerbsRail::take_device_events(RailEvents& events) {
  bool any = false;
  bool may_be_renamed = false;
  ibv_async_event event{};
  while (ibv_get_async_event(device_.get(), &event) == 0) {
    const ibv_event_type type = event.event_type;
    const bool mine = event.element.port_num == port_;
    ibv_ack_async_event(&event);
    any = true;
    if (type == IBV_EVENT_PORT_ERR && mine) take_all_down("its port went down", events);
    if (type == IBV_EVENT_PORT_ACTIVE && mine) silent_.clear();
    if (type == IBV_EVENT_DEVICE_FATAL) {
      device_failed_ = true;
      take_all_down("its device failed", events);
    }
    may_be_renamed |= mine && (type == IBV_EVENT_LID_CHANGE || type == IBV_EVENT_PKEY_CHANGE ||
                               type == IBV_EVENT_GID_CHANGE || type == IBV_EVENT_PORT_ACTIVE);
  }
  if (may_be_renamed) follow_identity(events);
  return any;
}

/// Asked where a call has failed. True if that is because the device failed, or does not even tell
/// how its port is: then nothing is connected over it any more, since peers have no keys for it.
bool VerbsRail::gave_up_device() {
  ibv_port_attr port{};
  if (!device_failed_ && ibv_query_port(device_.get(), port_, &port) == 0) return false;
  if (!std::exchange(is_off_, true)) {
    base::log_warning("rail {}: its device is gone; nothing goes over this rail any more", name());
    service_now_ = true;  // links that are up go down
  }
  return true;
}

/// Queue pairs go on to use the LID, the key and the GID that they were made with. Most of such
/// events are about others of the port: one more address of its interface, say.
void VerbsRail::follow_identity(RailEvents& events) {
  if (!identity_) return;
  const auto now = read_identity_again(*device_, port_, *identity_);
  if (!now) return;
  const std::string reason = why_outdated(*identity_, *now);
  identity_ = now;
  if (now->gid_index >= 0) options_.gid_index = now->gid_index;
  if (!reason.empty()) take_all_down(reason, events);
}

/// A device ends whatever it cannot deliver with an error. For the time after which it must have
/// done so twice over, nothing has come of a link that has requests in flight: it never will.
void VerbsRail::check_overdue(std::int64_t now_ns, RailEvents& events) {
  const std::int64_t passed_ns = std::min(now_ns - serviced_at_ns_, kMostPerLookNs);
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_.at(i);
    if (link.state != Link::State::Up || !link.sends.in_flight()) {
      link.waited_ns = -1;
      continue;
    }
    // Posted or completed since the last look: the time before that is not waiting.
    if (link.waited_ns < 0 || link.sends.done() != link.done_when_seen) {
      link.done_when_seen = link.sends.done();
      link.waited_ns = 0;
      continue;
    }
    link.waited_ns += passed_ns;
    const std::int64_t limit_ns = overdue_ns(link);
    if (link.waited_ns <= limit_ns) continue;
    take_down(link,
              fmt::format("its queue pair has completed nothing for {} ms, and told no error",
                          limit_ns / 1'000'000),
              events);
    // That librdmacm connects it again would prove nothing; the direct way tries it with data.
    if (options_.rank < link.peer && link.way == Way::Manager) take_other_way(link);
  }
}

std::int64_t VerbsRail::overdue_ns(const Link& link) const {
  if (options_.overdue_ns > 0) return options_.overdue_ns;
  const std::int64_t tries = (1 + kRetries) * kLongestTry;
  return std::max(2 * tries * timeout_ns(timeout_of(link)), kLeastOverdueNs);
}

}  // namespace allrail::transport::verbs
