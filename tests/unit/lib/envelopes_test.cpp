// Ranks in one process that pack and unpack each other's envelopes.
#include "coll/envelopes.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "lib/expected_counts.hpp"

namespace allrail {
namespace {

using coll::Envelopes;
using coll::PlacedBlock;
using Counts = std::vector<std::uint64_t>;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kPrefixBytes = Envelopes::kPrefixBytes;
constexpr std::byte kUntouched{0xA5};
const Counts kTwoLengths{0, 256, 320, 0};

/// Unlike that of any block or place nearby.
std::byte byte_of(std::size_t from, std::size_t to, std::uint64_t place) {
  return static_cast<std::byte>(from * 101 + to * 37 + place * 7 + place / 251);
}

Counts without_own(Counts counts, std::size_t ranks) {
  for (std::size_t rank = 0; rank < ranks; ++rank) counts[rank * ranks + rank] = 0;
  return counts;
}

/// By from * ranks + to, none for oneself, and no two alike nearby.
Counts some_lengths(std::size_t ranks) {
  Counts lengths(ranks * ranks);
  for (std::size_t pair = 0; pair < lengths.size(); ++pair) lengths[pair] = 64 * (4 + pair % 7);
  return without_own(lengths, ranks);
}

/// Blocks that fill all envelopes to the last byte.
Counts filling(const Counts& lengths) {
  Counts counts = lengths;
  for (std::uint64_t& bytes : counts) bytes -= bytes > 0 ? kPrefixBytes : 0;
  return counts;
}

std::uint64_t sum_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

/// One rank, its buffers, and where its blocks lie in them.
struct Rank {
  Envelopes envelopes;
  Bytes send;
  Bytes receive;
  std::vector<PlacedBlock> sent;
  std::vector<PlacedBlock> awaited;
};

class Job {
 public:
  Job(const Counts& lengths, std::size_t ranks) : ranks_(ranks) { lay_out(lengths); }

  void lay_out(const Counts& lengths) {
    lengths_ = lengths;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      ranks_[rank].envelopes.lay_out(lengths, size(), rank);
    }
  }
  std::size_t size() const { return ranks_.size(); }
  Rank& operator[](std::size_t rank) { return ranks_[rank]; }

  /// One call. Gaps lie around the blocks, which stand in the reverse order of ranks where that is
  /// asked for. Envelopes travel in pieces of so many bytes.
  void send(const Counts& counts, std::uint64_t gap = 0, bool reversed = false,
            std::uint64_t piece_bytes = UINT64_MAX) {
    for (std::size_t rank = 0; rank < size(); ++rank) place_blocks(rank, counts, gap, reversed);
    for (Rank& rank : ranks_) {
      rank.envelopes.begin(rank.send, rank.sent, rank.receive, rank.awaited);
    }
    deliver_all(piece_bytes);
  }

  /// The same in place: counts are those of both directions. What arrives first may lie where
  /// something is still to be sent from, in either order of ranks.
  void send_in_place(const Counts& counts, bool reversed) {
    for (std::size_t rank = 0; rank < size(); ++rank) place_blocks(rank, counts, 3, false);
    for (Rank& rank : ranks_) {
      rank.receive = rank.send;
      rank.envelopes.begin(rank.receive, rank.sent, rank.receive, rank.sent);
    }
    if (!reversed) return deliver_all(UINT64_MAX);
    for (std::size_t to = size(); to-- > 0;) {
      for (std::size_t from = size(); from-- > 0;) deliver(from, to);
    }
  }

  Bytes packed(std::size_t from, std::size_t to) {
    Bytes envelope(lengths_[from * size() + to], kUntouched);
    if (from != to) ranks_[from].envelopes.pack(to, 0, envelope.size(), envelope.data());
    return envelope;
  }

  void deliver(std::size_t from, std::size_t to, std::uint64_t piece_bytes = UINT64_MAX) {
    const std::uint64_t length = lengths_[from * size() + to];
    // The first piece comes last: slices may overtake each other.
    const std::uint64_t most = std::min(piece_bytes, length);
    for (std::uint64_t pieces = most == 0 ? 0 : (length + most - 1) / most; pieces > 0; --pieces) {
      const std::uint64_t offset = (pieces - 1) * most;
      Bytes piece(std::min(most, length - offset), kUntouched);
      ranks_[from].envelopes.pack(to, offset, piece.size(), piece.data());
      ranks_[to].envelopes.unpack(from, offset, piece.size(), piece.data());
    }
  }

  /// That all know of all blocks, and have those of the others and nothing else.
  void expect_received(const Counts& counts) {
    for (std::size_t to = 0; to < size(); ++to) {
      Rank& rank = ranks_[to];
      ASSERT_TRUE(rank.envelopes.sums().has_value());
      ASSERT_EQ(rank.envelopes.sums()->total_bytes, sum_of(without_own(counts, size())));
      ASSERT_EQ(rank.envelopes.sums()->longest_bytes, std::ranges::max(counts));
      Bytes expected(rank.receive.size(), kUntouched);
      for (std::size_t from = 0; from < size(); ++from) {
        if (from == to) continue;
        const Envelopes::Pair theirs = rank.envelopes.pair_of(from);
        ASSERT_EQ(theirs.sent_bytes, counts[from * size() + to]) << from << " to " << to;
        ASSERT_EQ(theirs.awaited_bytes, counts[to * size() + from]) << from << " to " << to;
        ASSERT_EQ(rank.envelopes.room_from(from), lengths_[from * size() + to] - kPrefixBytes);
        for (std::uint64_t place = 0; place < rank.awaited[from].bytes; ++place) {
          expected[rank.awaited[from].offset + place] = byte_of(from, to, place);
        }
      }
      ASSERT_TRUE(rank.receive == expected) << to << " of " << size();
    }
  }

 private:
  void deliver_all(std::uint64_t piece_bytes) {
    for (std::size_t to = 0; to < size(); ++to) {
      for (std::size_t from = 0; from < size(); ++from) deliver(from, to, piece_bytes);
    }
  }

  void place_blocks(std::size_t own, const Counts& counts, std::uint64_t gap, bool reversed) {
    Rank& rank = ranks_[own];
    rank.sent.assign(size(), {});
    rank.awaited.assign(size(), {});
    std::uint64_t send_bytes = gap;
    std::uint64_t receive_bytes = 2 * gap;
    for (std::size_t i = 0; i < size(); ++i) {
      const std::size_t other = reversed ? size() - 1 - i : i;
      rank.sent[other] = {send_bytes, counts[own * size() + other]};
      rank.awaited[other] = {receive_bytes, counts[other * size() + own]};
      send_bytes += rank.sent[other].bytes + gap;
      receive_bytes += rank.awaited[other].bytes + gap;
    }
    rank.send.assign(send_bytes, kUntouched);
    rank.receive.assign(receive_bytes, kUntouched);
    for (std::size_t to = 0; to < size(); ++to) {
      for (std::uint64_t place = 0; place < rank.sent[to].bytes; ++place) {
        rank.send[rank.sent[to].offset + place] = byte_of(own, to, place);
      }
    }
  }

  std::vector<Rank> ranks_;
  Counts lengths_;
};

TEST(Envelopes, CarryBlocksThatFillThemToTheLastByte) {
  for (const std::size_t ranks : {2, 3, 5, 8, 17}) {
    Job job(some_lengths(ranks), ranks);
    const Counts counts = filling(some_lengths(ranks));
    job.send(counts);
    job.expect_received(counts);
  }
}

TEST(Envelopes, CarryBlocksThatLieAnywhere) {
  std::mt19937 random(20261130);
  for (const std::size_t ranks : {2, 3, 7, 9}) {
    Job job(some_lengths(ranks), ranks);
    for (int round = 0; round < 20; ++round) {
      Counts counts = filling(some_lengths(ranks));
      for (std::uint64_t& bytes : counts) {
        bytes = random() % 3 == 0 ? 0 : random() % (bytes + 1);
      }
      job.send(counts, random() % 100, random() % 2 == 0);
      job.expect_received(counts);
    }
  }
}

TEST(Envelopes, TravelInPiecesOfAnySize) {
  for (const std::uint64_t piece_bytes : {1, 7, 15, 16, 17, 64, 100}) {
    Job job(some_lengths(3), 3);
    Counts counts = filling(some_lengths(3));
    counts[1] -= 50;
    job.send(counts, 3, false, piece_bytes);
    job.expect_received(counts);
    ++counts[5];
    counts[5] += 1000;  // does not fit, and nobody sees any of it
    job.send(counts, 3, false, piece_bytes);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_FALSE(job[rank].envelopes.sums().has_value());
    }
    EXPECT_EQ(job[1].receive, Bytes(job[1].receive.size(), kUntouched)) << "its own did not fit";
  }
}

TEST(Envelopes, InPlaceCarryWhatWasThereBefore) {
  const std::size_t ranks = 3;
  const Counts lengths(without_own(Counts(ranks * ranks, 512), ranks));
  const Counts counts{0, 400, 17, 400, 0, 0, 17, 0, 0};  // as many bytes both ways
  Job job(lengths, ranks);
  for (const bool reversed : {false, true}) {
    job.send_in_place(counts, reversed);
    for (std::size_t to = 0; to < ranks; ++to) {
      for (std::size_t from = 0; from < ranks; ++from) {
        const PlacedBlock& block = job[to].sent[from];
        for (std::uint64_t place = 0; place < block.bytes; ++place) {
          ASSERT_EQ(job[to].receive[block.offset + place], byte_of(from, to, place));
        }
      }
    }
  }
}

TEST(Envelopes, InPlaceAreTakenBackWhereABlockDidNotFit) {
  const std::size_t ranks = 3;
  const Counts lengths(without_own(Counts(ranks * ranks, 512), ranks));
  const Counts counts{0, 400, 17, 400, 0, 5000, 17, 5000, 0};
  Job job(lengths, ranks);
  job.send_in_place(counts, true);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    ASSERT_FALSE(job[rank].envelopes.sums().has_value());
    job[rank].envelopes.take_back(job[rank].receive, job[rank].sent);
    ASSERT_EQ(job[rank].receive, job[rank].send) << rank;
  }
}

// Not in place nothing is taken back: the send buffer is as it was.
TEST(Envelopes, AreNotTakenBackIntoAnotherBuffer) {
  Job job(kTwoLengths, 2);
  job.send(Counts{0, 5000, 3, 0});
  Bytes other(job[1].send.size(), kUntouched);
  job[1].envelopes.take_back(other, job[1].sent);
  EXPECT_EQ(other, Bytes(other.size(), kUntouched));
}

TEST(Envelopes, CarryNothingAtAllAsWell) {
  for (const std::size_t ranks : {2, 5}) {
    Job job(some_lengths(ranks), ranks);
    const Counts nothing(ranks * ranks, 0);
    job.send(nothing);
    job.expect_received(nothing);
    job.send(filling(some_lengths(ranks)));
    job.send(nothing);
    job.expect_received(nothing);
  }
}

TEST(Envelopes, CarryBlocksThatAreCopiedInOtherWays) {
  const Counts lengths{0, 8192, 64, 64, 0, 100'032, 4112, 4096, 0};
  Job job(lengths, 3);
  const Counts counts = filling(lengths);
  job.send(counts, 5, true);
  job.expect_received(counts);
}

TEST(Envelopes, CountWhatARankSendsToItselfButDoNotCarryIt) {
  const std::size_t ranks = 3;
  Job job(some_lengths(ranks), ranks);
  Counts counts = filling(some_lengths(ranks));
  for (std::size_t rank = 0; rank < ranks; ++rank) counts[rank * ranks + rank] = 10'000 + rank;
  job.send(counts, 3);
  job.expect_received(counts);
}

TEST(Envelopes, TellAllRanksThatABlockOfOneDoesNotFit) {
  for (const std::size_t ranks : {2, 3, 5}) {
    const Counts lengths = some_lengths(ranks);
    const Counts full = filling(lengths);
    for (std::size_t pair = 0; pair < ranks * ranks; ++pair) {
      if (lengths[pair] == 0) continue;
      Job job(lengths, ranks);
      for (const std::uint64_t bytes : {full[pair] + 1, full[pair] + 16, full[pair] + 17}) {
        Counts counts = full;
        counts[pair] = bytes;
        job.send(counts);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          EXPECT_FALSE(job[rank].envelopes.sums().has_value())
              << bytes << " bytes in " << pair << ", rank " << rank << " of " << ranks;
        }
      }
      job.send(full);
      job.expect_received(full);
    }
  }
}

TEST(Envelopes, HaveNoBlocksWhereOneDoesNotFit) {
  const Counts lengths = some_lengths(3);
  Job job(lengths, 3);
  Counts counts = filling(lengths);
  ++counts[1 * 3 + 2];
  job.send(counts);
  for (const std::size_t to : {0, 2}) {
    const Bytes envelope = job.packed(1, to);
    for (std::uint64_t place = kPrefixBytes; place < envelope.size(); ++place) {
      ASSERT_EQ(envelope[place], kUntouched) << place << " to " << to;
    }
  }
}

TEST(Envelopes, DoNotTouchTheBufferWhereNothingFits) {
  Job job(kTwoLengths, 2);
  const std::vector<PlacedBlock> nothing{{}, {}};
  // Bytes that no memory has, and some whose lower half is a small number.
  for (const std::uint64_t bytes : {~0ULL, 1ULL << 62, 1ULL << 32, (1ULL << 32) + 8}) {
    const std::vector<PlacedBlock> blocks{{}, {UINT64_MAX / 2, bytes}};
    job[0].envelopes.begin({}, blocks, {}, nothing);
    EXPECT_FALSE(job[0].envelopes.sums().has_value()) << "its own word counts";
  }
}

TEST(Envelopes, SayWhatIsAwaitedWhateverIsSent) {
  const std::vector<PlacedBlock> nothing{{}, {}};
  for (const std::uint64_t bytes :
       {0ULL, 7ULL, 100'000ULL, (1ULL << 32) - 2, (1ULL << 32) - 1, 1ULL << 32, (1ULL << 32) + 7}) {
    Job job(kTwoLengths, 2);
    job.send(Counts(4, 0));
    Bytes receive(240);
    job[0].envelopes.begin({}, nothing, receive, std::vector<PlacedBlock>{{}, {0, bytes}});
    job.deliver(0, 1);
    const std::uint64_t said = job[1].envelopes.pair_of(0).awaited_bytes;
    EXPECT_EQ(said, std::min<std::uint64_t>(bytes, UINT32_MAX - 1));
    EXPECT_EQ(job[1].envelopes.pair_of(0).sent_bytes, 0U);
    EXPECT_EQ(job[1].envelopes.sums()->total_bytes, 0U)
        << "what is awaited is no reason not to fit";
  }
}

// Whoever uses them has to compare it with the room, beyond which nothing is copied.
TEST(Envelopes, BelieveWhatAnotherRankSays) {
  Job job(kTwoLengths, 2);
  job.send(Counts{0, 240, 0, 0});
  Bytes envelope = job.packed(0, 1);
  const std::uint32_t lie = 5000;
  std::memcpy(envelope.data(), &lie, sizeof lie);
  Rank& rank = job[1];
  rank.receive.assign(240, kUntouched);
  rank.awaited[0] = {0, lie};
  rank.envelopes.begin(rank.send, rank.sent, rank.receive, rank.awaited);
  rank.envelopes.unpack(0, 0, envelope.size(), envelope.data());
  EXPECT_EQ(rank.envelopes.pair_of(0).sent_bytes, lie);
  EXPECT_EQ(rank.envelopes.room_from(0), 240U);
  EXPECT_EQ(job[0].envelopes.room_from(1), 304U);
  EXPECT_EQ(rank.receive[239], byte_of(0, 1, 239));
}

TEST(Envelopes, AreUnpackedAsFarAsIsAwaited) {
  Job job(kTwoLengths, 2);
  job.send(Counts{0, 240, 0, 0});
  Rank& rank = job[1];
  rank.receive.assign(240, kUntouched);
  rank.awaited[0] = {0, 100};
  rank.envelopes.begin(rank.send, rank.sent, rank.receive, rank.awaited);
  job.deliver(0, 1);
  Bytes expected(240, kUntouched);
  for (std::uint64_t place = 0; place < 100; ++place) expected[place] = byte_of(0, 1, place);
  EXPECT_TRUE(rank.receive == expected);
  EXPECT_EQ(rank.envelopes.pair_of(0).sent_bytes, 240U) << "what was sent, whatever is awaited";
}

TEST(Envelopes, MayBeLaidOutAnew) {
  const std::size_t ranks = 3;
  Job job(some_lengths(ranks), ranks);
  for (const std::uint64_t length : {1024, 64, 4096, 256}) {
    const Counts lengths = without_own(Counts(ranks * ranks, length), ranks);
    job.lay_out(lengths);
    EXPECT_EQ(job[1].envelopes.room_from(0), length - kPrefixBytes);
    const Counts counts = filling(lengths);
    job.send(counts, 1);
    job.expect_received(counts);
  }
}

/// One call as World makes it. Whether it went by what was expected.
bool call(Job& job, std::vector<ExpectedCounts>& expected, std::uint64_t& version,
          const Counts& counts) {
  if (expected.front().is_sure()) {
    if (version != expected.front().version()) {
      job.lay_out({expected.front().envelopes().begin(), expected.front().envelopes().end()});
      version = expected.front().version();
    }
    job.send(counts, 3);
    // Each rank decides by what it has heard itself.
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      const std::optional<Envelopes::Sums> sums = job[rank].envelopes.sums();
      if (sums) {
        expected[rank].fitted(sums->total_bytes, sums->longest_bytes);
      } else {
        expected[rank].did_not_fit();
      }
    }
    if (job[0].envelopes.sums()) {
      job.expect_received(counts);
      return true;
    }
  }
  for (ExpectedCounts& each : expected) each.learn(counts, job.size());
  return false;
}

// Most of the data may stay where it is: that is no reason to move envelopes for it.
TEST(Envelopes, AreGivenUpWhereBlocksStayWithTheirOwners) {
  constexpr std::size_t kRanks = 4;
  Job job(some_lengths(kRanks), kRanks);
  std::vector<ExpectedCounts> expected(kRanks);
  std::uint64_t version = expected.front().version();
  call(job, expected, version, without_own(Counts(kRanks * kRanks, 100 << 10), kRanks));
  Counts counts(kRanks * kRanks, 8);
  for (std::size_t rank = 0; rank < kRanks; ++rank) counts[rank * kRanks + rank] = 800 << 10;
  EXPECT_TRUE(call(job, expected, version, counts));
  EXPECT_FALSE(expected.front().is_sure());
  EXPECT_FALSE(call(job, expected, version, counts));
  EXPECT_TRUE(call(job, expected, version, counts));
  EXPECT_LE(std::ranges::max(expected.front().envelopes()), 256U);
}

TEST(Envelopes, LetAllRanksExpectTheSame) {
  std::mt19937 random(20261130);
  for (const std::size_t ranks : {2, 3, 5}) {
    Job job(some_lengths(ranks), ranks);
    std::vector<ExpectedCounts> expected(ranks);
    std::uint64_t version = expected.front().version();
    int went_by = 0;
    for (int round = 0; round < 300; ++round) {
      const bool is_large = round % 25 == 24;
      Counts counts(ranks * ranks);
      for (std::uint64_t& bytes : counts) bytes = random() % (is_large ? 4000 : 240);
      went_by += call(job, expected, version, counts) ? 1 : 0;
      if (HasFatalFailure()) return;
      for (const ExpectedCounts& each : expected) {
        ASSERT_EQ(each.is_sure(), expected.front().is_sure()) << "call " << round;
        ASSERT_EQ(each.version(), expected.front().version()) << "call " << round;
        ASSERT_TRUE(std::ranges::equal(each.envelopes(), expected.front().envelopes()));
      }
    }
    EXPECT_GT(went_by, 200) << ranks << " ranks";
    EXPECT_LT(went_by, 300) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace allrail
