// The cost model of a tuning file: how it is read, and that the algorithm which it takes to be the
// fastest is chosen.
#include "lib/model_choice.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "coll/recipe.hpp"
#include "include/allrail/error.hpp"

namespace allrail {
namespace {

constexpr int kRails = 2;

/// A file that has nothing but a model.
TuningFile file_of(const std::string& model) {
  return parse_tuning_file("{\"format\": 1,\n\"model\": " + model + "}", "t.json");
}

std::string refusal(const std::string& model) {
  try {
    file_of(model);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::BadConfiguration);
    return error.what();
  }
  return "";
}

coll::Roster roster_of(std::vector<int> node_of) {
  return coll::Roster(schedule::NodeMap(std::move(node_of)), 0);
}

coll::Roster blocks(int nodes, int size) {
  std::vector<int> node_of;
  for (int rank = 0; rank < nodes * size; ++rank) node_of.push_back(rank / size);
  return roster_of(std::move(node_of));
}

TEST(TuningModel, HasWhatTheFileSaysAndDefaultsElse) {
  const auto file = file_of(R"({"context": "made up", "latency_us": 7, "rail_MBps": [100, 50.5],
      "stripe_bytes": 4096, "local_puts": "rail", "leaf_size": [2, 3], "domains": 2,
      "rail_domain": 1, "own_ports": true, "message_us": 1e1})");
  ASSERT_TRUE(file.model.has_value());
  EXPECT_EQ(file.rule_count(), 0U);
  EXPECT_EQ(file.model->latency_us, 7);
  EXPECT_EQ(file.model->message_us, 10);
  EXPECT_EQ(file.model->rail_MBps, (std::vector<double>{100, 50.5}));
  EXPECT_EQ(file.model->stripe_bytes, 4096U);
  EXPECT_EQ(file.model->local_puts, "rail");
  EXPECT_EQ(file.model->leaf_size, (std::vector<int>{2, 3}));
  EXPECT_EQ(file.model->rail_domain, 1);
  EXPECT_TRUE(file.model->own_ports);
  EXPECT_EQ(file.model->copy_MBps, diagnostics::CostModel().copy_MBps);
  EXPECT_FALSE(parse_tuning_file(R"({"format": 1, "rules": {}})", "t.json").model.has_value());
}

TEST(TuningModel, NamesTheLineOfWhatIsWrong) {
  const struct {
    std::string model;
    int line;
    std::vector<std::string> words;
  } wrong[] = {
      {"[]", 2, {"'model'", "a list", "an object"}},
      {"{\n\"latency\": 1}", 3, {"no 'latency'", "latency_us", "own_ports"}},
      {"{\n\"latency_us\":\n\"1\"}", 4, {"'latency_us'", "the text '1'", "a number"}},
      {"{\n\"rail_MBps\": [1,\n\"x\"]}", 4, {"an item of a list", "the text 'x'"}},
      {"{\n\"rail_MBps\": 3}", 3, {"'rail_MBps'", "a list of numbers"}},
      {"{\n\"stripe_bytes\": -1}", 3, {"'stripe_bytes'", "not negative"}},
      {"{\n\"domains\": 99999999999}", 3, {"'domains'", "99999999999"}},
      {"{\n\"own_ports\": 1}", 3, {"'own_ports'", "true or false"}},
      {"{\n\"local_puts\": 1}", 3, {"'local_puts'", "a text"}},
      {"{\n\"latency_us\": -1}", 2, {"latency_us of the cost model is -1"}},
      {"{\n\"rail_MBps\": []}", 2, {"at least one rail"}},
      {"{\n\"rail_MBps\": [0]}", 2, {"rail_MBps", "above 0"}},
  };
  for (const auto& [model, line, words] : wrong) {
    const std::string text = refusal(model);
    EXPECT_NE(text.find("t.json:" + std::to_string(line) + ":"), std::string::npos) << text;
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
  }
  const std::string text = refusal("{\"" + std::string(100'000, 'a') + "\": 1}");
  EXPECT_FALSE(text.empty());
  EXPECT_LT(text.size(), 1000U) << "no longer than a card";
}

TEST(TuningModel, TheSchemaNamesTheParametersThereAre) {
  const char* folder = std::getenv("ALLRAIL_TEST_DOCUMENTS");
  std::ifstream stream(std::filesystem::path(folder == nullptr ? "docs" : folder) /
                       "tuning.schema.json");
  const auto schema = nlohmann::json::parse(stream);
  std::set<std::string> names{"context"};
  const diagnostics::CostModel model;
  diagnostics::for_parameters(model, [&](const char* name, const auto&) { names.insert(name); });
  std::set<std::string> documented;
  for (const auto& [name, value] : schema.at("properties").at("model").at("properties").items()) {
    documented.insert(name);
  }
  EXPECT_EQ(documented, names);
}

/// What the model takes for any algorithm and number of ports, the fastest first.
std::vector<diagnostics::SimulatedCall> all_times(const diagnostics::CostModel& model,
                                                  coll::Operation operation, std::uint64_t bytes,
                                                  const coll::Roster& roster,
                                                  const std::set<int>& ports) {
  diagnostics::ImaginedJobCall call;
  call.collective = coll::collective_name(operation);
  for (const auto name : coll::algorithm_names(operation)) call.algorithms.emplace_back(name);
  call.bytes = bytes;
  call.node_of = roster.map().node_of;
  std::vector<diagnostics::SimulatedCall> all;
  for (const int count : ports) {
    call.ports = count;
    for (auto& one : diagnostics::simulate(call, model)) all.push_back(std::move(one));
  }
  std::ranges::stable_sort(all, {}, &diagnostics::SimulatedCall::time_us);
  return all;
}

TEST(ModelChoice, TakesTheFastestByTheModel) {
  std::set<std::string> chosen;
  for (const char* message_us : {"0.1", "50"}) {
    const auto file =
        file_of("{\"message_us\": " + std::string(message_us) + ", \"rail_MBps\": [500, 500]}");
    for (const auto& roster : {blocks(4, 2), blocks(9, 1), roster_of({0, 1, 0, 2, 1, 1})}) {
      const auto choice = ModelChoice::of(file, Options{}, roster, kRails);
      ASSERT_NE(choice, nullptr);
      for (const auto operation : coll::kCollectives) {
        for (const std::uint64_t bytes : {8, 4096, 1 << 18}) {
          const auto found = choice->choose(operation, bytes, 0, 1);
          ASSERT_TRUE(found.has_value());
          const std::set<int> ports{1, kRails, std::min(8, roster.nodes() - 1)};
          const auto times = all_times(*file.model, operation, bytes, roster, ports);
          EXPECT_EQ(found->algorithm, times.front().algorithm)
              << coll::collective_name(operation) << " " << bytes;
          EXPECT_TRUE(ports.contains(found->ports));
          EXPECT_NE(found->reason.find("cost model in t.json"), std::string::npos);
          chosen.insert(found->algorithm);
        }
      }
    }
  }
  EXPECT_GT(chosen.size(), 4U) << "the model tells systems apart";
}

// Where the job does not know its switches, an algorithm over them is another one.
TEST(ModelChoice, TakesSwitchesOfWhichTheJobKnows) {
  const auto file = file_of(R"({"latency_us": 1.84, "message_us": 0.2, "rail_MBps": [1500],
                                "leaf_size": [8], "hop_us": 0.2, "oversubscription": 8})");
  for (const bool knows : {false, true}) {
    auto roster = blocks(64, 1);
    if (knows) {
      auto switches = std::make_shared<schedule::Switches>();
      for (int node = 0; node < 64; ++node) switches->leaf_of.push_back(node / 8);
      roster.hang_on(std::move(switches));
    }
    const auto choice = ModelChoice::of(file, Options{}, roster, kRails);
    for (const auto operation : {coll::Operation::Gather, coll::Operation::Scatter}) {
      const auto found = choice->choose(operation, 64, 0, 1);
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(found->algorithm.starts_with("topology"), knows) << found->algorithm;
    }
  }
}

TEST(ModelChoice, IsAskedWithTheNumbersOfTheJob) {
  const auto file = file_of(R"({"message_us": 5, "rail_MBps": [500]})");
  const auto roster = blocks(5, 1);
  const auto choice = ModelChoice::of(file, Options{}, roster, kRails);
  const auto found = choice->choose(coll::Operation::Allgather, 1 << 20, 3, 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ports, 3);
  diagnostics::CostModel of_the_job = *file.model;
  of_the_job.rail_MBps = {500, 500};
  const auto times =
      all_times(of_the_job, coll::Operation::Allgather, 1 << 20, roster, std::set<int>{3});
  EXPECT_EQ(found->algorithm, times.front().algorithm);
}

TEST(ModelChoice, SizesUpToTheNextPowerOfTwoShareAChoice) {
  const auto file = file_of("{}");
  const auto roster = blocks(4, 1);
  const auto choice = ModelChoice::of(file, Options{}, roster, kRails);
  const auto at = [&](coll::Operation operation, std::uint64_t bytes) {
    return choice->choose(operation, bytes, 0, 1)->reason;
  };
  EXPECT_EQ(at(coll::Operation::Gather, 4096), at(coll::Operation::Gather, 8191));
  EXPECT_NE(at(coll::Operation::Gather, 4096), at(coll::Operation::Gather, 8192));
  EXPECT_EQ(at(coll::Operation::Gather, 100), at(coll::Operation::Gatherv, 100));
  EXPECT_EQ(at(coll::Operation::Gather, 0), at(coll::Operation::Gather, 1));
  EXPECT_NO_THROW(at(coll::Operation::Gather, 1ULL << 40));
}

TEST(ModelChoice, SaysNothingWhereItShouldNotBeAsked) {
  const auto file = file_of("{}");
  const auto one_node = blocks(1, 4);
  EXPECT_FALSE(ModelChoice::of(file, Options{}, one_node, 1)
                   ->choose(coll::Operation::Gather, 100, 0, 1)
                   .has_value());
  const auto large = blocks(1025, 1);
  EXPECT_FALSE(ModelChoice::of(file, Options{}, large, 1)
                   ->choose(coll::Operation::Gather, 100, 0, 1)
                   .has_value());
  const auto roster = blocks(2, 1);
  EXPECT_EQ(ModelChoice::of(TuningFile(), Options{}, roster, 1), nullptr);
}

}  // namespace
}  // namespace allrail
