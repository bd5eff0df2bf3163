// The verbs rail keeps the contract, over real devices: ALLRAIL_TEST_VERBS names the addresses of
// their ports, such as 10.9.0.1,10.9.1.1 in the guest of tests/lab/guest. Skipped without it.
#include "transport/verbs/verbs_rail.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "lib/base/parse.hpp"
#include "tests/conformance/rail_conformance.hpp"
#include "transport/verbs/gid_choice.hpp"
#include "transport/verbs/ports.hpp"

namespace allrail::transport {
namespace {

class VerbsRailGroup : public RailGroup {
 public:
  explicit VerbsRailGroup(VerbsRailOptions options) {
    options.secret = JobSecret::random();
    options.size = 2;
    options.job_hash = 1;
    for (int rank = 0; rank < 2; ++rank) {
      options.rank = rank;
      rails_[static_cast<std::size_t>(rank)] = make_verbs_rail(options);
    }
  }
  Rail& rail(int rank) override { return *rails_[static_cast<std::size_t>(rank)]; }

 private:
  std::array<std::unique_ptr<Rail>, 2> rails_;
};

RailCase rail_case(const std::string& name, const VerbsRailOptions& options) {
  return {name, [options] { return std::make_unique<VerbsRailGroup>(options); }};
}

/// By librdmacm, and directly by each GID of version 2: that of the address, and the link-local one
/// that a port without an address has too.
void add_cases(const std::string& address, const std::vector<VerbsPort>& ports,
               std::vector<RailCase>& cases) {
  const std::string prefix = "port_" + std::to_string(cases.size()) + "_";
  VerbsRailOptions options;
  options.name = options.address = address;
  cases.push_back(rail_case(prefix + "manager", options));
  options.address.clear();
  options.side_addresses = {"127.0.0.1"};
  for (const VerbsPort& port : ports) {
    const auto is_this = [&](const VerbsGid& gid) { return address_text(gid.bytes) == address; };
    if (std::ranges::none_of(port.gids, is_this)) continue;
    options.device = port.device;
    options.port = port.number;
    for (const VerbsGid& gid : port.gids) {
      options.gid_index = gid.index;
      cases.push_back(rail_case(prefix + "direct_gid_" + std::to_string(gid.index), options));
    }
  }
}

std::vector<RailCase> cases() {
  std::vector<RailCase> cases;
  const char* const addresses = std::getenv("ALLRAIL_TEST_VERBS");
  if (addresses == nullptr) return cases;
  const std::vector<VerbsPort> ports = list_verbs_ports();
  for (const std::string& address : base::split(addresses, ',')) add_cases(address, ports, cases);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(VerbsRail, RailConformance, testing::ValuesIn(cases()), rail_case_name);

}  // namespace
}  // namespace allrail::transport

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (std::getenv("ALLRAIL_TEST_VERBS") == nullptr) {
    std::puts("skipped: ALLRAIL_TEST_VERBS names no addresses of RDMA ports");
    return 77;
  }
  return RUN_ALL_TESTS();
}
