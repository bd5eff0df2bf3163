// The TCP rail keeps the contract, over one loopback address and between two.
#include "transport/tcp/tcp_rail.hpp"

#include <array>

#include "tests/conformance/rail_conformance.hpp"

namespace allrail::transport {
namespace {

class TcpRailGroup : public RailGroup {
 public:
  explicit TcpRailGroup(const std::array<std::string, 2>& items) {
    const JobSecret secret = JobSecret::random();
    for (int rank = 0; rank < 2; ++rank) {
      TcpRailOptions options;
      options.item = items[static_cast<std::size_t>(rank)];
      options.rank = rank;
      options.size = 2;
      options.job_hash = 1;
      options.secret = secret;
      rails_[static_cast<std::size_t>(rank)] = make_tcp_rail(options);
    }
  }
  Rail& rail(int rank) override { return *rails_[static_cast<std::size_t>(rank)]; }

 private:
  std::array<std::unique_ptr<Rail>, 2> rails_;
};

RailCase tcp_case(const std::string& name, const std::string& first, const std::string& second) {
  return {name, [first, second] {
            return std::make_unique<TcpRailGroup>(std::array<std::string, 2>{first, second});
          }};
}

INSTANTIATE_TEST_SUITE_P(TcpRail, RailConformance,
                         testing::Values(tcp_case("one_address", "127.0.0.1", "127.0.0.1"),
                                         tcp_case("two_addresses", "127.0.0.1", "127.0.0.2")),
                         rail_case_name);

}  // namespace
}  // namespace allrail::transport
