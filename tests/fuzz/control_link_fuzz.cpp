// Messages of control links, alone and as the stream that a link reads them from.
#include <optional>

#include <sys/socket.h>

#include "lib/base/error.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "transport/control/link.hpp"
#include "transport/control/messages.hpp"

namespace allrail::fuzz {
namespace {

using namespace transport;  // NOLINT(google-build-using-namespace): a program of its own
using control::Message;

/// With length; nothing for a message that this version does not know.
std::optional<Bytes> encode_again(const Message& message) {
  if (const auto* cause = std::get_if<AbortCause>(&message)) return control::encode(*cause);
  if (const auto* beat = std::get_if<control::Heartbeat>(&message)) return control::encode(*beat);
  if (const auto* bye = std::get_if<control::Goodbye>(&message)) return control::encode(*bye);
  return std::nullopt;
}

void check_alone(std::span<const std::byte> input) {
  const auto message = control::decode(input);
  if (!message) return;
  require(input.size() <= control::kMaxMessageBytes, "no message is longer than allowed");
  const auto again = encode_again(*message);
  if (!again) return;
  require(equal(std::span(*again).subspan(control::kLengthBytes), input),
          "a message re-encodes to the same bytes");
}

/// What a link has to hand on of a stream, re-encoded: all messages before the first bad one.
Bytes expected_of(std::span<const std::byte> stream) {
  Bytes expected;
  while (stream.size() >= control::kLengthBytes) {
    const auto length = control::decode_length(stream.first<control::kLengthBytes>());
    if (!length || stream.size() < control::kLengthBytes + *length) break;
    const auto message = control::decode(stream.subspan(control::kLengthBytes, *length));
    if (!message) break;
    const auto again = encode_again(*message);
    if (again) expected.insert(expected.end(), again->begin(), again->end());
    stream = stream.subspan(control::kLengthBytes + *length);
  }
  return expected;
}

/// What a link over a socket hands on does not depend on the pieces that it comes in.
void check_stream(std::span<const std::byte> input) {
  int sockets[2] = {-1, -1};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0, "a socket is made");
  base::UniqueFd far(sockets[1]);
  control::EventLoop loop;
  bool closed = false;
  Bytes seen;
  const Bytes expected = expected_of(input);
  control::Link link(loop, base::UniqueFd(sockets[0]),
                     {[&](const Message& message) {
                        require(!closed, "a link that is closed hands nothing on");
                        const auto again = encode_again(message);
                        if (again) seen.insert(seen.end(), again->begin(), again->end());
                      },
                      [&](const std::string& reason) {
                        require(!reason.empty(), "the end of a link has a reason");
                        closed = true;
                      }});
  // In pieces, whose length the bytes themselves choose.
  while (!input.empty() && !closed) {
    const std::size_t length = 1 + std::to_integer<std::size_t>(input.front());
    const auto piece = input.first(std::min(length, input.size()));
    require(::send(far.get(), piece.data(), piece.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(piece.size()),
            "the piece fits into the socket");
    input = input.subspan(piece.size());
    loop.run_once(0);
  }
  // Closing would do, but not at once: whoever looks at this process's descriptors holds it open.
  ::shutdown(far.get(), SHUT_RDWR);
  for (int i = 0; i < 2 && !closed; ++i) loop.run_once(0);
  require(closed, "a link notices the end of its stream");
  require(seen == expected, "a link hands on every message before the first bad one");
}

}  // namespace

std::vector<Bytes> seeds() {
  const Bytes cause = control::encode(AbortCause{3, 1, "rank 1 died"});
  const Bytes beat =
      control::encode(control::Heartbeat{{{1, 7, 0x1234}, {2, 8, 0x5678}}, {3, 6, 100}});
  const Bytes bye = control::encode(control::Goodbye{});
  std::vector<Bytes> all;
  Bytes stream;
  for (const Bytes& one : {cause, beat, bye}) {
    all.push_back(one);
    all.emplace_back(one.begin() + control::kLengthBytes, one.end());
    stream.insert(stream.end(), one.begin(), one.end());
  }
  all.push_back(stream);
  return all;
}

void fuzz_one(std::span<const std::byte> input) {
  check_alone(input);
  check_stream(input);
}

}  // namespace allrail::fuzz
