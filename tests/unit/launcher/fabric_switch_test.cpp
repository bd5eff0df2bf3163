// What a launcher says of fabric switches: arrays in arrays, of which the first switch counts.
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "launcher/pmix_calls.hpp"

namespace allrail::launcher {
namespace {

pmix_info_t info(const char* key, const char* text) {
  pmix_info_t one{};
  PMIX_INFO_LOAD(&one, key, text, PMIX_STRING);
  return one;
}

/// One entry of PMIX_SWITCH_PEERS, whose parts outlive it.
struct Peers {
  std::vector<pmix_info_t> parts;
  pmix_data_array_t array{};
  pmix_info_t entry{};

  explicit Peers(std::vector<pmix_info_t> of) : parts(std::move(of)) {
    array.type = PMIX_INFO;
    array.array = parts.data();
    array.size = parts.size();
    PMIX_LOAD_KEY(entry.key, PMIX_SWITCH_PEERS);
    entry.value.type = PMIX_DATA_ARRAY;
    entry.value.data.darray = &array;
  }
  ~Peers() {
    for (pmix_info_t& part : parts) PMIX_VALUE_DESTRUCT(&part.value);
  }
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
};

TEST(FabricSwitch, IsTheFirstOneOfAllDevices) {
  Peers first({info("pmix.fabdev.id", "mlx5_0"), info(PMIX_FABRIC_SWITCH, "leaf7"),
               info("pmix.peers", "0,1")});
  Peers second({info(PMIX_FABRIC_SWITCH, "leaf8")});
  pmix_info_t both[] = {first.entry, second.entry};
  pmix_data_array_t array{PMIX_INFO, 2, both};
  pmix_value_t value{};
  value.type = PMIX_DATA_ARRAY;
  value.data.darray = &array;
  EXPECT_EQ(switch_in(value), "leaf7");
  array.array = both + 1;
  array.size = 1;
  EXPECT_EQ(switch_in(value), "leaf8");
  array.size = 0;
  EXPECT_EQ(switch_in(value), "");
}

TEST(FabricSwitch, IsNothingInOtherValues) {
  pmix_value_t value{};
  value.type = PMIX_UINT32;
  EXPECT_EQ(switch_in(value), "");
  value.type = PMIX_DATA_ARRAY;
  value.data.darray = nullptr;
  EXPECT_EQ(switch_in(value), "");
  pmix_data_array_t numbers{};
  numbers.type = PMIX_UINT32;
  value.data.darray = &numbers;
  EXPECT_EQ(switch_in(value), "");
}

}  // namespace
}  // namespace allrail::launcher
