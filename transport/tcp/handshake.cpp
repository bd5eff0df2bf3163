#include "transport/tcp/handshake.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <sodium.h>
#include <sys/socket.h>

#include "lib/base/error.hpp"

namespace allrail::transport {
namespace {

static_assert(kSecretBytes == crypto_auth_hmacsha256_KEYBYTES);
constexpr std::size_t kMacBytes = crypto_auth_hmacsha256_BYTES;
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kHeaderBytes = 8;

// The header is the same in every version of the protocol: magic (4), version (2), kind (1), and
// one byte that depends on the kind. Numbers are little-endian.
constexpr std::uint32_t kMagic = 0x6C'72'6C'61;  // "alrl"
enum class Kind : std::uint8_t { Hello = 1, Challenge = 2, Proof = 3, OtherVersion = 4 };

// Hello: header (purpose), job 8..16, from 16..20, to 20..24, rail 24..28, zero 28..32,
// nonce 32..64, MAC 64..96. Challenge: header (bytes of extra), nonce 8..40, extra 40..104,
// MAC 104..136. Proof: header (bytes of extra), extra 8..72, MAC 72..104.
constexpr std::size_t kHelloNonceAt = 32, kHelloMacAt = 64;
constexpr std::size_t kChallengeNonceAt = 8, kChallengeExtraAt = 40, kChallengeMacAt = 104;
constexpr std::size_t kProofExtraAt = 8, kProofMacAt = 72;
static_assert(kHelloMacAt + kMacBytes == kHelloBytes);
static_assert(kChallengeMacAt + kMacBytes == kChallengeBytes);
static_assert(kProofMacAt + kMacBytes == kProofBytes);
static_assert(kChallengeExtraAt + kMaxHandshakeExtraBytes == kChallengeMacAt);
static_assert(kProofExtraAt + kMaxHandshakeExtraBytes == kProofMacAt);

// One label per message, so that no MAC can stand for another one.
constexpr std::string_view kHelloLabel = "allrail hello 1.";
constexpr std::string_view kServerLabel = "allrail server 1";
constexpr std::string_view kClientLabel = "allrail client 1";

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

template <class T>
void put_number(std::byte* at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    at[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xFF);
  }
}

template <class T>
T get_number(const std::byte* at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= std::to_integer<std::uint64_t>(at[i]) << (8 * i);
  }
  return static_cast<T>(value);
}

void put_header(std::byte* at, Kind kind, std::uint8_t last) {
  put_number<std::uint32_t>(at, kMagic);
  put_number<std::uint16_t>(at + 4, kProtocolVersion);
  at[6] = static_cast<std::byte>(kind);
  at[7] = static_cast<std::byte>(last);
}

std::array<std::byte, kMacBytes> mac_of(const JobSecret& secret, std::string_view label,
                                        std::initializer_list<std::span<const std::byte>> parts) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, raw(secret.bytes().data()), kSecretBytes);
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(label.data()),
                                label.size());
  for (const std::span<const std::byte>& part : parts) {
    crypto_auth_hmacsha256_update(&state, raw(part.data()), part.size());
  }
  std::array<std::byte, kMacBytes> mac;
  crypto_auth_hmacsha256_final(&state, raw(mac.data()));
  sodium_memzero(&state, sizeof(state));
  return mac;
}

bool mac_matches(const std::byte* at, const std::array<std::byte, kMacBytes>& mac) {
  return sodium_memcmp(at, mac.data(), kMacBytes) == 0;
}

std::string version_text(std::string_view who, unsigned version) {
  return fmt::format(
      "{} speaks protocol version {}, this process version {}; run the same Allrail "
      "everywhere",
      who, version, kProtocolVersion);
}

}  // namespace

HandshakeExtra::HandshakeExtra(std::span<const std::byte> bytes) : count_(bytes.size()) {
  if (bytes.size() > bytes_.size()) {
    base::fail(Code::Internal, "a handshake carries at most {} bytes, not {}", bytes_.size(),
               bytes.size());
  }
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
}

MessageTransfer::Result MessageTransfer::send(int fd) {
  while (moved_ < message_.size()) {
    const ssize_t sent =
        ::send(fd, message_.data() + moved_, message_.size() - moved_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Result::Again;
      error_number_ = errno;
      return Result::Error;
    }
    moved_ += static_cast<std::size_t>(sent);
  }
  return Result::Complete;
}

MessageTransfer::Result MessageTransfer::receive(int fd, std::size_t wanted_bytes) {
  // Never reads past this message: what follows belongs to whoever takes the socket over.
  while (moved_ < wanted_bytes) {
    const ssize_t received =
        ::recv(fd, message_.data() + moved_, wanted_bytes - moved_, MSG_DONTWAIT);
    if (received == 0) return Result::Closed;
    if (received < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Result::Again;
      error_number_ = errno;
      return Result::Error;
    }
    moved_ += static_cast<std::size_t>(received);
  }
  return Result::Complete;
}

Handshake::Handshake(HandshakeIdentity identity, std::span<const std::byte> extra)
    : identity_(std::move(identity)), extra_(extra) {
  ensure_sodium();
}

HandshakeState Handshake::failed(std::string text) {
  failure_text_ = std::move(text);
  return HandshakeState::Failed;
}

HandshakeState Handshake::transfer_failed(const MessageTransfer& transfer,
                                          MessageTransfer::Result result) {
  if (result == MessageTransfer::Result::Again) return HandshakeState::InProgress;
  if (result == MessageTransfer::Result::Closed) {
    return failed("the other side closed the connection during the handshake");
  }
  return failed(fmt::format("the connection broke during the handshake: {}",
                            base::errno_text(transfer.error_number())));
}

ClientHandshake::ClientHandshake(const HandshakeIdentity& identity, int to_rank,
                                 std::span<const std::byte> extra)
    : Handshake(identity, extra),
      to_rank_(to_rank),
      hello_transfer_(hello_),
      challenge_transfer_(challenge_),
      proof_transfer_(proof_) {
  put_header(hello_.data(), Kind::Hello, static_cast<std::uint8_t>(identity_.purpose));
  put_number<std::uint64_t>(hello_.data() + 8, identity_.job_hash);
  put_number<std::uint32_t>(hello_.data() + 16, static_cast<std::uint32_t>(identity_.rank));
  put_number<std::uint32_t>(hello_.data() + 20, static_cast<std::uint32_t>(to_rank_));
  put_number<std::uint32_t>(hello_.data() + 24, static_cast<std::uint32_t>(identity_.rail));
  randombytes_buf(hello_.data() + kHelloNonceAt, kNonceBytes);
  const auto mac = mac_of(identity_.secret, kHelloLabel, {std::span(hello_.data(), kHelloMacAt)});
  std::copy(mac.begin(), mac.end(), hello_.begin() + kHelloMacAt);
}

HandshakeState ClientHandshake::step(int fd) {
  using Result = MessageTransfer::Result;
  wants_write_ = false;
  if (phase_ == Phase::SendHello) {
    const Result result = hello_transfer_.send(fd);
    wants_write_ = result == Result::Again;
    if (result != Result::Complete) return transfer_failed(hello_transfer_, result);
    phase_ = Phase::ReceiveChallenge;
  }
  if (phase_ == Phase::ReceiveChallenge) {
    // The header first: another version's answer may end after it.
    Result result = challenge_transfer_.receive(fd, kHeaderBytes);
    if (result != Result::Complete) return transfer_failed(challenge_transfer_, result);
    const unsigned version = get_number<std::uint16_t>(challenge_.data() + 4);
    if (get_number<std::uint32_t>(challenge_.data()) == kMagic && version != kProtocolVersion) {
      phase_ = Phase::Over;
      return failed(version_text(fmt::format("rank {}", to_rank_), version));
    }
    // A socket that the system connected to itself would answer with our own hello.
    if (challenge_[6] != static_cast<std::byte>(Kind::Challenge)) return not_a_member();
    result = challenge_transfer_.receive(fd, kChallengeBytes);
    if (result != Result::Complete) return transfer_failed(challenge_transfer_, result);
    phase_ = Phase::Over;
    if (check_challenge() == HandshakeState::Failed) return HandshakeState::Failed;
    phase_ = Phase::SendProof;
  }
  if (phase_ == Phase::SendProof) {
    const Result result = proof_transfer_.send(fd);
    wants_write_ = result == Result::Again;
    if (result != Result::Complete) return transfer_failed(proof_transfer_, result);
    phase_ = Phase::Over;
    final_state_ = HandshakeState::Done;
  }
  return final_state_;
}

HandshakeState ClientHandshake::not_a_member() {
  phase_ = Phase::Over;
  return failed(
      fmt::format("what answers there did not prove that it is rank {} of this job", to_rank_));
}

HandshakeState ClientHandshake::check_challenge() {
  const auto extra_bytes = std::to_integer<std::size_t>(challenge_[7]);
  const auto mac = mac_of(identity_.secret, kServerLabel,
                          {hello_, std::span(challenge_.data(), kChallengeMacAt)});
  if (get_number<std::uint32_t>(challenge_.data()) != kMagic ||
      challenge_[6] != static_cast<std::byte>(Kind::Challenge) ||
      extra_bytes > kMaxHandshakeExtraBytes ||
      !mac_matches(challenge_.data() + kChallengeMacAt, mac)) {
    return not_a_member();
  }
  peer_extra_ = HandshakeExtra(std::span(challenge_.data() + kChallengeExtraAt, extra_bytes));
  put_header(proof_.data(), Kind::Proof, static_cast<std::uint8_t>(extra_.bytes().size()));
  std::copy(extra_.bytes().begin(), extra_.bytes().end(), proof_.begin() + kProofExtraAt);
  const auto proof_mac = mac_of(identity_.secret, kClientLabel,
                                {hello_, challenge_, std::span(proof_.data(), kProofMacAt)});
  std::copy(proof_mac.begin(), proof_mac.end(), proof_.begin() + kProofMacAt);
  return HandshakeState::InProgress;
}

ServerHandshake::ServerHandshake(const HandshakeIdentity& identity,
                                 std::span<const std::byte> extra)
    : Handshake(identity, extra),
      deadline_(base::Deadline::after(std::chrono::milliseconds(kStrangerDeadlineMs))),
      hello_transfer_(hello_),
      challenge_transfer_(challenge_),
      proof_transfer_(proof_) {}

HandshakeState ServerHandshake::step(int fd) {
  if (phase_ == Phase::Over) return final_state_;
  wants_write_ = false;
  const HandshakeState state = advance(fd);
  if (state != HandshakeState::InProgress) {
    phase_ = Phase::Over;
    final_state_ = state;
  }
  return state;
}

HandshakeState ServerHandshake::advance(int fd) {
  using Result = MessageTransfer::Result;
  if (phase_ == Phase::ReceiveHello) {
    Result result = hello_transfer_.receive(fd, kHeaderBytes);
    if (result != Result::Complete) return transfer_failed(hello_transfer_, result);
    if (get_number<std::uint32_t>(hello_.data()) != kMagic) {
      return failed("it does not speak Allrail's protocol");
    }
    const unsigned version = get_number<std::uint16_t>(hello_.data() + 4);
    if (version != kProtocolVersion) {
      // Tells the client why, in the part of the protocol that all versions share.
      std::array<std::byte, kHeaderBytes> answer{};
      put_header(answer.data(), Kind::OtherVersion, 0);
      (void)::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      return failed(version_text("it", version));
    }
    result = hello_transfer_.receive(fd, kHelloBytes);
    if (result != Result::Complete) return transfer_failed(hello_transfer_, result);
    if (check_hello() == HandshakeState::Failed) return HandshakeState::Failed;
    phase_ = Phase::SendChallenge;
    deadline_ = base::Deadline::after(std::chrono::milliseconds(kMemberDeadlineMs));
  }
  if (phase_ == Phase::SendChallenge) {
    const Result result = challenge_transfer_.send(fd);
    wants_write_ = result == Result::Again;
    if (result != Result::Complete) return transfer_failed(challenge_transfer_, result);
    phase_ = Phase::ReceiveProof;
  }
  const Result result = proof_transfer_.receive(fd, kProofBytes);
  if (result != Result::Complete) return transfer_failed(proof_transfer_, result);
  return check_proof();
}

HandshakeState ServerHandshake::check_hello() {
  const auto mac = mac_of(identity_.secret, kHelloLabel, {std::span(hello_.data(), kHelloMacAt)});
  if (hello_[6] != static_cast<std::byte>(Kind::Hello) ||
      !mac_matches(hello_.data() + kHelloMacAt, mac)) {
    return failed("it does not know the secret of this job");
  }
  const auto from = get_number<std::uint32_t>(hello_.data() + 16);
  const auto to = get_number<std::uint32_t>(hello_.data() + 20);
  const auto rail = get_number<std::uint32_t>(hello_.data() + 24);
  if (get_number<std::uint64_t>(hello_.data() + 8) != identity_.job_hash) {
    return failed("it belongs to another job");
  }
  if (to != static_cast<std::uint32_t>(identity_.rank)) {
    return failed(fmt::format("it wants rank {}, and this is rank {}", to, identity_.rank));
  }
  if (from >= static_cast<std::uint32_t>(identity_.size) || from == to) {
    return failed(fmt::format("it says it is rank {} of {}", from, identity_.size));
  }
  if (rail != static_cast<std::uint32_t>(identity_.rail) ||
      hello_[7] != static_cast<std::byte>(identity_.purpose)) {
    return failed("it wants another rail or another kind of link");
  }
  peer_rank_ = static_cast<int>(from);
  put_header(challenge_.data(), Kind::Challenge, static_cast<std::uint8_t>(extra_.bytes().size()));
  randombytes_buf(challenge_.data() + kChallengeNonceAt, kNonceBytes);
  std::copy(extra_.bytes().begin(), extra_.bytes().end(), challenge_.begin() + kChallengeExtraAt);
  const auto challenge_mac = mac_of(identity_.secret, kServerLabel,
                                    {hello_, std::span(challenge_.data(), kChallengeMacAt)});
  std::copy(challenge_mac.begin(), challenge_mac.end(), challenge_.begin() + kChallengeMacAt);
  return HandshakeState::InProgress;
}

HandshakeState ServerHandshake::check_proof() {
  const auto extra_bytes = std::to_integer<std::size_t>(proof_[7]);
  const auto mac = mac_of(identity_.secret, kClientLabel,
                          {hello_, challenge_, std::span(proof_.data(), kProofMacAt)});
  if (get_number<std::uint32_t>(proof_.data()) != kMagic ||
      get_number<std::uint16_t>(proof_.data() + 4) != kProtocolVersion ||
      proof_[6] != static_cast<std::byte>(Kind::Proof) || extra_bytes > kMaxHandshakeExtraBytes ||
      !mac_matches(proof_.data() + kProofMacAt, mac)) {
    return failed("its proof of the job's secret is wrong");
  }
  peer_extra_ = HandshakeExtra(std::span(proof_.data() + kProofExtraAt, extra_bytes));
  return HandshakeState::Done;
}

}  // namespace allrail::transport
