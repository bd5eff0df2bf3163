// The fake rail keeps the contract, too: what is proven over it holds over the others.
#include <array>

#include "tests/conformance/rail_conformance.hpp"
#include "transport/fake/fake_network.hpp"

namespace allrail::transport {
namespace {

class FakeRailGroup : public RailGroup {
 public:
  explicit FakeRailGroup(const FakeRailOptions& options)
      : network_(1, 2, {options}), rails_{network_.make_rail(0, 0), network_.make_rail(1, 0)} {}
  Rail& rail(int rank) override { return *rails_[static_cast<std::size_t>(rank)]; }
  void step() override { network_.advance(1'000'000); }

 private:
  FakeNetwork network_;
  std::array<std::unique_ptr<Rail>, 2> rails_;
};

RailCase fake_case(const std::string& name, bool reads_payload, std::int64_t jitter_ns) {
  FakeRailOptions options;
  options.reads_payload = reads_payload;
  options.jitter_ns = jitter_ns;
  return {name, [options] { return std::make_unique<FakeRailGroup>(options); }};
}

INSTANTIATE_TEST_SUITE_P(FakeRail, RailConformance,
                         testing::Values(fake_case("as_rdma", false, 0),
                                         fake_case("as_tcp", true, 0),
                                         fake_case("with_jitter", false, 100'000)),
                         rail_case_name);

}  // namespace
}  // namespace allrail::transport
