// The verbs rail keeps the contract over software devices: see tests/fake_verbs/fake_verbs.hpp.
#include <array>

#include "tests/conformance/rail_conformance.hpp"
#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/fake_verbs/rail_options.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail::transport {
namespace {

using fake_verbs::DeviceOptions;
using fake_verbs::Ways;

struct Setting {
  std::uint64_t seed = 1;
  std::array<int, 2> device_of = {0, 1};  // by rank
  std::array<Ways, 2> ways = {Ways::Manager, Ways::Manager};
  int gid_index = 1;
  std::vector<DeviceOptions> devices = fake_verbs::default_devices();
};

/// Two rails; looks at the end that they gave everything back.
class VerbsFakeGroup : public RailGroup {
 public:
  explicit VerbsFakeGroup(const Setting& setting) {
    fake_verbs::reset(setting.seed, setting.devices);
    const JobSecret secret = JobSecret::random();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      auto options = fake_verbs::rail_options(setting.device_of[rank], setting.ways[rank]);
      options.rank = static_cast<int>(rank);
      options.size = 2;
      options.job_hash = 1;
      options.secret = secret;
      options.gid_index = setting.gid_index;
      rails_[rank] = make_verbs_rail(options);
    }
  }
  ~VerbsFakeGroup() override {
    for (auto& rail : rails_) rail.reset();
    EXPECT_EQ(fake_verbs::live().text(), "nothing");
    EXPECT_EQ(fake_verbs::receiver_not_ready(), 0);
    EXPECT_EQ(fake_verbs::completion_queue_overflows(), 0);
  }
  Rail& rail(int rank) override { return *rails_[static_cast<std::size_t>(rank)]; }

 private:
  std::array<std::unique_ptr<Rail>, 2> rails_;
};

RailCase fake_case(const std::string& name, const Setting& setting) {
  return {name, [setting] { return std::make_unique<VerbsFakeGroup>(setting); }};
}

void add_cases_of_way(Ways way, std::vector<RailCase>& all) {
  const std::string prefix = std::string(fake_verbs::ways_text(way)) + "_";
  Setting setting;
  setting.ways = {way, way};
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    setting.seed = seed;
    all.push_back(fake_case(prefix + "two_devices_seed_" + std::to_string(seed), setting));
  }
  setting.seed = 1;
  Setting one = setting;
  one.device_of = {0, 0};
  all.push_back(fake_case(prefix + "one_device", one));
  Setting plain = setting;
  for (DeviceOptions& device : plain.devices) device.max_inline_bytes = 0;
  all.push_back(fake_case(prefix + "without_inline_data", plain));
  // Longer than all messages of the suite but the one that is as long as the rail takes.
  Setting brief = setting;
  for (DeviceOptions& device : brief.devices) device.max_message_bytes = 150'000;
  all.push_back(fake_case(prefix + "short_messages", brief));
}

std::vector<RailCase> cases() {
  std::vector<RailCase> all;
  add_cases_of_way(Ways::Manager, all);
  add_cases_of_way(Ways::Direct, all);
  Setting mixed;
  mixed.ways = {Ways::Both, Ways::Direct};
  mixed.devices[1].has_ip = false;
  all.push_back(fake_case("one_port_without_address", mixed));
  Setting infiniband;
  infiniband.ways = {Ways::Direct, Ways::Direct};
  infiniband.gid_index = 0;
  for (DeviceOptions& device : infiniband.devices) {
    device.infiniband = true;
    device.has_ip = false;
  }
  infiniband.devices[0].mtu = IBV_MTU_4096;
  infiniband.devices[1].mtu = IBV_MTU_2048;
  all.push_back(fake_case("infiniband_of_unequal_mtu", infiniband));
  infiniband.devices[1].needs_gids = true;
  all.push_back(fake_case("infiniband_that_needs_gids", infiniband));
  return all;
}

INSTANTIATE_TEST_SUITE_P(VerbsFake, RailConformance, testing::ValuesIn(cases()), rail_case_name);

}  // namespace
}  // namespace allrail::transport
