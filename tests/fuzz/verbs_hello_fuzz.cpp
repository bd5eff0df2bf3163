// The hello of verbs links: by a stranger, and by a member of the job that says anything.
#include <algorithm>

#include <sodium.h>

#include "lib/base/wire.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "transport/verbs/hello.hpp"

namespace allrail::fuzz {
namespace {

using namespace transport;         // NOLINT(google-build-using-namespace): a program of its own
using namespace transport::verbs;  // NOLINT(google-build-using-namespace): alike

constexpr std::size_t kMacAt = kHelloBytes - kHelloMacBytes;
constexpr std::size_t kBodyBytes = 34;

const JobSecret& secret() {
  ensure_sodium();
  static const JobSecret all_zero;
  return all_zero;
}

HelloContext context() { return {secret(), 42, 1, 0}; }

Hello a_hello() {
  Hello hello;
  hello.rank = 3;
  hello.window_address = 0x7f0000001000;
  hello.window_key = 17;
  hello.credit_address = 0x7f0000002000;
  hello.credit_key = 19;
  return hello;
}

/// As a member of the job makes it, whatever the body.
HelloBytes with_right_mac(std::span<const std::byte> body, std::span<const std::byte> request) {
  HelloBytes bytes{};
  std::ranges::copy(body.first(std::min(body.size(), kBodyBytes)), bytes.begin());
  base::WireWriter facts;
  facts.text("allrail verbs hello");
  facts.number(context().job_hash);
  facts.number(std::int32_t{context().to_rank});
  facts.number(std::int32_t{context().rail_of_acceptor});
  facts.blob(request);
  facts.blob(std::span(bytes).first(kBodyBytes));
  const auto key = secret().bytes();
  crypto_generichash(reinterpret_cast<unsigned char*>(bytes.data() + kMacAt), kHelloMacBytes,
                     reinterpret_cast<const unsigned char*>(facts.bytes().data()),
                     facts.bytes().size(), reinterpret_cast<const unsigned char*>(key.data()),
                     key.size());
  return bytes;
}

}  // namespace

std::vector<Bytes> seeds() {
  const HelloBytes bare = encode(a_hello(), context(), {});
  // The fuzzer knows the MAC of a member, or its seeds would be refused like everything else.
  require(with_right_mac(std::span(bare).first(kBodyBytes), {}) == bare, "both MACs are the same");
  return {Bytes(bare.begin(), bare.end()), Bytes(bare.begin(), bare.begin() + kBodyBytes)};
}

void fuzz_one(std::span<const std::byte> input) {
  const HelloBytes real = encode(a_hello(), context(), {});
  if (const auto hello = decode(input, context(), {})) {
    // Only who knows the secret gets so far: the seed, perhaps with other bytes of padding.
    require(*hello == a_hello(), "a stranger's hello is the one that was overheard");
    require(!decode(input, context(), real), "an answer is no request");
  }
  for (const std::span<const std::byte> request :
       {std::span<const std::byte>(), std::span<const std::byte>(real)}) {
    const HelloBytes bytes = with_right_mac(input, request);
    const auto hello = decode(bytes, context(), request);
    if (!hello) continue;
    require(encode(*hello, context(), request) == bytes, "it re-encodes to the same bytes");
    HelloContext other = context();
    ++other.to_rank;
    require(!decode(bytes, other, request), "a hello counts for one rank only");
    HelloBytes changed = bytes;
    changed[input.size() % kBodyBytes] ^= std::byte{1};
    require(!decode(changed, context(), request), "a hello that was changed is refused");
  }
}

}  // namespace allrail::fuzz
