#include <array>
#include <memory>

#include <gtest/gtest.h>

#include "tests/property/schedule/mutations.hpp"
#include "tests/property/schedule/rooted_call.hpp"

// The checker must be able to fail: broken gathers, scatters, broadcasts and alltoalls, by every
// algorithm. What a mutation cannot harm is left out by a function that says why.
namespace allrail::schedule::testing {
namespace {

/// Several nodes of one rank and of more, in an order of their own, for four nodes on two switches.
NodeMap shared_nodes() { return NodeMap({0, 1, 1, 2, 3, 3, 0}); }
NodeMap one_rank_each() { return NodeMap({0, 1, 2, 3, 4}); }

Shape shape_of(NodeMap map, int ports, bool uneven) {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(map.node_of.size());
  for (int rank = 0; rank < map.ranks(); ++rank) {
    bytes.push_back(uneven ? 9 + static_cast<std::uint64_t>(13 * rank % 7) : 12);
  }
  Shape shape = packed_shape(std::move(map), std::move(bytes), ports, 1);
  auto switches = std::make_shared<Switches>();
  for (int node = 0; node < shape.map.nodes(); ++node) switches->leaf_of.push_back(node % 2);
  shape.switches = std::move(switches);
  return shape;
}

/// No call has a rank with nothing to give or to take, so that every step carries bytes that
/// matter: of a broadcast every piece, two of them where it goes down a chain.
std::vector<Tested> correct_calls(bool uneven = true) {
  std::vector<Tested> all;
  const auto add = [&all](RootedCall call) {
    all.push_back({std::move(call.name), std::move(call.call)});
  };
  const auto bytes = [uneven](int from, int to) -> std::uint64_t {
    return uneven ? 5 + static_cast<std::uint64_t>((from * 3 + to * 5) % 7) : 6;
  };
  int ports = 1;
  // Roots that are the first rank of their node, and one that is not and so does not talk.
  for (const auto& [map, root] : {std::pair(shared_nodes(), 2), std::pair(one_rank_each(), 3)}) {
    const Shape shape = shape_of(map, ports, uneven);
    for (const auto& algorithm : coll::gather::algorithms()) {
      add(make_gather(algorithm, shape, root));
    }
    for (const auto& algorithm : coll::scatter::algorithms()) {
      add(make_scatter(algorithm, shape, root));
    }
    for (const auto& algorithm : coll::broadcast::algorithms()) {
      const bool is_chain = algorithm.name.ends_with("chain");
      const std::uint64_t data = is_chain ? 16 * 1024 + 70 : 64 * map.ranks() - 6;
      add(make_broadcast(algorithm, uniform_shape(map, data, ports, 1), root));
    }
    for (const auto& algorithm : coll::alltoall::algorithms()) {
      add(make_alltoall(algorithm, {map}, ports, bytes));
    }
    ++ports;
  }
  return all;
}

void expect_caught(const Mutation& mutation, std::initializer_list<Fault> faults) {
  expect_all_caught(correct_calls(), mutation, faults);
}

TEST(RootedMutation, CorrectCallsHaveNoViolation) {
  // The replay tests try many more shapes and interleavings of each.
  expect_correct(correct_calls(), 20);
  expect_correct(correct_calls(false), 20);
}

TEST(RootedMutation, DroppedPut) {
  expect_caught(dropping(StepKind::Put), {Fault::PutAwaitMismatch});
  expect_caught(dropping(StepKind::Put),
                {Fault::Deadlock, Fault::ReadBeforeArrival, Fault::HeaderMissing});
}

TEST(RootedMutation, DroppedAwait) {
  expect_caught(dropping(StepKind::Await), {Fault::PutAwaitMismatch});
  // Also without looking at the pairs: what is brought is read, or sent on, too early.
  expect_caught(dropping(StepKind::Await), {Fault::ReadBeforeArrival, Fault::HeaderMissing});
}

TEST(RootedMutation, ShiftedPut) {
  expect_caught(shift_put, {Fault::PutAwaitMismatch});
  expect_caught(shift_put, {Fault::HeaderMissing, Fault::WrittenTwice, Fault::OutOfBounds,
                            Fault::ReadBeforeArrival});
}

TEST(RootedMutation, ShiftedSourceOfPut) {
  expect_caught(shift_source_of_put, {Fault::HeaderMissing, Fault::OutOfBounds});
}

TEST(RootedMutation, ShiftedCopy) {
  expect_caught(shift_end_of_copy, {Fault::WrongBytes, Fault::MissingBytes, Fault::OutOfBounds});
  expect_caught(shift_source_of_copy,
                {Fault::WrongBytes, Fault::ReadBeforeArrival, Fault::OutOfBounds});
}

TEST(RootedMutation, SwappedPlacesOfTwoCopies) {
  expect_caught(swap_places_of_copies,
                {Fault::WrongBytes, Fault::WrittenTwice, Fault::OutOfBounds});
}

TEST(RootedMutation, ReadBeforeItsAwait) {
  expect_caught(moving_before_its_await(StepKind::Copy), {Fault::ReadBeforeArrival});
  expect_caught(moving_before_its_await(StepKind::Put),
                {Fault::HeaderMissing, Fault::SourceModified});
}

TEST(RootedMutation, ShortenedPut) {
  expect_caught(shorten_put, {Fault::PutAwaitMismatch});
  expect_caught(put_at_another_port, {Fault::PutAwaitMismatch});
  expect_caught(shorten_put_and_await, {Fault::ReadBeforeArrival});
}

TEST(RootedMutation, RepeatedPut) { expect_caught(repeat_put_and_await, {Fault::WrittenTwice}); }

/// Two puts of a rank go to each other's peers. Where both bring the same bytes to the same place
/// of their peers, as the root of a tree broadcast does, that is the same call in another order,
/// which harms nobody.
bool exchange_peers(ReplayCall& call, int rank, std::size_t first, std::size_t second) {
  std::vector<Step>& steps = steps_of(call, rank);
  Step& one = steps[first];
  Step& other = steps[second];
  if (one.kind != StepKind::Put || other.kind != StepKind::Put || one.peer == other.peer) {
    return false;
  }
  const bool alike = one.from_offset == other.from_offset && one.to_offset == other.to_offset &&
                     one.bytes == other.bytes;
  std::swap(one.peer, other.peer);
  return !alike;
}

/// Two puts of as many bytes send what the other one should: both sides agree, and the headers of
/// regions are where they are looked for.
bool exchange_sources(ReplayCall& call, int rank, std::size_t first, std::size_t second) {
  std::vector<Step>& steps = steps_of(call, rank);
  Step& one = steps[first];
  Step& other = steps[second];
  if (one.kind != StepKind::Put || other.kind != StepKind::Put || one.bytes != other.bytes ||
      one.from_offset == other.from_offset) {
    return false;
  }
  std::swap(one.from_offset, other.from_offset);
  return true;
}

template <class Exchange>
void expect_exchange_caught(bool uneven, const Exchange& exchange,
                            std::initializer_list<Fault> faults) {
  const auto calls = correct_calls(uneven);
  for (std::size_t distance = 1; distance < 4; ++distance) {
    const Mutation mutation = [&](ReplayCall& call, int rank, std::size_t index) {
      // The put that stands so many puts behind this one.
      const auto& steps = steps_of(call, rank);
      auto puts = distance;
      for (std::size_t other = index + 1; other < steps.size(); ++other) {
        if (steps[other].kind != StepKind::Put || --puts > 0) continue;
        return exchange(call, rank, index, other);
      }
      return false;
    };
    expect_all_caught(calls, mutation, faults);
  }
}

TEST(RootedMutation, ExchangedDestinations) {
  for (const bool uneven : {false, true}) {
    expect_exchange_caught(uneven, exchange_peers,
                           {Fault::PutAwaitMismatch, Fault::WrongBytes, Fault::HeaderMissing,
                            Fault::ReadBeforeArrival, Fault::WrittenTwice});
  }
}

TEST(RootedMutation, ExchangedSources) {
  expect_exchange_caught(false, exchange_sources,
                         {Fault::WrongBytes, Fault::HeaderMissing, Fault::ReadBeforeArrival});
}

/// The header of a region that never leaves the slot, such as that of the root's own place in a
/// scatter, is read by nobody: headers are for who awaits a region.
bool drop_stamp_that_travels(ReplayCall& call, int rank, std::size_t index) {
  const std::vector<Step>& steps = steps_of(call, rank);
  const std::uint64_t header = steps[index].to_offset;
  const bool travels = std::ranges::any_of(steps, [header](const Step& step) {
    return step.kind == StepKind::Put && step.from_offset <= header &&
           header < step.from_offset + step.bytes;
  });
  return travels && drop(call, rank, index, StepKind::Stamp);
}

TEST(RootedMutation, DroppedStamp) {
  expect_caught(drop_stamp_that_travels, {Fault::HeaderMissing});
}

TEST(RootedMutation, DroppedCopy) {
  expect_caught(dropping_copies_to(Memory::Receive), {Fault::MissingBytes});
  expect_caught(dropping_copies_to(Memory::Slot), {Fault::ReadBeforeArrival});
}

/// Whether a rank of the node waits for a stage that this publish is the first to reach. Whoever
/// talks raises its flag behind every await, also where none of its node takes what came: such a
/// flag may be missing, or early, without harm.
bool is_awaited(ReplayCall& call, int rank, std::size_t index) {
  const std::vector<Step>& steps = steps_of(call, rank);
  if (steps[index].kind != StepKind::Publish) return false;
  std::uint32_t before = 0;
  for (std::size_t i = 0; i < index; ++i) {
    if (steps[i].kind == StepKind::Publish) before = steps[i].stage;
  }
  const NodeMap& map = call.shape.map;
  const auto& local = map.ranks_of[map.node_of[rank]];
  return std::ranges::any_of(local, [&](int other) {
    return std::ranges::any_of(call.schedules[other].steps, [&](const Step& step) {
      return step.kind == StepKind::AwaitLocal && local[step.peer] == rank && step.stage > before &&
             step.stage <= steps[index].stage;
    });
  });
}

Mutation where_awaited(const Mutation& mutation) {
  return [mutation](ReplayCall& call, int rank, std::size_t index) {
    return is_awaited(call, rank, index) && mutation(call, rank, index);
  };
}

TEST(RootedMutation, DroppedLastPublish) {
  expect_caught(where_awaited(drop_last_publish), {Fault::FlagNeverRaised});
}

TEST(RootedMutation, PublishBeforeTheBytesAreThere) {
  expect_caught(where_awaited(publish_too_early), {Fault::ReadBeforeArrival});
}

TEST(RootedMutation, PublishTwice) { expect_caught(publish_twice, {Fault::FlagNotRising}); }

TEST(RootedMutation, DroppedLocalAwait) {
  expect_caught(dropping(StepKind::AwaitLocal), {Fault::ReadBeforeArrival, Fault::SourceModified});
}

TEST(RootedMutation, PeersThatDoNotExist) {
  expect_caught(ask_for_a_peer_that_is_not_there, {Fault::NoSuchPeer});
}

TEST(RootedMutation, HeaderOffsetsWhereNoHeaderLies) {
  expect_header_offsets_caught(correct_calls(), {8, std::uint64_t{1} << 40});
}

TEST(RootedMutation, HeaderOffsetsThatNothingWasAwaitedFor) {
  expect_caught(look_for_headers_too_early, {Fault::HeaderMissing});
}

// A rank that awaits before it puts, in a ring of pieces where everybody needs somebody else's.
TEST(RootedMutation, EverybodyAwaitsBeforeItPuts) {
  const auto& algorithm = *coll::alltoall::find_algorithm("direct");
  ReplayCall call = make_alltoall(algorithm, {one_rank_each()}, 1, [](int, int) -> std::uint64_t {
                      return 6;
                    }).call;
  for (Schedule& schedule : call.schedules) {
    const auto put = std::ranges::find(schedule.steps, StepKind::Put, &Step::kind);
    const auto await = std::ranges::find(schedule.steps, StepKind::Await, &Step::kind);
    std::iter_swap(put, await);
  }
  EXPECT_TRUE(caught(call, {Fault::Deadlock}));
}

}  // namespace
}  // namespace allrail::schedule::testing
