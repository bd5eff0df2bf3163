// The card that every rank hands out at start-up, and the checks over all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "include/allrail/error.hpp"
#include "lib/base/wire.hpp"
#include "lib/topology/leaders.hpp"
#include "transport/rail_pairs.hpp"

namespace allrail {

inline constexpr std::uint32_t kProtocolVersion = 10;

/// Where a node hangs in the network; told by the first rank of a node, empty on the others.
struct SwitchPlace {
  std::string leaf;     // the leaf switch; empty: not known
  std::string chassis;  // that it is in; empty: not known
  std::string problem;  // why it is not known although it was asked for
};

struct Card {
  std::uint32_t protocol_version = kProtocolVersion;
  std::string library_version;
  std::vector<std::pair<std::string, std::string>> settings;  // those that must agree
  std::string host;           // ranks with the same text share memory
  std::string cpuset;         // the cpus that it may run on
  topology::RankPlace place;  // beside the domains and rails of its host
  SwitchPlace switch_place;
  std::int32_t pid = 0;
  std::uint64_t random = 0;  // names the node segment where this rank is first on its node
  std::uint64_t shared_memory_bytes = 0;  // free in /dev/shm
  // That it may lock for RDMA; no limit where its rails register nothing.
  std::uint64_t lockable_bytes = UINT64_MAX;
  std::vector<std::byte> secret;  // rank 0 only: the job's secret
  std::vector<transport::RailEnd> rail_ends;
  std::vector<std::vector<std::byte>> rail_addresses;  // of the same rails
  std::vector<std::byte> control_address;
  /// Why this rank cannot start, and so the job: it has no rails, or the tuning file or switch map
  /// that it read is wrong; empty: it can. Told here, and not only by leaving, so that every rank
  /// can say it.
  std::string failure;
  Code failure_code = Code::Internal;
};

std::vector<std::byte> encode(const Card& card);
/// The card of `rank`, read by `own_rank`, whose own card is `own`.
/// @throws Error{Bootstrap} naming the rank, for bytes that are no card, and Error{Mismatch} naming
/// both for another protocol version.
Card decode(std::span<const std::byte> bytes, int rank, int own_rank, const Card& own);

/// How a rank's rails stand in its card, and in the directory of a node.
void write_rails(base::WireWriter& writer, std::span<const transport::RailEnd> ends,
                 std::span<const std::vector<std::byte>> addresses);
/// False: one of them is of no known network, or there are too many.
bool read_rails(base::WireReader& reader, std::vector<transport::RailEnd>& ends,
                std::vector<std::vector<std::byte>>& addresses);

/// Compares every card with rank 0's. The same verdict on all ranks.
/// @throws Error{Mismatch} naming both ranks and the setting that differs.
void check_agreement(const std::vector<Card>& cards);

/// Nobody can start where one rank cannot.
/// @throws Error with this rank's own failure, or else that of the first rank that has one, whose
/// number and host it names.
void check_failures(const std::vector<Card>& cards, int own_rank);

/// Any two ranks need a pair of rails that may be the ends of a link: of one network and, where
/// pairs are `wanted`, among them. The same verdict on all ranks.
/// @throws Error{Mismatch} naming both ranks and their rails, Error{BadConfiguration} where a
/// wanted rail is nobody's.
void check_rail_pairs(const std::vector<Card>& cards,
                      std::span<const transport::WantedPair> wanted);
/// The name in a card's `host`.
std::string host_name(const std::string& host);
/// The boot in it: containers that are different hosts share the cpus of one. Empty: not known.
std::string boot_of(const std::string& host);
/// What tells hosts apart that do not share /dev/shm: name, boot, and the file system behind it.
std::string host_identity();
/// Bytes free in /dev/shm: 0 where there is none, UINT64_MAX where it has no limit.
std::uint64_t free_shared_memory();

}  // namespace allrail
