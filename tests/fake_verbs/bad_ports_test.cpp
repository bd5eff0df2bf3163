// Ports that can be no rail, and settings that ask for what a port has not: found as a rail is
// chosen or made, and told with the port and the setting to change.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/unit/verbs/made_up_ports.hpp"
#include "transport/verbs/port_choice.hpp"
#include "transport/verbs/ports.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail::transport {
namespace {

using test::expect_bad_configuration;

PortChoices choose(const std::string& setting, int gid_index = -1) {
  PortWish wish;
  wish.setting = setting;
  wish.gid_index = gid_index;
  return choose_ports(list_verbs_ports("/nowhere"), wish);
}

std::unique_ptr<Rail> make_rail(int rank, const std::string& address) {
  VerbsRailOptions options;
  options.name = "fake" + std::to_string(rank) + ":1";
  options.address = address;
  options.rank = rank;
  options.size = 2;
  return make_verbs_rail(options);
}

void expect_error(const std::string& address, Code code, std::initializer_list<const char*> words) {
  try {
    make_rail(0, address);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    for (const char* word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

class BadPorts : public testing::Test {
 protected:
  void SetUp() override { fake_verbs::reset(1); }
  void TearDown() override { EXPECT_EQ(fake_verbs::live().text(), "nothing"); }

  /// Both devices, changed alike.
  template <typename Change>
  static void reset_with(Change change) {
    auto devices = fake_verbs::default_devices();
    for (auto& device : devices) change(device);
    fake_verbs::reset(1, devices);
  }
};

TEST_F(BadPorts, AGidOutsideOfTheTable) {
  ASSERT_EQ(choose("verbs", 3).taken.size(), 2U);
  expect_bad_configuration([] { choose("verbs", 4); },
                           {"ALLRAIL_GID_INDEX is 4", "fake0:1 has no such GID", "3 = 10.9.0.1"});
  expect_bad_configuration([] { choose("fake1", 65535); },
                           {"ALLRAIL_GID_INDEX is 65535", "fake1:1 has no such GID"});
}

TEST_F(BadPorts, AGidThatIsNotSet) {
  reset_with([](fake_verbs::DeviceOptions& device) { device.unset_gid = 2; });
  EXPECT_EQ(choose("verbs").of_port[0].gid_index, 3) << "the others do";
  expect_bad_configuration([] { choose("verbs", 2); },
                           {"ALLRAIL_GID_INDEX is 2", "fake0:1 has no such GID"});
}

TEST_F(BadPorts, AnAddressOfNoPort) {
  for (const char* const address : {"10.9.0.77", "fe80::1"}) {
    expect_error(address, Code::BadConfiguration,
                 {"fake0:1", address, "no RDMA port", "ALLRAIL_RAILS", "ALLRAIL_GID_INDEX"});
  }
  expect_error("10.9.0", Code::BadConfiguration, {"fake0:1", "'10.9.0' is no IP address"});
}

TEST_F(BadPorts, ADeviceWithoutWritesWithImmediateData) {
  reset_with([](fake_verbs::DeviceOptions& device) { device.iwarp = true; });
  expect_bad_configuration([] { choose("fake1"); }, {"ALLRAIL_RAILS is 'fake1'", "fake1:1",
                                                     "iWARP cannot write with immediate data"});
  expect_bad_configuration([] { choose("verbs"); }, {"ALLRAIL_RAILS is 'verbs'", "iWARP", "tcp"});
  EXPECT_TRUE(choose("auto").taken.empty());
}

TEST_F(BadPorts, APortThatIsDown) {
  fake_verbs::cut("fake0");
  expect_bad_configuration([] { choose("fake0"); },
                           {"ALLRAIL_RAILS is 'fake0'", "fake0:1 cannot be used: port is down"});
  EXPECT_EQ(choose("verbs").taken.size(), 1U) << "the other one does";
}

TEST_F(BadPorts, NoSuchDeviceOrPort) {
  expect_bad_configuration([] { choose("fake7:1"); },
                           {"ALLRAIL_RAILS is 'fake7:1'", "no RDMA device 'fake7'", "fake0:1"});
  expect_bad_configuration([] { choose("fake0:2"); },
                           {"ALLRAIL_RAILS is 'fake0:2'", "fake0 has no port '2'", "fake0:1"});
}

TEST_F(BadPorts, QueuesTooShortForALink) {
  reset_with([](fake_verbs::DeviceOptions& device) { device.max_cqe = 100; });
  expect_error("10.9.0.1", Code::ResourceLimit,
               {"fake0:1", "completion queues of 100", "ALLRAIL_RAILS", "tcp"});
  reset_with([](fake_verbs::DeviceOptions& device) { device.max_qp_wr = 100; });
  expect_error("10.9.0.1", Code::ResourceLimit,
               {"fake0:1", "work queues of 100", "ALLRAIL_RAILS", "tcp"});
}

struct NoEvents : RailEvents {
  void link_up(int, int, int) override {}
  void link_down(int, int, std::string_view reason) override { ADD_FAILURE() << reason; }
  bool chunk_wanted(int, int, std::uint32_t) override { return true; }
  void chunk_arrived(int, int, std::uint32_t, std::uint32_t) override {}
  void chunks_completed(int, int, int) override {}
  void control_arrived(int, int, std::span<const std::byte>) override {}
};

TEST_F(BadPorts, MemoryThatMayNotBeRegisteredIsNamedWithTheLimit) {
  reset_with([](fake_verbs::DeviceOptions& device) { device.max_registered_bytes = 8192; });
  const auto rail = make_rail(0, "10.9.0.1");
  std::vector<std::byte> memory(8193);
  try {
    rail->register_window(memory);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::ResourceLimit);
    for (const char* word : {"fake0:1", "register 8193 bytes", "(ulimit -l) is "})
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
  EXPECT_EQ(fake_verbs::live().memory_regions, 0);
  const RemoteKey key = rail->register_window(std::span(memory).first(8192));
  EXPECT_NE(key.key, 0U);
  rail->unregister_window(key);
}

/// One completion queue for each link then.
TEST_F(BadPorts, QueuesForOneLinkOnlyAreEnough) {
  reset_with([](fake_verbs::DeviceOptions& device) { device.max_cqe = 300; });
  NoEvents events;
  std::vector<std::unique_ptr<Rail>> rails;
  for (int rank = 0; rank < 3; ++rank) {
    VerbsRailOptions options;
    options.name = "fake0:1";
    options.address = "10.9.0.1";
    options.rank = rank;
    options.size = 3;
    rails.push_back(make_verbs_rail(options));
  }
  for (int rank = 0; rank < 3; ++rank) {
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != rank)
        rails[static_cast<std::size_t>(rank)]->connect(
            peer, rails[static_cast<std::size_t>(peer)]->address());
    }
  }
  const auto all_up = [&] {
    for (int rank = 0; rank < 3; ++rank) {
      for (int peer = 0; peer < 3; ++peer) {
        if (peer != rank && !rails[static_cast<std::size_t>(rank)]->is_up(peer)) return false;
      }
    }
    return true;
  };
  for (int polls = 0; polls < 100'000 && !all_up(); ++polls) {
    for (auto& rail : rails) rail->poll(events);
  }
  EXPECT_TRUE(all_up());
  EXPECT_EQ(fake_verbs::live().completion_queues, 6);
  rails.clear();
  EXPECT_EQ(fake_verbs::completion_queue_overflows(), 0);
}

}  // namespace
}  // namespace allrail::transport
