// The handshake of TCP links: a real one whose messages are changed on the way, a stranger who
// says anything, and a member of the job who signs anything.
#include <algorithm>
#include <array>

#include <sodium.h>
#include <sys/socket.h>

#include "lib/base/handle.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "transport/tcp/handshake.hpp"

namespace allrail::fuzz {
namespace {

using namespace transport;  // NOLINT(google-build-using-namespace): a program of its own

constexpr std::size_t kMacBytes = 32;

struct Wire {
  base::UniqueFd near, far;
  Wire() {
    int sockets[2] = {-1, -1};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0,
            "a socket is made");
    near = base::UniqueFd(sockets[0]);
    far = base::UniqueFd(sockets[1]);
  }
  void write(std::span<const std::byte> bytes) const {
    require(::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(bytes.size()),
            "a message fits into the socket");
  }
  Bytes read() const {
    Bytes bytes(4096);
    const ssize_t count = ::recv(far.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return bytes;
  }
};

HandshakeIdentity identity(int rank) {
  HandshakeIdentity mine;
  mine.rank = rank;
  mine.size = 4;
  mine.job_hash = 42;
  mine.rail = 1;
  return mine;
}

constexpr int kClient = 2;
constexpr int kServer = 3;
const Bytes kClientExtra(5, std::byte{0xC});
const Bytes kServerExtra(64, std::byte{0x5});

/// Changes one byte of the message if the input says so.
bool change(Bytes& message, Choices& choices) {
  const std::size_t at = choices.below(256);
  const auto by = choices.number<std::uint8_t>();
  if (at >= message.size() || by == 0) return false;
  message[at] ^= static_cast<std::byte>(by);
  return true;
}

void check_changed_conversation(Choices choices) {
  const Wire client_wire, server_wire;
  ClientHandshake client(identity(kClient), kServer, kClientExtra);
  ServerHandshake server(identity(kServer), kServerExtra);
  bool changed = false;
  HandshakeState client_state = client.step(client_wire.near.get());
  Bytes hello = client_wire.read();
  require(hello.size() == kHelloBytes, "the client speaks first");
  changed |= change(hello, choices);
  server_wire.write(hello);
  HandshakeState server_state = server.step(server_wire.near.get());
  Bytes challenge = server_wire.read();
  if (server_state == HandshakeState::InProgress) {
    changed |= change(challenge, choices);
    client_wire.write(challenge);
    client_state = client.step(client_wire.near.get());
  }
  if (client_state == HandshakeState::Done) {
    Bytes proof = client_wire.read();
    changed |= change(proof, choices);
    server_wire.write(proof);
    server_state = server.step(server_wire.near.get());
  }
  require((server_state == HandshakeState::Done) == !changed,
          "a handshake succeeds if nobody changes it, and only then");
  if (changed) return;
  require(equal(client.peer_extra(), kServerExtra) && equal(server.peer_extra(), kClientExtra) &&
              server.peer_rank() == kClient,
          "both ends learn what the other one said");
}

void check_stranger(std::span<const std::byte> input) {
  const auto sent = input.first(std::min<std::size_t>(input.size(), 1000));
  const Wire server_wire, client_wire;
  ServerHandshake server(identity(kServer));
  if (!sent.empty()) server_wire.write(sent);
  const HandshakeState state = server.step(server_wire.near.get());
  require(state != HandshakeState::Done, "a stranger does not get in");
  require(state != HandshakeState::Failed || !server.failure_text().empty(), "it is told why not");
  ClientHandshake client(identity(kClient), kServer);
  if (!sent.empty()) client_wire.write(sent);
  require(client.step(client_wire.near.get()) != HandshakeState::Done,
          "a stranger is not taken for a peer");
}

template <class... Parts>
void sign(std::span<std::byte> mac, std::string_view label, const Parts&... parts) {
  const JobSecret secret;
  crypto_auth_hmacsha256_state state;
  const auto raw = [](std::span<const std::byte> bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  };
  crypto_auth_hmacsha256_init(&state, raw(secret.bytes()), kSecretBytes);
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(label.data()),
                                label.size());
  (crypto_auth_hmacsha256_update(&state, raw(parts), std::span<const std::byte>(parts).size()),
   ...);
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(mac.data()));
}

/// Takes the hello and the proof from the input and signs them.
void check_member(Choices choices) {
  const Wire wire;
  ServerHandshake server(identity(kServer));
  std::array<std::byte, kHelloBytes> hello{};
  std::ranges::copy(choices.take(kHelloBytes - kMacBytes), hello.begin());
  const auto hello_body = std::span(hello).first(kHelloBytes - kMacBytes);
  sign(std::span(hello).last(kMacBytes), "allrail hello 1.", hello_body);
  wire.write(hello);
  if (server.step(wire.near.get()) != HandshakeState::InProgress) return;
  const Bytes challenge = wire.read();
  require(challenge.size() == kChallengeBytes, "a right hello is answered");
  std::array<std::byte, kProofBytes> proof{};
  std::ranges::copy(choices.take(kProofBytes - kMacBytes), proof.begin());
  const auto proof_body = std::span(proof).first(kProofBytes - kMacBytes);
  sign(std::span(proof).last(kMacBytes), "allrail client 1", hello, challenge, proof_body);
  wire.write(proof);
  if (server.step(wire.near.get()) != HandshakeState::Done) return;
  require(server.peer_rank() >= 0 && server.peer_rank() < 4 && server.peer_rank() != kServer,
          "the peer is another rank of the job");
  require(server.peer_extra().size() <= kMaxHandshakeExtraBytes &&
              equal(server.peer_extra(), proof_body.subspan(8, server.peer_extra().size())),
          "what it sent along is part of its proof");
}

}  // namespace

std::vector<Bytes> seeds() {
  ensure_sodium();
  // A real hello and a real proof without their MACs, and what they look like on the wire.
  const Wire client_wire, server_wire;
  ClientHandshake client(identity(kClient), kServer, kClientExtra);
  ServerHandshake server(identity(kServer), kServerExtra);
  (void)client.step(client_wire.near.get());
  const Bytes hello = client_wire.read();
  server_wire.write(hello);
  (void)server.step(server_wire.near.get());
  client_wire.write(server_wire.read());
  require(client.step(client_wire.near.get()) == HandshakeState::Done, "a real handshake works");
  const Bytes proof = client_wire.read();
  Bytes member = {std::byte{2}};
  member.insert(member.end(), hello.begin(), hello.end() - kMacBytes);
  member.insert(member.end(), proof.begin(), proof.end() - kMacBytes);
  Bytes stranger = {std::byte{1}};
  stranger.insert(stranger.end(), hello.begin(), hello.end());
  stranger.insert(stranger.end(), proof.begin(), proof.end());
  return {Bytes{std::byte{0}}, stranger, member};
}

void fuzz_one(std::span<const std::byte> input) {
  ensure_sodium();
  Choices choices(input);
  switch (choices.below(3)) {
    case 0:
      return check_changed_conversation(choices);
    case 1:
      return check_stranger(choices.rest());
    default:
      return check_member(choices);
  }
}

}  // namespace allrail::fuzz
