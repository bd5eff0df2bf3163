// From samples to a model: samples are made from a model that is known, with noise under a seed, so
// that no clock has a say in whether the fit finds it again.
#include "perf/fit_model.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace allrail::perf {
namespace {

constexpr int kRepeats = 31;
constexpr double kNoise = 0.04;

/// splitmix64, so that a seed means the same samples with every library.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed) {}
  double between(double low, double high) {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
    mixed ^= mixed >> 31U;
    return low + (high - low) * static_cast<double>(mixed >> 11U) * 0x1p-53;
  }
  /// Mostly near the truth; one in four is late, as a rank is that lost its core meanwhile.
  std::vector<double> samples(double truth) {
    std::vector<double> values;
    for (int i = 0; i < kRepeats; ++i) {
      values.push_back(truth * (i % 4 == 3 ? between(2, 100) : between(1 - kNoise, 1 + kNoise)));
    }
    return values;
  }

 private:
  std::uint64_t state_;
};

/// What docs/simulation.md says that each measurement is made of.
PutSamples samples_of(const diagnostics::CostModel& model, Noise& noise) {
  PutSamples samples;
  samples.half_round_trip_us =
      noise.samples(model.post_us + model.message_us + model.latency_us + model.arrival_us);
  samples.post_us = noise.samples(model.post_us);
  samples.arrival_us = noise.samples(model.arrival_us);
  samples.small_interval_us =
      noise.samples(std::max({model.post_us, model.message_us, model.arrival_us}));
  for (const double rate_MBps : model.rail_MBps) {
    samples.large_interval_us.push_back(
        noise.samples(model.message_us + static_cast<double>(kFitLargeBytes) / rate_MBps));
  }
  return samples;
}

/// Two unequal TCP rails over a loopback, in round figures.
diagnostics::CostModel tcp_like() {
  diagnostics::CostModel model;
  model.latency_us = 18;
  model.message_us = 6;
  model.post_us = 3;
  model.arrival_us = 2;
  model.hop_us = 0;
  model.rail_MBps = {3000, 1000};
  return model;
}

diagnostics::CostModel rdma_like() {
  diagnostics::CostModel model;
  model.latency_us = 1.2;
  model.message_us = 0;  // hidden behind the cores
  model.post_us = 0.3;
  model.arrival_us = 0.2;
  model.hop_us = 0;
  model.rail_MBps = {12000};
  return model;
}

double time_us(const diagnostics::CostModel& model, const std::string& collective,
               const std::string& algorithm, std::uint64_t bytes, int nodes) {
  diagnostics::ImaginedJobCall call;
  call.collective = collective;
  call.algorithms = {algorithm};
  call.bytes = bytes;
  call.nodes = nodes;
  const auto result = diagnostics::simulate(call, model);
  EXPECT_EQ(result.size(), 1U);
  EXPECT_EQ(result[0].refusal, "");
  return result[0].time_us;
}

TEST(FitModel, FindsTheModelThatTheSamplesAreOf) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    for (const auto& truth : {tcp_like(), rdma_like()}) {
      Noise noise(seed);
      const auto found = model_of(samples_of(truth, noise));
      SCOPED_TRACE("seed " + std::to_string(seed));
      ASSERT_NEAR(found.post_us, truth.post_us, kNoise * truth.post_us);
      ASSERT_NEAR(found.arrival_us, truth.arrival_us, kNoise * truth.arrival_us);
      ASSERT_NEAR(found.hop_us, 0, 0);
      const double there_us =
          truth.post_us + truth.message_us + truth.latency_us + truth.arrival_us;
      if (truth.message_us > 0) {
        ASSERT_NEAR(found.message_us, truth.message_us, kNoise * truth.message_us);
        // A difference of four that each have the noise.
        ASSERT_NEAR(found.latency_us, truth.latency_us, kNoise * (2 * there_us - truth.latency_us));
      }
      ASSERT_EQ(found.rail_MBps.size(), truth.rail_MBps.size());
      for (std::size_t rail = 0; rail < truth.rail_MBps.size(); ++rail) {
        ASSERT_NEAR(found.rail_MBps[rail], truth.rail_MBps[rail], 0.06 * truth.rail_MBps[rail]);
      }
    }
  }
}

TEST(FitModel, PredictsCallsThatWereNotMeasured) {
  struct Call {
    const char* collective;
    const char* algorithm;
    std::uint64_t bytes;
    int nodes;
  };
  const Call calls[] = {{"allgather", "direct", 8, 2},         {"allgather", "ring", 64 << 10, 5},
                        {"alltoall", "bruck", 512, 16},        {"gather", "binomial", 4096, 8},
                        {"broadcast", "binomial", 1 << 20, 7}, {"scatter", "direct", 256 << 10, 4}};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Noise noise(seed);
    const auto truth = tcp_like();
    const auto found = model_of(samples_of(truth, noise));
    for (const Call& call : calls) {
      const double expected =
          time_us(truth, call.collective, call.algorithm, call.bytes, call.nodes);
      const double predicted =
          time_us(found, call.collective, call.algorithm, call.bytes, call.nodes);
      EXPECT_NEAR(predicted, expected, 0.1 * expected)
          << call.collective << " by " << call.algorithm << ", " << call.bytes << " bytes, seed "
          << seed;
    }
  }
}

TEST(FitModel, ARailThatIsFasterThanTheCoresCostsNothingPerMessage) {
  const PutSamples samples{{10}, {3}, {2}, {2.9}, {{100}}};
  const auto model = model_of(samples);
  EXPECT_EQ(model.message_us, 0);
  EXPECT_DOUBLE_EQ(model.latency_us, 5);
  EXPECT_DOUBLE_EQ(model.rail_MBps[0], static_cast<double>(kFitLargeBytes) / 100);
}

TEST(FitModel, CoresTakeNoMoreThanTheWayThere) {
  const PutSamples samples{{10}, {12}, {8}, {5}, {{100}}};
  const auto model = model_of(samples);
  EXPECT_DOUBLE_EQ(model.post_us, 6);
  EXPECT_DOUBLE_EQ(model.arrival_us, 4);
  EXPECT_EQ(model.message_us, 0);
  EXPECT_DOUBLE_EQ(model.latency_us, 0);
}

TEST(FitModel, NoParameterIsNegativeOrNoNumberWhateverTheSamplesSay) {
  Noise noise(7);
  for (int i = 0; i < 1000; ++i) {
    const auto any = [&noise] { return std::vector<double>{noise.between(0, 50)}; };
    const auto model = model_of({any(), any(), any(), any(), {any(), any()}});
    for (const double value : {model.post_us, model.arrival_us, model.message_us, model.latency_us,
                               model.rail_MBps[0], model.rail_MBps[1]}) {
      ASSERT_GE(value, 0) << "a NaN is not at least 0 either";
      ASSERT_LT(value, 1e16);
    }
    EXPECT_GT(time_us(model, "allgather", "direct", 100'000, 2), 0);
  }
}

}  // namespace
}  // namespace allrail::perf
