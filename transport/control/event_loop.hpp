// epoll with a handler per descriptor, for the helper thread of the control plane.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "lib/base/handle.hpp"

namespace allrail::transport::control {

class EventLoop {
 public:
  using Handler = std::function<void(std::uint32_t events)>;
  using Key = std::uint64_t;  // never used twice, 0: none

  /// Throws Error{ResourceLimit}.
  EventLoop();
  /// The descriptor stays the caller's, who removes it before closing it. Returns 0 where the
  /// system refuses.
  Key add(int fd, std::uint32_t events, Handler handler);
  void change(Key key, std::uint32_t events) noexcept;
  /// Also from inside a handler, its own included.
  void remove(Key& key) noexcept;
  /// Waits at most `timeout_ms` and calls the handlers of what happened.
  void run_once(int timeout_ms);

 private:
  struct Entry {
    int fd = -1;
    Handler handler;
  };
  base::UniqueFd epoll_;
  Key next_key_ = 1;
  std::map<Key, std::shared_ptr<Entry>> entries_;
};

}  // namespace allrail::transport::control
