#include "tests/fake_verbs/world.hpp"

#include <cstdio>
#include <cstdlib>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace allrail::fake_verbs {

std::function<void(const std::string&)> misuse_handler;

World& world() {
  // Never destroyed: a program may release its objects in destructors of its own statics.
  static World* const the_world = new World;
  return *the_world;
}

Bell::Bell() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Bell::~Bell() { close(descriptor_); }

void Bell::ring() const {
  const std::uint64_t one = 1;
  if (write(descriptor_, &one, sizeof one) != sizeof one) std::abort();
}

void Bell::take() const {
  std::uint64_t one = 0;
  if (read(descriptor_, &one, sizeof one) != sizeof one) std::abort();
}

bool Bell::nonblocking() const { return (fcntl(descriptor_, F_GETFL) & O_NONBLOCK) != 0; }

Call::Call(const char* function) : lock_(world().mutex) { count(function); }

void Call::count(const char* function) {
  World& all = world();
  all.calls.emplace_back(function);
  for (CallFailure& failure : all.call_failures) {
    if (!failure.function.empty() && failure.function != function) continue;
    if (failure.n > 0 && --failure.n == 0) error_ = failure.error;
  }
  if (error_ != 0)
    all.failed.push_back(std::string(function) + " (call " + std::to_string(all.calls.size()) +
                         ")");
}

void Call::wait_for(const Bell& bell) {
  lock_.unlock();
  pollfd waiting = {.fd = bell.descriptor(), .events = POLLIN, .revents = 0};
  poll(&waiting, 1, -1);
  lock_.lock();
}

void State::misuse(const std::string& sentence) const {
  if (misuse_handler) return misuse_handler(sentence);
  std::fprintf(stderr, "fake_verbs: misuse: %s\n", sentence.c_str());
  std::abort();
}

Device* State::device_of(std::uint32_t address) const {
  for (const auto& device : devices)
    if (device->options.has_ip && device->address == address) return device.get();
  return nullptr;
}

Device* State::device_named(const std::string& name) const {
  for (const auto& device : devices)
    if (device->options.name == name) return device.get();
  misuse("there is no device " + name);
  return nullptr;
}

std::uint32_t State::new_key() {
  // Never the same for two purposes, so that an lkey in place of an rkey is found out.
  next_key += 1 + static_cast<std::uint32_t>(random(255));
  return next_key;
}

}  // namespace allrail::fake_verbs
