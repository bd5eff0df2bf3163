#include <algorithm>

#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "tests/property/schedule/mutations.hpp"
#include "tests/property/schedule/random_shape.hpp"

// The checker must be able to fail: broken allgathers. What other collectives have of their own is
// in rooted_mutation_test.cpp.
namespace allrail::schedule::testing {
namespace {

using coll::allgather::find_algorithm;

/// Uneven blocks, none of them empty, so that every step carries bytes that matter.
Shape mutable_shape(std::vector<int> node_of, int ports, int leaders) {
  std::vector<std::uint64_t> bytes;
  for (std::size_t rank = 0; rank < node_of.size(); ++rank) {
    bytes.push_back(9 + 13 * rank % 7);
  }
  return packed_shape(NodeMap(std::move(node_of)), std::move(bytes), ports, leaders);
}

std::vector<Tested> correct_calls() {
  const auto call = [](std::string_view name, std::vector<int> node_of, int ports, int leaders) {
    const Shape shape = mutable_shape(std::move(node_of), ports, leaders);
    return Tested{std::string(name), make_call(*find_algorithm(name), shape)};
  };
  return {
      call("direct", {0, 0, 1, 1, 2}, 2, 1),
      call("bruck", {0, 1, 0, 1, 2, 2}, 2, 1),
      call("recursive-doubling", {0, 1, 2, 3, 4, 5}, 1, 1),
      call("ring", {0, 1, 2, 0, 1, 2, 1}, 3, 1),
      call("smp-gather-broadcast", {0, 0, 1, 1, 2, 2, 3}, 1, 1),
      call("smp-direct-gather-broadcast", {0, 1, 1, 2, 3, 3, 4}, 2, 1),
      call("smp-direct", {0, 0, 0, 1, 1, 1, 2, 2}, 1, 2),
      call("smp-bruck", {0, 1, 2, 0, 1, 2, 0, 1}, 1, 2),
      call("smp-recursive-doubling", {0, 0, 1, 1, 2, 2, 3, 3}, 1, 1),
      call("smp-ring", {0, 0, 1, 1, 2, 2, 2}, 2, 2),
      call("smp-multi-leader-recursive-doubling", {0, 0, 0, 0, 1, 1, 1, 1}, 1, 2),
  };
}

void expect_caught(const Mutation& mutation, std::initializer_list<Fault> faults) {
  expect_all_caught(correct_calls(), mutation, faults);
}

TEST(Mutation, CorrectCallsHaveNoViolation) { expect_correct(correct_calls()); }

TEST(Mutation, DroppedPut) {
  expect_caught(dropping(StepKind::Put), {Fault::PutAwaitMismatch});
  expect_caught(dropping(StepKind::Put),
                {Fault::Deadlock, Fault::ReadBeforeArrival, Fault::HeaderMissing});
}

TEST(Mutation, DroppedAwait) {
  expect_caught(dropping(StepKind::Await), {Fault::PutAwaitMismatch});
  // Also without looking at the pairs: the bytes are read too early.
  expect_caught(dropping(StepKind::Await), {Fault::ReadBeforeArrival});
}

TEST(Mutation, ShiftedPut) {
  expect_caught(shift_put, {Fault::PutAwaitMismatch});
  expect_caught(shift_put, {Fault::HeaderMissing, Fault::WrittenTwice, Fault::OutOfBounds,
                            Fault::ReadBeforeArrival});
}

TEST(Mutation, ShiftedSourceOfPut) {
  expect_caught(shift_source_of_put, {Fault::HeaderMissing, Fault::OutOfBounds});
}

TEST(Mutation, ShiftedCopy) {
  expect_caught(shift_end_of_copy, {Fault::WrongBytes, Fault::MissingBytes, Fault::OutOfBounds});
  expect_caught(shift_source_of_copy,
                {Fault::WrongBytes, Fault::ReadBeforeArrival, Fault::OutOfBounds});
}

TEST(Mutation, SwappedPlacesOfTwoCopies) {
  expect_caught(swap_places_of_copies,
                {Fault::WrongBytes, Fault::WrittenTwice, Fault::OutOfBounds});
}

TEST(Mutation, CopyBeforeItsAwait) {
  expect_caught(moving_before_its_await(StepKind::Copy), {Fault::ReadBeforeArrival});
}

TEST(Mutation, ShortenedPut) {
  expect_caught(shorten_put, {Fault::PutAwaitMismatch});
  expect_caught(put_at_another_port, {Fault::PutAwaitMismatch});
  expect_caught(shorten_put_and_await, {Fault::ReadBeforeArrival});
}

TEST(Mutation, RepeatedPut) { expect_caught(repeat_put_and_await, {Fault::WrittenTwice}); }

TEST(Mutation, DroppedStamp) { expect_caught(dropping(StepKind::Stamp), {Fault::HeaderMissing}); }

TEST(Mutation, DroppedCopy) {
  expect_caught(dropping_copies_to(Memory::Receive), {Fault::MissingBytes});
  expect_caught(dropping_copies_to(Memory::Slot), {Fault::ReadBeforeArrival});
}

TEST(Mutation, DroppedLastPublish) { expect_caught(drop_last_publish, {Fault::FlagNeverRaised}); }

TEST(Mutation, PublishBeforeTheBytesAreThere) {
  expect_caught(publish_too_early, {Fault::ReadBeforeArrival});
}

TEST(Mutation, PublishTwice) { expect_caught(publish_twice, {Fault::FlagNotRising}); }

TEST(Mutation, DroppedLocalAwait) {
  expect_caught(dropping(StepKind::AwaitLocal), {Fault::ReadBeforeArrival, Fault::SourceModified});
}

TEST(Mutation, PeersThatDoNotExist) {
  expect_caught(ask_for_a_peer_that_is_not_there, {Fault::NoSuchPeer});
}

TEST(Mutation, HeaderOffsetsWhereNoHeaderLies) {
  expect_header_offsets_caught(correct_calls(), {8, kHeaderBytes, std::uint64_t{1} << 40});
}

TEST(Mutation, HeaderOffsetsThatNothingWasAwaitedFor) {
  expect_caught(look_for_headers_too_early, {Fault::HeaderMissing});
}

TEST(Mutation, EverybodyAwaitsBeforeItPuts) {
  ReplayCall call = make_call(*find_algorithm("ring"), mutable_shape({0, 1, 2, 3, 4}, 1, 1));
  for (Schedule& schedule : call.schedules) {
    const auto put = std::ranges::find(schedule.steps, StepKind::Put, &Step::kind);
    const auto await = std::ranges::find(schedule.steps, StepKind::Await, &Step::kind);
    std::iter_swap(put, await);
  }
  EXPECT_TRUE(caught(call, {Fault::Deadlock}));
}

TEST(Mutation, SourceRewrittenInFlight) {
  // Rank 0 puts its region and then copies over it.
  ReplayCall call = make_call(*find_algorithm("direct"), mutable_shape({0, 1}, 1, 1));
  std::vector<Step>& steps = call.schedules[0].steps;
  const auto put = std::ranges::find(steps, StepKind::Put, &Step::kind);
  const Step again = *std::ranges::find(steps, StepKind::Copy, &Step::kind);
  Step other = again;
  other.from_offset = 1;
  other.bytes -= 1;
  steps.insert(put + 1, other);
  EXPECT_TRUE(caught(call, {Fault::SourceModified}));
}

}  // namespace
}  // namespace allrail::schedule::testing
