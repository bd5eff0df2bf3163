// The envelopes of an alltoallv: whatever other ranks put into them, and in whatever pieces they
// come, nothing is received beyond what an envelope has room for.
#include "coll/envelopes.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace allrail::fuzz {
namespace {

constexpr std::size_t kRanks = 3;
constexpr std::size_t kOwn = 1;
// By from * ranks + to.
constexpr std::uint64_t kLengths[kRanks * kRanks] = {0, 64, 256, 128, 0, 256, 256, 320, 0};

/// A block of so many bytes is awaited from each of the two others.
constexpr std::uint64_t kAwaitedBytes = 300;

}  // namespace

std::vector<Bytes> seeds() {
  // What two other ranks say whose blocks have 48 and 304 bytes, and one whose block does not fit.
  Bytes right(64 + 320, std::byte{0});
  const std::uint32_t first[] = {48, 0};
  const std::uint32_t second[] = {304, 17};
  std::memcpy(right.data(), first, sizeof first);
  std::memcpy(right.data() + 64, second, sizeof second);
  Bytes does_not_fit = right;
  std::ranges::fill(std::span(does_not_fit).first(4), std::byte{0xff});
  return {Bytes(), right, does_not_fit, Bytes(64 + 320, std::byte{0x55})};
}

void fuzz_one(std::span<const std::byte> input) {
  coll::Envelopes envelopes;
  envelopes.lay_out(kLengths, kRanks, kOwn);
  const std::vector<coll::PlacedBlock> none(kRanks);
  std::vector<coll::PlacedBlock> awaited(kRanks);
  awaited[0] = {0, kAwaitedBytes};
  awaited[2] = {kAwaitedBytes, kAwaitedBytes};
  Bytes receive(2 * kAwaitedBytes);
  envelopes.begin({}, none, receive, awaited);
  Bytes arrived(64 + 320);
  std::ranges::copy(input.first(std::min(input.size(), arrived.size())), arrived.begin());
  // In pieces, as slices come.
  const std::uint64_t piece_bytes = 1 + std::to_integer<std::uint64_t>(arrived.back());
  const std::byte* envelope = arrived.data();
  for (const std::size_t from : {0, 2}) {
    const std::uint64_t length = kLengths[from * kRanks + kOwn];
    for (std::uint64_t offset = 0; offset < length; offset += piece_bytes) {
      envelopes.unpack(from, offset, std::min(piece_bytes, length - offset), envelope + offset);
    }
    envelope += length;
    require(envelopes.room_from(from) + coll::Envelopes::kPrefixBytes == length,
            "an envelope has room for what is behind its first words");
    const std::uint64_t end = awaited[from].offset + envelopes.room_from(from);
    for (std::uint64_t place = end; place < awaited[from].offset + kAwaitedBytes; ++place) {
      require(receive[place] == std::byte{0}, "nothing is received beyond what an envelope has");
    }
    (void)envelopes.pair_of(from);
  }
  (void)envelopes.sums();
}

}  // namespace allrail::fuzz
