#include "transport/verbs/offer.hpp"

#include <algorithm>

#include <sodium.h>

#include "lib/base/wire.hpp"
#include "transport/verbs/rail_address.hpp"

namespace allrail::transport::verbs {
namespace {

// Bits of one byte.
constexpr std::uint8_t kIsEthernet = 1;
constexpr std::uint8_t kNeedsGids = 2;
constexpr const char* kOfferLabel = "allrail verbs offer";
constexpr std::uint16_t kOfferMagic = 0xa110;
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kOfferBodyBytes = 61;
static_assert(kOfferBodyBytes + kHelloMacBytes == kOfferBytes);
constexpr std::uint32_t kLargestOf24Bits = 0xff'ffff;

bool makes_sense(const PathFacts& path) {
  return path.qp_number != 0 && path.qp_number <= kLargestOf24Bits &&
         path.first_packet <= kLargestOf24Bits && path.mtu_code >= 1 &&
         path.mtu_code <= kLargestMtuCode;
}

}  // namespace

OfferBytes encode(const Offer& offer, const HelloContext& context,
                  std::span<const std::byte> request) {
  base::WireWriter body;
  body.number(kOfferMagic);
  body.number(kVersion);
  body.number(offer.hello.rank);
  body.number(offer.hello.rail);
  body.number(offer.hello.window_address);
  body.number(offer.hello.window_key);
  body.number(offer.hello.credit_address);
  body.number(offer.hello.credit_key);
  body.number(offer.path.qp_number);
  body.number(offer.path.first_packet);
  body.number(offer.path.lid);
  body.number(offer.path.mtu_code);
  body.number(static_cast<std::uint8_t>((offer.path.is_ethernet ? kIsEthernet : 0) |
                                        (offer.path.needs_gids ? kNeedsGids : 0)));
  for (const std::uint8_t byte : offer.path.gid) body.number(byte);
  OfferBytes bytes{};
  std::ranges::copy(body.bytes(), bytes.begin());
  std::ranges::copy(hello_mac(kOfferLabel, body.bytes(), context, request),
                    bytes.begin() + kOfferBodyBytes);
  return bytes;
}

std::optional<Offer> decode_offer(const OfferBytes& bytes, const HelloContext& context,
                                  std::span<const std::byte> request) {
  const auto body = std::span(bytes).first(kOfferBodyBytes);
  const auto mac = hello_mac(kOfferLabel, body, context, request);
  if (sodium_memcmp(mac.data(), bytes.data() + kOfferBodyBytes, mac.size()) != 0)
    return std::nullopt;
  base::WireReader reader(body);
  if (reader.number<std::uint16_t>() != kOfferMagic) return std::nullopt;
  if (reader.number<std::uint16_t>() != kVersion) return std::nullopt;
  Offer offer;
  offer.hello.rank = reader.number<std::int32_t>();
  offer.hello.rail = reader.number<std::uint8_t>();
  offer.hello.window_address = reader.number<std::uint64_t>();
  offer.hello.window_key = reader.number<std::uint32_t>();
  offer.hello.credit_address = reader.number<std::uint64_t>();
  offer.hello.credit_key = reader.number<std::uint32_t>();
  offer.path.qp_number = reader.number<std::uint32_t>();
  offer.path.first_packet = reader.number<std::uint32_t>();
  offer.path.lid = reader.number<std::uint16_t>();
  offer.path.mtu_code = reader.number<std::uint8_t>();
  const auto facts = reader.number<std::uint8_t>();
  offer.path.is_ethernet = (facts & kIsEthernet) != 0;
  offer.path.needs_gids = (facts & kNeedsGids) != 0;
  for (std::uint8_t& byte : offer.path.gid) byte = reader.number<std::uint8_t>();
  if (!reader.at_end() || facts > (kIsEthernet | kNeedsGids) || !makes_sense(offer.path))
    return std::nullopt;
  return offer;
}

}  // namespace allrail::transport::verbs
