// The envelopes of an alltoallv: whatever other ranks put into them, what they say of a block is
// held against its envelope, and nothing is read beyond it.
#include "lib/envelopes.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace allrail::fuzz {
namespace {

constexpr std::size_t kRanks = 3;
constexpr std::size_t kOwn = 1;
// By from * ranks + to.
constexpr std::uint64_t kLengths[kRanks * kRanks] = {0, 64, 256, 128, 0, 256, 256, 320, 0};

Envelopes laid_out() {
  Envelopes envelopes;
  envelopes.lay_out(kLengths, kRanks, kOwn);
  const std::vector<PlacedBlock> none(kRanks);
  envelopes.fill({}, none, none);
  return envelopes;
}

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
  Envelopes envelopes = laid_out();
  std::ranges::copy(input.first(std::min(input.size(), envelopes.awaited().size())),
                    envelopes.awaited().begin());
  if (!envelopes.sums()) return;
  std::vector<PlacedBlock> blocks(kRanks);
  std::uint64_t end = 0;
  for (std::size_t from = 0; from < kRanks; ++from) {
    if (from == kOwn) continue;
    const std::uint64_t told = envelopes.pair_of(from).sent_bytes;
    const std::uint64_t room = envelopes.room_from(from);
    require(room + ExpectedCounts::kPrefixBytes == kLengths[from * kRanks + kOwn],
            "an envelope has room for what is behind its first words");
    if (told > room) return;
    blocks[from] = {end, told};
    end += told;
  }
  Bytes receive(end);
  envelopes.empty(receive, blocks);
}

}  // namespace allrail::fuzz
