// ALLRAIL_RAILS and ALLRAIL_GID_INDEX over the RDMA ports of a made-up host.
#include <algorithm>
#include <set>
#include <string>

#include "include/allrail/error.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "transport/rail.hpp"
#include "transport/verbs/gid_choice.hpp"
#include "transport/verbs/port_choice.hpp"

namespace allrail::fuzz {
namespace {

using namespace transport;  // NOLINT(google-build-using-namespace): a program of its own

VerbsGid gid(int index, std::uint8_t last) {
  VerbsGid one;
  one.index = index;
  one.bytes[10] = one.bytes[11] = 0xFF;
  one.bytes[12] = 10;
  one.bytes[15] = last;
  one.type = GidType::RoceV2;
  return one;
}

VerbsPort port(const std::string& device, int number, LinkLayer layer) {
  VerbsPort one;
  one.device = device;
  one.number = number;
  one.link_layer = layer;
  one.is_active = true;
  one.state = "active";
  one.rate_mbit = 100'000;
  one.transport = "InfiniBand";
  one.can_write_with_immediate = true;
  one.pci_address = "0000:3b:00." + std::to_string(number);
  one.pcie_mbit = 126'016;
  one.gids = {gid(0, static_cast<std::uint8_t>(number)), gid(3, 9)};
  return one;
}

std::vector<VerbsPort> make_host() {
  std::vector<VerbsPort> ports;
  for (int number = 1; number <= 9; ++number) {
    ports.push_back(port("mlx5_0", number, LinkLayer::InfiniBand));
  }
  ports.push_back(port("rxe0", 1, LinkLayer::Ethernet));
  ports.push_back(port("rxe1", 1, LinkLayer::Ethernet));
  ports.back().gids.clear();
  ports.push_back(port("mlx5_1", 1, LinkLayer::Ethernet));
  ports.back().state = "down";
  ports.back().is_active = false;
  ports.push_back(port("siw0", 1, LinkLayer::Ethernet));
  ports.back().transport = "iWARP";
  ports.back().can_write_with_immediate = false;
  ports.push_back(port("mlx5_9", 1, LinkLayer::Unknown));
  ports.back().defect = "it cannot be opened";
  return ports;
}

const std::vector<VerbsPort>& host() {
  static const std::vector<VerbsPort> all = make_host();
  return all;
}

bool can_carry(const VerbsPort& one) {
  return one.defect.empty() && one.is_active && one.can_write_with_immediate &&
         (one.link_layer == LinkLayer::InfiniBand || best_gid(one) != nullptr);
}

}  // namespace

/// An input is a GID index (255: chosen) and the setting.
std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (const char* text : {"auto", "verbs", "tcp", "mlx5_0", "mlx5_0:2,rxe0", "rxe0:1", "^mlx5_0",
                           "^mlx5_0,^rxe0", "^mlx5_0:1,^eth0", "eth0,127.0.0.2", "siw0", "mlx5_1",
                           "mlx5_9:1", "rxe1", "mlx5_7:1", "eth0,mlx5_0:9"}) {
    for (const unsigned gid_index : {255U, 3U}) {
      Bytes seed = bytes_of(text);
      seed.insert(seed.begin(), static_cast<std::byte>(gid_index));
      all.push_back(std::move(seed));
    }
  }
  return all;
}

void fuzz_one(std::span<const std::byte> input) {
  Choices choices(input);
  const int gid_index = static_cast<std::int8_t>(choices.number<std::uint8_t>());
  const std::string_view setting = text_of(choices.rest());
  const std::vector<std::string> others = {"eth0", "127.0.0.2"};
  (void)names_verbs_port(setting, host());
  PortWish wish;
  wish.setting = setting;
  wish.gid_index = std::max(gid_index, -1);
  wish.other_names = others;
  PortChoices chosen;
  try {
    chosen = choose_ports(host(), wish);
  } catch (const Error& error) {
    require(error.code() == Code::BadConfiguration &&
                std::string_view(error.what()).starts_with("ALLRAIL_"),
            "what is refused begins with the setting to change");
    return;
  }
  require(chosen.of_port.size() == host().size(), "there is a verdict on every port");
  require(chosen.taken.size() <= kMaxRails, "no more rails than there can be");
  const std::set<std::size_t> different(chosen.taken.begin(), chosen.taken.end());
  require(different.size() == chosen.taken.size(), "no port is taken twice");
  for (std::size_t i = 0; i < host().size(); ++i) {
    const PortChoice& one = chosen.of_port[i];
    require(one.taken == different.contains(i) && !one.reason.empty(),
            "every verdict has a reason");
    if (!one.taken) continue;
    require(can_carry(host()[i]), "a port that is taken can carry a rail");
    require(one.gid_index < 0 || find_gid(host()[i], one.gid_index) != nullptr,
            "the GID of a port that is taken is in its table");
  }
}

}  // namespace allrail::fuzz
