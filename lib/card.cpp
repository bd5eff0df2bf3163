#include "lib/card.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/base/error.hpp"
#include "lib/base/wire.hpp"

namespace allrail {
namespace {

constexpr std::uint32_t kMagic = 0x4C4C4152;  // "RALL"
constexpr std::uint32_t kMostEntries = 64;    // settings or rails in a card that makes sense
constexpr auto kLastCode = static_cast<std::uint8_t>(Code::Internal);

void write_end(base::WireWriter& writer, const transport::RailEnd& end) {
  writer.text(end.name);
  writer.number(static_cast<std::uint8_t>(end.network));
  writer.blob(std::as_bytes(std::span(end.subnet.prefix)));
  writer.number(end.subnet.bits);
  writer.number(end.rate_mbit);
}

/// False: no such network or prefix.
bool read_end(base::WireReader& reader, transport::RailEnd& end) {
  end.name = reader.text();
  const auto network = reader.number<std::uint8_t>();
  const auto prefix = reader.blob();
  end.subnet.bits = reader.number<std::uint8_t>();
  end.rate_mbit = reader.number<std::uint32_t>();
  if (network >= transport::kNetworks || prefix.size() != end.subnet.prefix.size()) return false;
  end.network = static_cast<transport::Network>(network);
  std::ranges::copy(prefix, std::as_writable_bytes(std::span(end.subnet.prefix)).begin());
  return true;
}

std::string rails_text(const Card& card) {
  std::string text;
  for (const transport::RailEnd& end : card.rail_ends) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", end.name,
                        transport::network_name(end.network));
  }
  return text.empty() ? "no rails" : text;
}

std::string wanted_text(std::span<const transport::WantedPair> wanted) {
  std::string text;
  for (const auto& [one, other] : wanted) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", one, other);
  }
  return text;
}

/// All that decides which of the card's rails can be paired.
std::vector<int> traits_of(const Card& card, std::span<const transport::WantedPair> wanted) {
  std::vector<int> traits;
  for (std::size_t i = 0; i < card.rail_ends.size(); ++i) {
    const transport::RailEnd& end = card.rail_ends[i];
    traits.push_back(static_cast<int>(end.network));
    for (const auto& [one, other] : wanted) {
      traits.push_back(transport::is_named(end, static_cast<int>(i), one) ? 1 : 0);
      traits.push_back(transport::is_named(end, static_cast<int>(i), other) ? 1 : 0);
    }
  }
  return traits;
}

void check_is_a_rail(const std::vector<Card>& cards, const std::string& name,
                     std::span<const transport::WantedPair> wanted) {
  for (const Card& card : cards) {
    for (std::size_t i = 0; i < card.rail_ends.size(); ++i) {
      if (transport::is_named(card.rail_ends[i], static_cast<int>(i), name)) return;
    }
  }
  base::fail(
      Code::BadConfiguration,
      "ALLRAIL_RAIL_PAIRS is '{}', but no rank has a rail '{}'; rank 0 on host {} has {}; name "
      "rails as ALLRAIL_RAILS does, or by their number from 0",
      wanted_text(wanted), name, host_name(cards[0].host), rails_text(cards[0]));
}

[[noreturn]] void fail_without_pair(const std::vector<Card>& cards, int lower, int higher,
                                    std::span<const transport::WantedPair> wanted) {
  const Card& one = cards[static_cast<std::size_t>(lower)];
  const Card& other = cards[static_cast<std::size_t>(higher)];
  const std::string ends = fmt::format("rank {} on host {} has {}, rank {} on host {} has {}",
                                       lower, host_name(one.host), rails_text(one), higher,
                                       host_name(other.host), rails_text(other));
  if (wanted.empty()) {
    base::fail_with_peer(Code::Mismatch, higher,
                         "{}: no two of them are of one kind; set ALLRAIL_RAILS to rails of one "
                         "kind, such as tcp, on all hosts",
                         ends);
  }
  base::fail_with_peer(Code::Mismatch, higher,
                       "ALLRAIL_RAIL_PAIRS is '{}', which joins no two rails of one kind here: {}; "
                       "add a pair for these ranks, or leave it unset",
                       wanted_text(wanted), ends);
}

}  // namespace

void write_rails(base::WireWriter& writer, std::span<const transport::RailEnd> ends,
                 std::span<const std::vector<std::byte>> addresses) {
  writer.number(static_cast<std::uint32_t>(ends.size()));
  for (std::size_t rail = 0; rail < ends.size(); ++rail) {
    write_end(writer, ends[rail]);
    writer.blob(addresses[rail]);
  }
}

bool read_rails(base::WireReader& reader, std::vector<transport::RailEnd>& ends,
                std::vector<std::vector<std::byte>>& addresses) {
  const auto rails = reader.number<std::uint32_t>();
  bool ends_fit = rails <= kMostEntries;
  for (std::uint32_t i = 0; reader.ok() && i < rails && i < kMostEntries; ++i) {
    ends_fit = read_end(reader, ends.emplace_back()) && ends_fit;
    addresses.push_back(reader.blob());
  }
  return ends_fit;
}

std::vector<std::byte> encode(const Card& card) {
  base::WireWriter writer;
  writer.number(kMagic);
  writer.number(card.protocol_version);
  writer.text(card.library_version);
  writer.number(static_cast<std::uint32_t>(card.settings.size()));
  for (const auto& [name, value] : card.settings) {
    writer.text(name);
    writer.text(value);
  }
  writer.text(card.host);
  writer.text(card.cpuset);
  writer.number(card.place.domain);
  writer.number(card.place.rail_levels);
  writer.number(card.place.near_rails);
  writer.text(card.switch_place.leaf);
  writer.text(card.switch_place.chassis);
  writer.text(card.switch_place.problem);
  writer.number(card.pid);
  writer.number(card.random);
  writer.number(card.shared_memory_bytes);
  writer.number(card.lockable_bytes);
  writer.blob(card.secret);
  write_rails(writer, card.rail_ends, card.rail_addresses);
  writer.blob(card.control_address);
  writer.text(card.failure);
  writer.number(static_cast<std::uint8_t>(card.failure_code));
  return writer.bytes();
}

Card decode(std::span<const std::byte> bytes, int rank, int own_rank, const Card& own) {
  base::WireReader reader(bytes);
  Card card;
  const auto magic = reader.number<std::uint32_t>();
  card.protocol_version = reader.number<std::uint32_t>();
  card.library_version = reader.text();
  if (reader.ok() && magic == kMagic && card.protocol_version != own.protocol_version) {
    base::fail_with_peer(Code::Mismatch, rank,
                         "rank {} uses Allrail {} with protocol {}, rank {} uses Allrail {} with "
                         "protocol {}; start all ranks with the same build of Allrail",
                         rank, card.library_version, card.protocol_version, own_rank,
                         own.library_version, own.protocol_version);
  }
  const auto settings = reader.number<std::uint32_t>();
  for (std::uint32_t i = 0; reader.ok() && i < settings && i < kMostEntries; ++i) {
    auto name = reader.text();
    auto value = reader.text();
    card.settings.emplace_back(std::move(name), std::move(value));
  }
  card.host = reader.text();
  card.cpuset = reader.text();
  card.place.domain = reader.number<std::uint8_t>();
  card.place.rail_levels = reader.number<std::uint8_t>();
  card.place.near_rails = reader.number<std::uint8_t>();
  card.switch_place.leaf = reader.text();
  card.switch_place.chassis = reader.text();
  card.switch_place.problem = reader.text();
  card.pid = reader.number<std::int32_t>();
  card.random = reader.number<std::uint64_t>();
  card.shared_memory_bytes = reader.number<std::uint64_t>();
  card.lockable_bytes = reader.number<std::uint64_t>();
  card.secret = reader.blob();
  const bool rails_fit = read_rails(reader, card.rail_ends, card.rail_addresses);
  card.control_address = reader.blob();
  card.failure = reader.text();
  const auto code = reader.number<std::uint8_t>();
  card.failure_code = static_cast<Code>(code);
  const bool makes_sense = rails_fit && settings <= kMostEntries && code <= kLastCode;
  if (magic != kMagic || !makes_sense || !reader.at_end()) {
    base::fail_with_peer(Code::Bootstrap, rank,
                         "what rank {} published at start-up is no card of Allrail ({} bytes); "
                         "start all ranks with the same build of Allrail",
                         rank, bytes.size());
  }
  return card;
}

void check_agreement(const std::vector<Card>& cards) {
  for (std::size_t rank = 1; rank < cards.size(); ++rank) {
    if (cards[rank].settings.size() != cards[0].settings.size()) {
      base::fail_with_peer(Code::Mismatch, static_cast<int>(rank),
                           "rank 0 has {} settings and rank {} has {}; start all ranks with the "
                           "same build of Allrail",
                           cards[0].settings.size(), rank, cards[rank].settings.size());
    }
    for (std::size_t i = 0; i < cards[0].settings.size(); ++i) {
      const auto& [name, value] = cards[0].settings[i];
      const auto& other = cards[rank].settings[i];
      if (other == cards[0].settings[i]) continue;
      base::fail_with_peer(Code::Mismatch, static_cast<int>(rank),
                           "{} is '{}' on rank 0 and {} is '{}' on rank {}; it must be the same on "
                           "all ranks",
                           name, value, other.first, other.second, rank);
    }
  }
}

void check_failures(const std::vector<Card>& cards, int own_rank) {
  const Card& own = cards[static_cast<std::size_t>(own_rank)];
  if (!own.failure.empty()) throw Error(own.failure_code, own.failure);
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    if (card.failure.empty()) continue;
    base::fail_with_peer(card.failure_code, static_cast<int>(rank),
                         "rank {} on host {} cannot start, and nobody can without it: {}", rank,
                         host_name(card.host), card.failure);
  }
}

void check_rail_pairs(const std::vector<Card>& cards,
                      std::span<const transport::WantedPair> wanted) {
  if (cards.size() < 2) return;  // a rank alone has no rails
  for (const transport::WantedPair& pair : wanted) {
    for (const std::string& name : {pair.first, pair.second}) check_is_a_rail(cards, name, wanted);
  }
  // One rank of every kind of rails stands for all.
  std::map<std::vector<int>, std::vector<std::size_t>> examples;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    auto& ranks = examples[traits_of(cards[rank], wanted)];
    if (ranks.size() < 2) ranks.push_back(rank);
  }
  std::vector<std::size_t> ranks;
  for (const auto& [traits, some] : examples) ranks.insert(ranks.end(), some.begin(), some.end());
  std::ranges::sort(ranks);
  for (const std::size_t lower : ranks) {
    for (const std::size_t higher : ranks) {
      if (lower >= higher) continue;
      const transport::RailEnds ends{cards[lower].rail_ends, cards[higher].rail_ends};
      if (transport::pair_rails(ends, wanted).empty()) {
        fail_without_pair(cards, static_cast<int>(lower), static_cast<int>(higher), wanted);
      }
    }
  }
}

std::string host_name(const std::string& host) { return host.substr(0, host.find('/')); }

std::string boot_of(const std::string& host) {
  const std::size_t begin = host.find('/') + 1;
  return host.substr(begin, host.find('/', begin) - begin);
}

std::string host_identity() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat shared {};
  ::stat("/dev/shm", &shared);
  return fmt::format("{}/{}/{}", name.data(), boot, shared.st_dev);
}

std::uint64_t free_shared_memory() {
  struct statvfs system {};
  if (::statvfs("/dev/shm", &system) != 0) return 0;
  if (system.f_blocks == 0) return UINT64_MAX;  // a tmpfs with size=0
  return static_cast<std::uint64_t>(system.f_bavail) * system.f_frsize;
}

}  // namespace allrail
