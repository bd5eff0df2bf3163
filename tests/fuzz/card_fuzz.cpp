// The start-up card: what decodes re-encodes to the same bytes, everything else names the rank.
#include "include/allrail/error.hpp"
#include "lib/card.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace allrail::fuzz {

std::vector<Bytes> seeds() {
  Card bare;
  Card full;
  full.library_version = "0.1.0";
  full.settings = {{"ALLRAIL_NODES", "2"}, {"ALLRAIL_PORTS", "0"}};
  full.host = "node0/3f2c/23";
  full.cpuset = "0x000000ff";
  full.place = {3, 1, 2};
  full.switch_place = {"leaf0", "rack1", "why not"};
  full.pid = 4711;
  full.random = 42;
  full.shared_memory_bytes = 1U << 30;
  full.secret.assign(32, std::byte{7});
  full.rail_ends.resize(2);
  full.rail_ends[0].name = "eth0";
  full.rail_ends[1].name = "mlx5_0:1";
  full.rail_ends[1].network = transport::Network::RoceV2Ipv4;
  full.rail_addresses = {Bytes(24, std::byte{1}), Bytes(22, std::byte{2})};
  full.control_address.assign(20, std::byte{4});
  Card longest = bare;
  longest.settings.resize(64);
  longest.rail_ends.resize(64);
  longest.rail_addresses.resize(64);
  Card newer = bare;
  newer.protocol_version = kProtocolVersion + 1;
  Card failed = bare;
  failed.failure = "no port";
  failed.failure_code = Code::BadConfiguration;
  return {encode(bare), encode(full), encode(longest), encode(newer), encode(failed)};
}

void fuzz_one(std::span<const std::byte> input) {
  constexpr int kRank = 5;
  Card card;
  try {
    card = decode(input, kRank, 0, Card());
  } catch (const Error& error) {
    require(error.code() == Code::Bootstrap || error.code() == Code::Mismatch,
            "a bad card is an error of start-up or of versions");
    require(error.peer() == kRank, "the error names the rank");
    return;
  }
  require(equal(encode(card), input), "a card re-encodes to the same bytes");
  require(card.rail_ends.size() == card.rail_addresses.size(), "every rail has an end");
  // Whatever it holds, it can be compared.
  check_agreement({card, card});
  try {
    check_rail_pairs({card, card}, {});
    require(!card.rail_ends.empty(), "ranks without rails have no pair");
  } catch (const Error& error) {
    require(error.code() == Code::Mismatch && error.peer() == 1, "no pair is rank 1's");
  }
  try {
    check_agreement({Card(), card});
    require(card.settings.empty(), "a card with settings differs from one without");
  } catch (const Error& error) {
    require(error.code() == Code::Mismatch && error.peer() == 1, "the difference is rank 1's");
  }
}

}  // namespace allrail::fuzz
