// From settings and call options to the algorithm of a call.
#pragma once

#include <cstdint>

#include "coll/block_header.hpp"
#include "coll/plan.hpp"
#include "coll/roster.hpp"
#include "coll/selection.hpp"
#include "coll/tuning_rules.hpp"
#include "include/allrail/communicator.hpp"
#include "lib/model_choice.hpp"

namespace allrail {

/// Who is asked for an algorithm, beside the call itself, in this order.
struct Choosers {
  const Options& settings;
  const coll::TuningRules& rules;  // of the tuning file
  ModelChoice* model = nullptr;    // of the same; null: it has none
  // What the table depends on beside the call: see Engine.
  transport::Pace pace = transport::Pace::Unknown;
};

/// Of a call.
struct BlockSizes {
  std::uint64_t largest_bytes = 0;
  bool pays_to_cut = false;  // of an allgatherv, see coll::SelectionFacts::blocks_differ
};
/// Those of a request. The same on all ranks.
BlockSizes block_sizes_of(const coll::PlanRequest& request, const coll::Roster& roster);

/// What the call names goes first, then the choosers, then the table of measured choices. `rails`
/// is the number of rails of a rank, `memory` what an allgather receives into. The same on all
/// ranks of a job.
coll::Selection select_for(coll::Operation operation, const coll::Roster& roster, int rails,
                           const Choosers& choosers, const BlockSizes& blocks,
                           const CallOptions& call,
                           coll::MemoryKind memory = coll::MemoryKind::Ordinary);

/// The table's choice for no bytes, whatever settings and rules say of allgathers.
coll::Selection select_for_allocation(const coll::Roster& roster, int rails);

/// The one algorithm of barriers, with as many ports as help.
coll::Selection select_for_barrier(const coll::Roster& roster, int rails);

}  // namespace allrail
