// The offer of direct links, as it comes over the side channel: by a stranger, and by a member of
// the job that says anything.
#include <algorithm>

#include "tests/fuzz/fuzz.hpp"
#include "transport/verbs/offer.hpp"

namespace allrail::fuzz {
namespace {

using namespace transport;         // NOLINT(google-build-using-namespace): a program of its own
using namespace transport::verbs;  // NOLINT(google-build-using-namespace): alike

constexpr std::size_t kBodyBytes = kOfferBytes - kHelloMacBytes;

const JobSecret& secret() {
  ensure_sodium();
  static const JobSecret all_zero;
  return all_zero;
}

HelloContext context() { return {secret(), 42, 1, 0}; }

Offer an_offer(bool is_ethernet) {
  Offer offer;
  offer.hello.rank = 3;
  offer.hello.rail = 2;
  offer.hello.window_address = 0x7f0000001000;
  offer.hello.window_key = 17;
  offer.hello.credit_address = 0x7f0000002000;
  offer.hello.credit_key = 19;
  offer.path.qp_number = 0xfffffe;
  offer.path.first_packet = 0x123456;
  offer.path.lid = is_ethernet ? 0 : 7;
  offer.path.mtu_code = 5;
  offer.path.is_ethernet = is_ethernet;
  for (std::size_t i = 0; i < offer.path.gid.size(); ++i)
    offer.path.gid[i] = static_cast<std::uint8_t>(i * 17);
  return offer;
}

/// As a member of the job makes it, whatever the body.
OfferBytes with_right_mac(std::span<const std::byte> body, std::span<const std::byte> request) {
  OfferBytes bytes{};
  std::ranges::copy(body.first(std::min(body.size(), kBodyBytes)), bytes.begin());
  const auto mac =
      hello_mac("allrail verbs offer", std::span(bytes).first(kBodyBytes), context(), request);
  std::ranges::copy(mac, bytes.begin() + kBodyBytes);
  return bytes;
}

/// What the side channel hands on is as long as an offer.
OfferBytes as_received(std::span<const std::byte> input) {
  OfferBytes bytes{};
  std::ranges::copy(input.first(std::min(input.size(), kOfferBytes)), bytes.begin());
  return bytes;
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (const bool is_ethernet : {false, true}) {
    const OfferBytes bytes = encode(an_offer(is_ethernet), context(), {});
    // The fuzzer knows the MAC of a member, or its seeds would be refused like everything else.
    require(with_right_mac(std::span(bytes).first(kBodyBytes), {}) == bytes,
            "both MACs are the same");
    all.emplace_back(bytes.begin(), bytes.end());
  }
  return all;
}

void fuzz_one(std::span<const std::byte> input) {
  const OfferBytes real = encode(an_offer(true), context(), {});
  const OfferBytes strange = as_received(input);
  if (const auto offer = decode_offer(strange, context(), {})) {
    // Only who knows the secret gets so far: one of the seeds.
    require(*offer == an_offer(offer->path.is_ethernet),
            "a stranger's offer is one that was overheard");
    require(!decode_offer(strange, context(), real), "an answer is no request");
  }
  for (const std::span<const std::byte> request :
       {std::span<const std::byte>(), std::span<const std::byte>(real)}) {
    const OfferBytes bytes = with_right_mac(input, request);
    const auto offer = decode_offer(bytes, context(), request);
    if (!offer) continue;
    const PathFacts& path = offer->path;
    require(path.qp_number >= 1 && path.qp_number < 1U << 24 && path.first_packet < 1U << 24,
            "numbers have 24 bits");
    require(path.mtu_code >= 1 && path.mtu_code <= 5, "the MTU is one of ibv_mtu");
    require(encode(*offer, context(), request) == bytes, "it re-encodes to the same bytes");
    HelloContext other = context();
    ++other.to_rank;
    require(!decode_offer(bytes, other, request), "an offer counts for one rank only");
    OfferBytes changed = bytes;
    changed[input.size() % kBodyBytes] ^= std::byte{1};
    require(!decode_offer(changed, context(), request), "an offer that was changed is refused");
  }
}

}  // namespace allrail::fuzz
