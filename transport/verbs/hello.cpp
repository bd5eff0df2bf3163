#include "transport/verbs/hello.hpp"

#include <algorithm>
#include <cstring>

#include <sodium.h>

#include "lib/base/wire.hpp"

namespace allrail::transport::verbs {
namespace {

constexpr const char* kHelloLabel = "allrail verbs hello";
constexpr std::uint16_t kHelloMagic = 0xa11a;
constexpr std::size_t kHelloBodyBytes = 34;
constexpr std::size_t kMacAt = kHelloBytes - kHelloMacBytes;
static_assert(kHelloBodyBytes <= kMacAt);

}  // namespace

HelloMac hello_mac(std::string_view label, std::span<const std::byte> body,
                   const HelloContext& context, std::span<const std::byte> request) {
  base::WireWriter facts;
  facts.text(label);
  facts.number(context.job_hash);
  facts.number(static_cast<std::int32_t>(context.to_rank));
  facts.number(static_cast<std::int32_t>(context.rail_of_acceptor));
  facts.blob(request);
  facts.blob(body);
  HelloMac mac;
  crypto_generichash(reinterpret_cast<unsigned char*>(mac.data()), mac.size(),
                     reinterpret_cast<const unsigned char*>(facts.bytes().data()),
                     facts.bytes().size(),
                     reinterpret_cast<const unsigned char*>(context.secret.bytes().data()),
                     context.secret.bytes().size());
  return mac;
}

HelloBytes encode(const Hello& hello, const HelloContext& context,
                  std::span<const std::byte> request) {
  base::WireWriter body;
  body.number(kHelloMagic);
  body.number(kHelloVersion);
  body.number(hello.rank);
  body.number(hello.rail);
  body.number(static_cast<std::uint8_t>(hello.probes ? 1 : 0));
  body.number(hello.window_address);
  body.number(hello.window_key);
  body.number(hello.credit_address);
  body.number(hello.credit_key);
  static_assert(2 + 2 + 4 + 1 + 1 + 8 + 4 + 8 + 4 == kHelloBodyBytes);
  HelloBytes bytes{};
  std::ranges::copy(body.bytes(), bytes.begin());
  std::ranges::copy(hello_mac(kHelloLabel, body.bytes(), context, request), bytes.begin() + kMacAt);
  return bytes;
}

std::optional<Hello> decode(std::span<const std::byte> bytes, const HelloContext& context,
                            std::span<const std::byte> request) {
  if (bytes.size() < kHelloBytes) return std::nullopt;
  const auto body = bytes.first(kHelloBodyBytes);
  const auto mac = hello_mac(kHelloLabel, body, context, request);
  if (sodium_memcmp(mac.data(), bytes.data() + kMacAt, mac.size()) != 0) return std::nullopt;
  base::WireReader reader(body);
  if (reader.number<std::uint16_t>() != kHelloMagic) return std::nullopt;
  if (reader.number<std::uint16_t>() != kHelloVersion) return std::nullopt;
  Hello hello;
  hello.rank = reader.number<std::int32_t>();
  hello.rail = reader.number<std::uint8_t>();
  const auto probes = reader.number<std::uint8_t>();
  if (probes > 1) return std::nullopt;
  hello.probes = probes == 1;
  hello.window_address = reader.number<std::uint64_t>();
  hello.window_key = reader.number<std::uint32_t>();
  hello.credit_address = reader.number<std::uint64_t>();
  hello.credit_key = reader.number<std::uint32_t>();
  return hello;
}

}  // namespace allrail::transport::verbs
