#include "coll/schedule/replay_puts.hpp"

#include <utility>

namespace allrail::schedule {

ReplayPuts::ReplayPuts(std::span<const ReplayCall> calls, ReplayBytes& bytes, ReplayRanks& ranks,
                       Findings& findings, Random& random)
    : bytes_(bytes),
      ranks_(ranks),
      findings_(findings),
      random_(random),
      pairs_(calls.size(), std::vector<Pair>(ranks.size() * ranks.size())) {}

void ReplayPuts::post(int call, int rank, const Step& step) {
  const Range from = bytes_.range(call, rank, step.from, step.from_offset, step.bytes);
  const Range to = bytes_.range(call, step.peer, step.to, step.to_offset, step.bytes);
  const bool in_bounds =
      bytes_.check_bounds(call, rank, step, from) && bytes_.check_bounds(call, rank, step, to);
  Put put{call, rank, step, {}, 0};
  const int id = static_cast<int>(puts_.size());
  if (in_bounds && step.bytes > 0) {
    if (step.from != Memory::Slot) {
      bytes_.check_read(call, rank, step, from);
    } else if (!bytes_.has_header(call, from, step)) {
      findings_.add(Fault::HeaderMissing,
                    Findings::where(call, rank, step) + " starts without a header");
    }
    put.posted.reserve(step.bytes);
    for (std::uint64_t i = 0; i < step.bytes; ++i) {
      put.posted.push_back(from.at(i));
    }
    std::uint64_t start = 0;
    while (start < step.bytes) {  // three pieces at most
      const std::uint64_t rest = step.bytes - start;
      const std::uint64_t bytes = put.pieces_left == 2 ? rest : 1 + random_.below(rest);
      pieces_.push_back({id, start, bytes});
      ++put.pieces_left;
      start += bytes;
    }
    ++ranks_[rank].puts_in_flight[call];
  }
  puts_.push_back(std::move(put));
  pairs_[call][place_of(rank, step.peer)].puts.push_back(id);
}

void ReplayPuts::deliver_a_piece() {
  std::swap(pieces_[random_.below(pieces_.size())], pieces_.back());
  const Piece piece = pieces_.back();
  pieces_.pop_back();
  Put& put = puts_[piece.put];
  const Step& step = put.step;
  const Range from =
      bytes_.range(put.call, put.sender, step.from, step.from_offset + piece.offset, piece.bytes);
  const Range to =
      bytes_.range(put.call, step.peer, step.to, step.to_offset + piece.offset, piece.bytes);
  for (std::uint64_t i = 0; i < piece.bytes; ++i) {
    if (from.at(i) != put.posted[piece.offset + i]) {
      const bool later = bytes_.of_later_call(put.call, from.at(i));
      findings_.add(later ? Fault::OverwrittenInUse : Fault::SourceModified,
                    Findings::where(put.call, put.sender, step) + " had its source changed" +
                        (later ? " by a later call" : "") + " while it was in flight");
      break;
    }
  }
  ranks_.check_shared(put.call, step.peer, step, findings_);
  bytes_.write(put.call, put.sender, step, to, piece.bytes, from);
  if (--put.pieces_left == 0) {
    --ranks_[put.sender].puts_in_flight[put.call];
    put.posted = {};
  }
}

bool ReplayPuts::next_has_landed(int call, int sender, int receiver) const {
  const Pair& pair = pairs_[call][place_of(sender, receiver)];
  return pair.awaited < pair.puts.size() && puts_[pair.puts[pair.awaited]].pieces_left == 0;
}

void ReplayPuts::take_next(int call, int sender, int receiver) {
  ++pairs_[call][place_of(sender, receiver)].awaited;
}

}  // namespace allrail::schedule
