#include "coll/schedule/replay_bytes.hpp"

#include <algorithm>
#include <utility>

namespace allrail::schedule {
namespace {

constexpr std::size_t kMostViolations = 32;

const char* name_of(StepKind kind) {
  switch (kind) {
    case StepKind::Copy:
      return "copy";
    case StepKind::Pack:
      return "pack";
    case StepKind::Unpack:
      return "unpack";
    case StepKind::Stamp:
      return "stamp";
    case StepKind::Put:
      return "put";
    case StepKind::Await:
      return "await";
    case StepKind::Publish:
      return "publish";
    case StepKind::AwaitLocal:
      return "local await";
    case StepKind::AwaitSent:
      return "await of its own puts";
    case StepKind::Offer:
      return "offer";
    case StepKind::Read:
      return "read";
    case StepKind::Once:
      return "once";
  }
  return "?";
}

}  // namespace

void Findings::add(Fault fault, std::string sentence) {
  if (violations_.size() < kMostViolations) {
    violations_.push_back({fault, std::move(sentence)});
  }
}

std::string Findings::where(int call, int rank, const Step& step) {
  return "call " + std::to_string(call) + ", rank " + std::to_string(rank) + ", " +
         name_of(step.kind) + " of round " + std::to_string(step.round) +
         (step.peer >= 0 ? " with peer " + std::to_string(step.peer) : "");
}

bool ReplayBytes::check_bounds(int call, int rank, const Step& step, const Range& range) {
  if (!range.in_bounds) {
    findings_.add(Fault::OutOfBounds, Findings::where(call, rank, step) + " leaves its memory");
  }
  return range.in_bounds;
}

void ReplayBytes::check_read(int call, int rank, const Step& step, const Range& range) {
  const Origins::Span mine = memory_.origins().of(call);
  for (std::uint64_t i = 0; i < step.bytes; ++i) {
    if (!mine.holds(range.at(i))) {
      const bool later = memory_.origins().of_later_call(call, range.at(i));
      findings_.add(
          later ? Fault::OverwrittenInUse : Fault::ReadBeforeArrival,
          Findings::where(call, rank, step) + " reads byte " + std::to_string(i) + " of " +
              std::to_string(step.bytes) +
              (later ? ", which a later call has overwritten" : ", which has not arrived"));
      return;
    }
  }
}

void ReplayBytes::write(int call, int rank, const Step& step, const Range& to, std::uint64_t bytes,
                        const Range& source) {
  // Most of the checker's time is spent here, byte by byte.
  const Origins::Span mine = memory_.origins().of(call);
  bool reported = false;
  for (std::uint64_t i = 0; i < bytes; ++i) {
    const Origin before = to.origins[i];
    if (before >= mine.first && !reported) {
      const bool twice = mine.holds(before);
      findings_.add(twice ? Fault::WrittenTwice : Fault::OverwrittenInUse,
                    Findings::where(call, rank, step) + " writes over bytes of " +
                        (twice ? "the same call" : "a later call"));
      reported = true;
    }
    const Origin origin = source.at(i);
    to.origins[i] = mine.holds(origin) ? origin : 0;
  }
}

void ReplayBytes::check_headers(int call, int rank) {
  for (const std::uint64_t offset : calls_[call].schedules[rank].header_offsets) {
    const Range range = memory_.range(call, rank, Memory::Slot, offset, kHeaderBytes);
    if (!range.in_bounds || !is_header(call, range)) {
      findings_.add(Fault::HeaderMissing, "call " + std::to_string(call) + ", rank " +
                                              std::to_string(rank) +
                                              " finds no header at slot offset " +
                                              std::to_string(offset) + " in the end");
    }
  }
}

bool ReplayBytes::is_header(int call, const Range& range) const {
  return memory_.origins().starts_header(call, range.at(0)) &&
         range.at(kHeaderBytes - 1) == range.at(0) + kHeaderBytes - 1;
}

void ReplayBytes::check_result(int call, int rank) {
  const std::span receive =
      std::span(memory_.receive(call, rank)).first(memory_.receive_bytes(call));
  std::vector<Origin> expected(receive.size());
  if (calls_[call].node_shared) std::ranges::copy(receive, expected.begin());  // gaps keep theirs
  for (const Received& part : calls_[call].purpose.received[rank]) {
    for (std::uint64_t i = 0; i < part.bytes; ++i) {
      expected[part.to_offset + i] =
          memory_.origins().block_byte(call, part.from, part.from_offset + i);
    }
  }
  const auto [found, wanted] = std::ranges::mismatch(receive, expected);
  if (found != receive.end()) {
    const bool missing = !memory_.origins().of_call(call, *found);
    findings_.add(missing ? Fault::MissingBytes : Fault::WrongBytes,
                  "call " + std::to_string(call) + ", rank " + std::to_string(rank) + ": byte " +
                      std::to_string(found - receive.begin()) + " of the receive buffer is " +
                      (missing ? "missing" : "wrong"));
  }
}

}  // namespace allrail::schedule
