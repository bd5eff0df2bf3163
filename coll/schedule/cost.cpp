#include "coll/schedule/cost.hpp"

#include <algorithm>
#include <vector>

namespace allrail::schedule {
namespace {

/// Per round the largest load of any port, and whether there was a put at all.
struct Busiest {
  std::uint64_t load = 0;
  bool used = false;
};

void note(std::vector<Busiest>& rounds, std::size_t round, std::uint64_t load) {
  if (round >= rounds.size()) {
    rounds.resize(round + 1);
  }
  rounds[round].load = std::max(rounds[round].load, load);
  rounds[round].used = true;
}

}  // namespace

Cost cost_of(int ranks, const std::function<Schedule(int)>& schedule_of, const Hockney& model) {
  std::vector<Busiest> rounds;
  for (int rank = 0; rank < ranks; ++rank) {
    // The puts of one port in one round follow each other in the steps.
    const Step* before = nullptr;
    std::uint64_t load = 0;
    const Schedule schedule = schedule_of(rank);
    for (const Step& step : schedule.steps) {
      if (step.kind != StepKind::Put) {
        continue;
      }
      const bool same_port =
          before != nullptr && before->round == step.round && before->port == step.port;
      load = same_port ? load + step.bytes : step.bytes;
      note(rounds, step.round, load);
      before = &step;
    }
  }
  Cost cost;
  for (const Busiest& round : rounds) {
    cost.steps += round.used ? 1 : 0;
    cost.bytes_per_port += round.load;
  }
  cost.seconds = cost.steps * model.startup_s +
                 static_cast<double>(cost.bytes_per_port) * model.seconds_per_byte;
  return cost;
}

ExchangeCost cost_of_exchange(ExchangeFunction exchange, int participants, int ports) {
  std::vector<Busiest> rounds;
  for (int me = 0; me < participants; ++me) {
    const Exchange mine = exchange(participants, me, ports);
    for (std::size_t round = 0; round < mine.rounds.size(); ++round) {
      for (const Transfer& put : mine.rounds[round].puts) {
        note(rounds, round, static_cast<std::uint64_t>(put.count));
      }
    }
  }
  ExchangeCost cost;
  for (const Busiest& round : rounds) {
    cost.steps += round.used ? 1 : 0;
    cost.blocks_per_port += static_cast<std::int64_t>(round.load);
  }
  return cost;
}

}  // namespace allrail::schedule
