// The handshake that opens every TCP connection of a job: both sides prove that they know the
// job's secret before anything else is read. Used by rails and by the control plane.
//
//   client -> server  hello      who I am, whom I want, a nonce, a MAC over it
//   server -> client  challenge  a nonce, a small payload, a MAC over all so far
//   client -> server  proof      a small payload, a MAC over all so far
//
// All messages have a fixed size. The MAC is HMAC-SHA256 with the job's 32-byte secret and a label
// for each message. The first MAC can be replayed by somebody who overheard it: it only decides
// that the connection is worth an answer and a longer deadline. The last two cannot.
// Nothing is encrypted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lib/base/clock.hpp"
#include "transport/job_secret.hpp"

namespace allrail::transport {

inline constexpr std::uint16_t kProtocolVersion = 4;
inline constexpr std::size_t kMaxHandshakeExtraBytes = 64;
/// A server waits this long for a connection that has proved nothing, ...
inline constexpr std::int64_t kStrangerDeadlineMs = 2'000;
/// ... and this long for one whose hello was right: its process may be busy computing.
inline constexpr std::int64_t kMemberDeadlineMs = 60'000;

enum class Purpose : std::uint8_t { RailLink = 1, ControlLink = 2, SideChannel = 3 };

/// Who this process is in handshakes. `rail` is the number of the rail that listens (server) or
/// that is connected to (client); control links use 0.
struct HandshakeIdentity {
  JobSecret secret;
  std::uint64_t job_hash = 0;
  int rank = 0;
  int size = 1;
  int rail = 0;
  Purpose purpose = Purpose::RailLink;
};

/// A payload of at most kMaxHandshakeExtraBytes that travels authenticated with the handshake.
class HandshakeExtra {
 public:
  HandshakeExtra() = default;
  /// Throws Error{Internal} if it is too long.
  explicit HandshakeExtra(std::span<const std::byte> bytes);
  std::span<const std::byte> bytes() const { return {bytes_.data(), count_}; }

 private:
  std::array<std::byte, kMaxHandshakeExtraBytes> bytes_{};
  std::size_t count_ = 0;
};

enum class HandshakeState { InProgress, Done, Failed };

inline constexpr std::size_t kHelloBytes = 96;
inline constexpr std::size_t kChallengeBytes = 136;
inline constexpr std::size_t kProofBytes = 104;
static_assert(kHelloBytes + kProofBytes <= 256, "what is read from an unauthenticated peer");

/// Moves one message over a non-blocking socket, in as many pieces as it takes.
class MessageTransfer {
 public:
  enum class Result { Again, Complete, Closed, Error };
  explicit MessageTransfer(std::span<std::byte> message) : message_(message) {}
  Result send(int fd);
  Result receive(int fd, std::size_t wanted_bytes);
  std::size_t moved_bytes() const { return moved_; }
  int error_number() const { return error_number_; }

 private:
  std::span<std::byte> message_;
  std::size_t moved_ = 0;
  int error_number_ = 0;
};

/// What both sides of a handshake share. Neither owns the socket.
class Handshake {
 public:
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  /// Half a sentence, such as "rank 3 speaks protocol version 2, this process version 1".
  const std::string& failure_text() const { return failure_text_; }
  /// Whether step() waits for the socket to become writable, not readable.
  bool wants_write() const { return wants_write_; }
  /// What the other side sent along; valid when Done.
  std::span<const std::byte> peer_extra() const { return peer_extra_.bytes(); }

 protected:
  Handshake(HandshakeIdentity identity, std::span<const std::byte> extra);
  ~Handshake() = default;
  HandshakeState failed(std::string text);
  HandshakeState transfer_failed(const MessageTransfer& transfer, MessageTransfer::Result result);

  const HandshakeIdentity identity_;
  const HandshakeExtra extra_;
  HandshakeExtra peer_extra_;
  std::array<std::byte, kHelloBytes> hello_{};
  std::array<std::byte, kChallengeBytes> challenge_{};
  std::array<std::byte, kProofBytes> proof_{};
  std::string failure_text_;
  bool wants_write_ = false;
};

/// The connecting side. It has no deadline for the answer: a peer that computes does not poll.
class ClientHandshake : public Handshake {
 public:
  ClientHandshake(const HandshakeIdentity& identity, int to_rank,
                  std::span<const std::byte> extra = {});
  /// Does what can be done without blocking. Call it when the socket is connected, then when it
  /// is readable (writable where wants_write()).
  HandshakeState step(int fd);

 private:
  enum class Phase { SendHello, ReceiveChallenge, SendProof, Over };
  HandshakeState check_challenge();
  HandshakeState not_a_member();

  int to_rank_;
  Phase phase_ = Phase::SendHello;
  HandshakeState final_state_ = HandshakeState::Failed;
  MessageTransfer hello_transfer_, challenge_transfer_, proof_transfer_;
};

/// The accepting side.
class ServerHandshake : public Handshake {
 public:
  explicit ServerHandshake(const HandshakeIdentity& identity,
                           std::span<const std::byte> extra = {});
  HandshakeState step(int fd);
  /// The rank that connected; valid when Done.
  int peer_rank() const { return peer_rank_; }
  /// The hello carried a right MAC: not just anybody.
  bool hello_accepted() const { return phase_ > Phase::ReceiveHello; }
  bool deadline_passed() const { return deadline_.passed(); }

 private:
  enum class Phase { ReceiveHello, SendChallenge, ReceiveProof, Over };
  HandshakeState advance(int fd);
  HandshakeState check_hello();
  HandshakeState check_proof();

  int peer_rank_ = -1;
  Phase phase_ = Phase::ReceiveHello;
  HandshakeState final_state_ = HandshakeState::Failed;
  base::Deadline deadline_;
  MessageTransfer hello_transfer_, challenge_transfer_, proof_transfer_;
};

}  // namespace allrail::transport
