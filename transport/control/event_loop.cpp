#include "transport/control/event_loop.hpp"

#include <array>
#include <utility>

#include <sys/epoll.h>

#include "lib/base/error.hpp"

namespace allrail::transport::control {

EventLoop::EventLoop()
    : epoll_(base::check_minus_one(::epoll_create1(EPOLL_CLOEXEC),
                                   "creating the epoll of the control plane")) {}

EventLoop::Key EventLoop::add(int fd, std::uint32_t events, Handler handler) {
  const Key key = next_key_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return 0;
  entries_.emplace(key, std::make_shared<Entry>(Entry{fd, std::move(handler)}));
  return key;
}

void EventLoop::change(Key key, std::uint32_t events) noexcept {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second->fd, &event);
}

void EventLoop::remove(Key& key) noexcept {
  const auto found = entries_.find(std::exchange(key, 0));
  if (found == entries_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second->fd, nullptr);
  entries_.erase(found);
}

void EventLoop::run_once(int timeout_ms) {
  std::array<epoll_event, 16> events{};
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int index = 0; index < count; ++index) {
    const epoll_event& event = events[static_cast<std::size_t>(index)];
    const Key key = event.data.u64;  // a copy: the kernel's struct is packed, its members unaligned
    const auto found = entries_.find(key);
    if (found == entries_.end()) continue;  // removed by an earlier handler of this round
    const std::shared_ptr<Entry> entry = found->second;  // it may remove itself
    entry->handler(event.events);
  }
}

}  // namespace allrail::transport::control
