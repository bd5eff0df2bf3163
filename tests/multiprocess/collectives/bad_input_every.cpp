// Wrong calls that are made alike of every collective, as calls and as plans. A barrier follows
// where a rank may be done with its part before another one sees the mistake.
#include "tests/multiprocess/collectives/any_call.hpp"
#include "tests/multiprocess/collectives/bad_input.hpp"

namespace probe {
namespace {

using allrail::Plan;

/// A root that is no rank, of a call and of a plan of every collective that has one.
Table root_cases() {
  Table table;
  for (const AnyKind kind : {AnyKind::Gather, AnyKind::Gatherv, AnyKind::Scatter, AnyKind::Scatterv,
                             AnyKind::Broadcast}) {
    AnySpec spec{kind, 1, kBytes, true, {}};
    const auto of_odd = [spec](const Case& c, int root) {
      AnySpec one = spec;
      if (c.odd) one.root = root;
      return one;
    };
    const std::string name = any_name(kind);
    table["root-negative-of-" + name] = [of_odd](Case& c) {
      AnyCall(c.communicator, of_odd(c, -1)).call(c.communicator);
      c.communicator.barrier();
    };
    table["root-too-large-of-" + name] = [of_odd](Case& c) {
      AnyCall(c.communicator, of_odd(c, static_cast<int>(c.ranks))).call(c.communicator);
      c.communicator.barrier();
    };
    table["root-of-plan-of-" + name] = [of_odd](Case& c) {
      AnyCall call(c.communicator, of_odd(c, static_cast<int>(1000 * c.ranks)));
      Plan plan = call.plan(c.communicator);
      plan.start();
      plan.wait();
      c.communicator.barrier();
    };
  }
  return table;
}

CallOptions by(const char* algorithm) {
  CallOptions options;
  options.algorithm = algorithm;
  return options;
}

// Blocks that go straight between user buffers.
constexpr std::size_t kLargeBytes = 1'500'000;

/// Sizes and algorithms that differ between the ranks of every collective, and roots.
Table differing_cases() {
  Table table;
  // A barrier has nothing that could be wrong.
  for (int number = 0; number < static_cast<int>(AnyKind::Barrier); ++number) {
    const auto kind = static_cast<AnyKind>(number);
    const std::string name = any_name(kind);
    const auto make = [kind](Case& c, AnySpec spec, bool by_plan) {
      spec.kind = kind;
      AnyCall call(c.communicator, spec);
      if (by_plan) {
        Plan plan = call.plan(c.communicator);
        plan.start();
        plan.wait();
      } else {
        call.call(c.communicator);
      }
      c.communicator.barrier();
    };
    for (const bool by_plan : {false, true}) {
      table[name + (by_plan ? "-plans" : "-calls") + "-of-other-sizes"] = [=](Case& c) {
        make(c, {kind, 0, c.odd ? 2 * kBytes : kBytes, by_plan, {}}, by_plan);
      };
    }
    const bool is_all = kind == AnyKind::Allgather || kind == AnyKind::Allgatherv;
    const bool is_alltoall = kind == AnyKind::Alltoall || kind == AnyKind::Alltoallv;
    const char* const other = is_all || is_alltoall ? "bruck" : "binomial";
    const char* const one = kind == AnyKind::Broadcast ? "chain" : "direct";
    table[name + "-algorithms"] = [=](Case& c) {
      make(c, {kind, 0, kBytes, false, by(c.odd ? other : one)}, false);
    };
    table["large-" + name + "-of-other-sizes"] = [=](Case& c) {
      make(c, {kind, 0, c.odd ? 2 * kLargeBytes : kLargeBytes, false, {}}, false);
    };
    if (is_all || is_alltoall) continue;
    table[name + "-other-roots"] = [=](Case& c) {
      make(c, {kind, c.odd ? 1 : 0, kBytes, false, {}}, false);
    };
    table["large-" + name + "-other-roots"] = [=](Case& c) {
      make(c, {kind, c.odd ? 1 : 0, kLargeBytes, false, {}}, false);
    };
    const auto other_kind = kind == AnyKind::Scatter ? AnyKind::Gather : AnyKind::Scatter;
    table["large-" + name + "-and-another"] = [=](Case& c) {
      AnyCall(c.communicator, {c.odd ? other_kind : kind, 0, kLargeBytes, false, {}})
          .call(c.communicator);
      c.communicator.barrier();
    };
  }
  return table;
}

}  // namespace

const Table& every_local_cases() {
  static const Table kTable = root_cases();
  return kTable;
}

const Table& every_mismatch() {
  static const Table kTable = differing_cases();
  return kTable;
}

}  // namespace probe
