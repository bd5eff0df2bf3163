// The user's memory of a zero-copy call, known to every rail: for one call, or for the life of a
// plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "coll/offer.hpp"
#include "transport/fabric.hpp"

namespace allrail::coll {

class Envelopes;

struct Buffers {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::uint64_t receive_bytes = 0;  // what peers put into, of a zero-copy call
  std::uint64_t send_bytes = 0;     // what rails read, of a zero-copy call
  // What lies in a Buffer is registered already:
  const transport::RemoteWindow* window = nullptr;  // of the Buffer that `receive` lies in
  std::uint64_t window_offset = 0;                  // of `receive` in it
  bool send_is_registered = false;
  // Of a call whose blocks travel in envelopes, in place of all that is above.
  Envelopes* envelopes = nullptr;
  // For the ranks of my node, where they lie in a Buffer.
  SharedPlace send_place{};
  SharedPlace receive_place{};
  // Of a NodeBuffer, what all ranks of a node must agree on besides: which one it is, where the
  // result begins in it, and displacements. 0 for other memory.
  std::uint64_t place = 0;
};

/// Of memory that lies in no Buffer.
inline Buffers ordinary_buffers(std::span<const std::byte> send, std::span<std::byte> receive) {
  return {.send = send.data(),
          .receive = receive.data(),
          .receive_bytes = receive.size(),
          .send_bytes = send.size()};
}

class Registration;

/// How much may be registered at once, and who holds how much. Where the limit is near, plans that
/// do not run give their memory back and register it again when they start.
class RegistrationBudget {
 public:
  explicit RegistrationBudget(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  /// Takes back what is not in use, oldest first, until `bytes` more fit. False: they do not yet.
  bool make_room(std::uint64_t bytes);
  std::uint64_t held_bytes() const { return held_bytes_; }

 private:
  friend class Registration;
  std::uint64_t limit_bytes_;
  std::uint64_t held_bytes_ = 0;
  std::vector<Registration*> held_;  // oldest first
};

class Registration {
 public:
  Registration() = default;
  ~Registration() { release(); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  /// Makes the memory known to the rails, as far as it does not lie in a Buffer. Fabric and budget
  /// outlive what is held. Throws Error{ResourceLimit} and holds nothing then.
  void make(transport::Fabric& fabric, RegistrationBudget& budget, const Buffers& buffers);
  void release() noexcept;
  bool held() const { return fabric_ != nullptr; }
  /// A call runs with it: it is not taken back.
  void set_in_use(bool in_use) { in_use_ = in_use; }
  bool in_use() const { return in_use_; }
  /// The receive buffer, as peers name it, where it does not lie in a Buffer.
  const transport::RemoteWindow& window() const { return window_; }

  /// What make() registers.
  static std::uint64_t bytes_of(const Buffers& buffers) {
    return (buffers.window == nullptr ? buffers.receive_bytes : 0) +
           (buffers.send_is_registered ? 0 : buffers.send_bytes);
  }

 private:
  transport::Fabric* fabric_ = nullptr;
  RegistrationBudget* budget_ = nullptr;
  std::uint64_t bytes_ = 0;
  bool in_use_ = false;
  bool has_window_ = false;  // else the receive buffer lies in a Buffer
  transport::RemoteWindow window_;
  std::span<const std::byte> source_;
};

}  // namespace allrail::coll
