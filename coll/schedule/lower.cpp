#include "coll/schedule/lower.hpp"

#include <stdexcept>

#include "coll/schedule/regions.hpp"
#include "coll/schedule/step_list.hpp"

namespace allrail::schedule {

namespace {

/// The blocks of a round's awaits go from my part of the slot to their places.
void copy_out(StepList& steps, const Round& round, const Shape& shape, const Regions& regions,
              std::uint64_t my_part, int rank) {
  for (const Transfer& transfer : round.awaits) {
    for (int i = 0; i < transfer.count; ++i) {
      const int block = (transfer.first + i) % shape.ranks();
      steps.copy(Memory::Slot, my_part + regions.offset(rank, block) + kHeaderBytes,
                 Memory::Receive, shape.receive_offsets[block], shape.bytes[block]);
    }
  }
}

/// Runs of blocks that are contiguous in a receive buffer, the same at both ends: of `most_bytes`
/// at most, if no block has more. Blocks of zero bytes vanish.
std::vector<Transfer> receive_runs(const Transfer& transfer, const Shape& shape,
                                   std::uint64_t most_bytes) {
  std::vector<Transfer> runs;
  std::uint64_t end = 0;
  std::uint64_t bytes = 0;  // of the last run
  for (int i = 0; i < transfer.count; ++i) {
    const int block = (transfer.first + i) % shape.ranks();
    if (shape.bytes[block] == 0) {
      continue;
    }
    bytes += shape.bytes[block];
    if (!runs.empty() && shape.receive_offsets[block] == end && bytes <= most_bytes) {
      // Blocks of zero bytes in between are part of the run, so it counts by position.
      runs.back().count =
          i + 1 - (runs.back().first - transfer.first + shape.ranks()) % shape.ranks();
    } else {
      runs.push_back({transfer.peer, block, 1});
      bytes = shape.bytes[block];
    }
    end = shape.receive_offsets[block] + shape.bytes[block];
  }
  return runs;
}

std::uint64_t run_bytes(const Transfer& run, const Shape& shape) {
  std::uint64_t bytes = 0;
  for (int i = 0; i < run.count; ++i) {
    bytes += shape.bytes[(run.first + i) % shape.ranks()];
  }
  return bytes;
}

}  // namespace

std::uint64_t flat_part_bytes(const Shape& shape) {
  return Regions(shape.bytes, Placement::Absolute).total_bytes();
}

Schedule lower_flat(const Exchange& exchange, const Shape& shape, int rank) {
  check_shape(shape, rank);
  check_rounds(exchange);
  Schedule schedule;
  StepList steps(schedule);
  const auto copy_own_out = [&] {
    steps.copy(Memory::Send, 0, Memory::Receive, shape.receive_offsets[rank], shape.bytes[rank]);
  };
  if (shape.ranks() == 1) {
    copy_own_out();
    return schedule;
  }
  const Regions regions(shape.bytes, exchange.placement);
  const auto part = [&](int of) { return shape.map.local_rank_of[of] * regions.total_bytes(); };
  const std::uint64_t own = part(rank) + regions.offset(rank, rank);
  steps.copy(Memory::Send, 0, Memory::Slot, own + kHeaderBytes, shape.bytes[rank]);
  steps.stamp(own);
  const int rounds = static_cast<int>(exchange.rounds.size());
  for (int r = 0; r < rounds; ++r) {
    const Round& round = exchange.rounds[r];
    steps.enter_round(r);
    for (std::size_t i = 0; i < round.puts.size(); ++i) {
      const std::size_t port = port_of(round.puts[i], i);
      const int peer = round.puts[i].peer;
      for (const Transfer& piece :
           contiguous_pieces(round.puts[i], shape.ranks(), exchange.placement, rank, peer)) {
        steps.put(port, peer, Memory::Slot, part(rank) + regions.offset(rank, piece.first),
                  Memory::Slot, part(peer) + regions.offset(peer, piece.first),
                  regions.span_bytes(piece));
      }
    }
    // While these puts fly, what is already here goes to its place.
    if (r == 0) {
      copy_own_out();
    } else {
      copy_out(steps, exchange.rounds[r - 1], shape, regions, part(rank), rank);
    }
    for (std::size_t i = 0; i < round.awaits.size(); ++i) {
      const std::size_t port = port_of(round.awaits[i], i);
      const int peer = round.awaits[i].peer;
      for (const Transfer& piece :
           contiguous_pieces(round.awaits[i], shape.ranks(), exchange.placement, peer, rank)) {
        const int header = covers(piece, peer, shape.ranks()) ? peer : piece.first;
        steps.await(port, peer, Memory::Slot, part(rank) + regions.offset(rank, header),
                    part(rank) + regions.offset(rank, piece.first), regions.span_bytes(piece));
      }
    }
  }
  copy_out(steps, exchange.rounds.back(), shape, regions, part(rank), rank);
  for (int block = 0; block < shape.ranks(); ++block) {
    if (block == rank) continue;
    schedule.header_offsets.push_back(part(rank) + regions.offset(rank, block));
  }
  schedule.slot_bytes = shape.map.node_size(shape.map.node_of[rank]) * regions.total_bytes();
  schedule.rounds = rounds;
  return schedule;
}

Schedule lower_flat_zero_copy(const Exchange& exchange, const Shape& shape, int rank,
                              std::uint64_t most_put_bytes) {
  check_shape(shape, rank);
  check_rounds(exchange);
  if (exchange.placement != Placement::Absolute) {
    throw std::invalid_argument(
        "an exchange with relative placement needs slot memory to shift in");
  }
  Schedule schedule;
  StepList steps(schedule);
  const int rounds = static_cast<int>(exchange.rounds.size());
  for (int r = 0; r < rounds; ++r) {
    const Round& round = exchange.rounds[r];
    steps.enter_round(r);
    for (std::size_t i = 0; i < round.puts.size(); ++i) {
      const std::size_t port = port_of(round.puts[i], i);
      for (const Transfer& run : receive_runs(round.puts[i], shape, most_put_bytes)) {
        // My block alone goes from where the user has it. With others it goes from the receive
        // buffer, where it was copied in round 0, the only round in which there are no others.
        const std::uint64_t bytes = run_bytes(run, shape);
        const std::uint64_t place = shape.receive_offsets[run.first];
        const bool mine = run.first == rank && run.count == 1;
        steps.put(port, run.peer, mine ? Memory::Send : Memory::Receive, mine ? 0 : place,
                  Memory::Receive, place, bytes);
      }
    }
    if (r == 0) {
      steps.copy(Memory::Send, 0, Memory::Receive, shape.receive_offsets[rank], shape.bytes[rank]);
    }
    for (std::size_t i = 0; i < round.awaits.size(); ++i) {
      const std::size_t port = port_of(round.awaits[i], i);
      for (const Transfer& run : receive_runs(round.awaits[i], shape, most_put_bytes)) {
        steps.await(port, run.peer, Memory::Receive, 0, shape.receive_offsets[run.first],
                    run_bytes(run, shape));
      }
    }
  }
  if (rounds == 0) {
    steps.copy(Memory::Send, 0, Memory::Receive, shape.receive_offsets[rank], shape.bytes[rank]);
  }
  schedule.rounds = rounds;
  return schedule;
}

}  // namespace allrail::schedule
