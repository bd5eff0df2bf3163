// What barriers spread of the rails: after every barrier all nodes know the same, and it is what
// all of them said in the barrier that is one less before it than a barrier has rounds.
#include "coll/pace_agreement.hpp"

#include <cstddef>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "coll/barrier/barrier.hpp"

namespace allrail::coll {
namespace {

using transport::Pace;

/// One rank on every node. Who has signals from whom is what the schedules of barriers say.
class Nodes {
 public:
  Nodes(int nodes, int ports) : agreements_(static_cast<std::size_t>(nodes)) {
    std::vector<int> node_of(static_cast<std::size_t>(nodes));
    for (int node = 0; node < nodes; ++node) node_of[static_cast<std::size_t>(node)] = node;
    const schedule::NodeMap map(node_of);
    const schedule::Groups groups{map, 1, nullptr};
    for (int node = 0; node < nodes; ++node) {
      auto& senders = senders_.emplace_back();
      const schedule::Schedule made = barrier::make_schedule(groups, ports, node);
      rounds_ = made.rounds;
      for (const schedule::Step& step : made.steps) {
        if (step.kind == schedule::StepKind::Await) senders.push_back(step.peer);
      }
    }
  }

  void barrier(const std::vector<Pace>& said) {
    std::vector<std::uint32_t> words;
    for (std::size_t node = 0; node < agreements_.size(); ++node) {
      words.push_back(agreements_[node].begin(said[node]));
    }
    for (std::size_t node = 0; node < agreements_.size(); ++node) {
      for (const int sender : senders_[node]) {
        agreements_[node].heard(words[static_cast<std::size_t>(sender)]);
      }
    }
  }

  Pace agreed(std::size_t node) const { return agreements_[node].agreed(rounds_); }
  std::size_t rounds() const { return static_cast<std::size_t>(rounds_); }

 private:
  std::vector<PaceAgreement> agreements_;
  std::vector<std::vector<int>> senders_;
  int rounds_ = 0;
};

Pace together(const std::vector<Pace>& said) {
  Pace all = Pace::Unknown;
  for (const Pace one : said) {
    if (one == Pace::Slow) return Pace::Slow;
    if (one == Pace::Fast) all = Pace::Fast;
  }
  return all;
}

TEST(PaceAgreement, IsWhatAllNodesSaidSoManyBarriersAgo) {
  std::mt19937_64 chance(1);
  // So that each of the three comes out now and then, whatever the number of nodes.
  constexpr Pace kOften[][2] = {{Pace::Unknown, Pace::Unknown},
                                {Pace::Unknown, Pace::Fast},
                                {Pace::Fast, Pace::Fast},
                                {Pace::Unknown, Pace::Slow}};
  for (int count = 2; count <= 40; ++count) {
    for (const int ports : {1, 2, 3, 7}) {
      Nodes nodes(count, ports);
      std::vector<Pace> together_then;
      for (int barriers = 0; barriers < 30; ++barriers) {
        std::vector<Pace> said(static_cast<std::size_t>(count), kOften[chance() % 4][0]);
        said[chance() % said.size()] = kOften[chance() % 4][1];
        together_then.push_back(together(said));
        nodes.barrier(said);
        const std::size_t ago = nodes.rounds() - 1;
        const Pace expected = together_then.size() > ago
                                  ? together_then[together_then.size() - 1 - ago]
                                  : Pace::Unknown;
        for (std::size_t node = 0; node < said.size(); ++node) {
          ASSERT_EQ(nodes.agreed(node), expected) << "node " << node << " of " << count << " with "
                                                  << ports << " ports, barrier " << barriers;
        }
      }
    }
  }
}

TEST(PaceAgreement, KnowsNothingOfOneNodeOrOfMoreRoundsThanAWordHolds) {
  PaceAgreement agreement;
  for (int i = 0; i < 40; ++i) agreement.begin(Pace::Fast);
  EXPECT_EQ(agreement.agreed(0), Pace::Unknown);
  EXPECT_EQ(agreement.agreed(16), Pace::Fast);
  EXPECT_EQ(agreement.agreed(17), Pace::Unknown);
}

}  // namespace
}  // namespace allrail::coll
