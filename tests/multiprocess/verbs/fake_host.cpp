// The RDMA ports of a rank of verbs-probe, which links libibverbs and librdmacm in software: those
// that the variable FAKE_PORTS describes, as NAME:LINK:ADDRESS[:WORD...] with commas between them.
// LINK is ib, roce or iwarp; words are down, no-ip, no-gid and mtu-4096. Ranks are processes, and
// software devices reach nobody outside of theirs: a job finds out what its ranks have and cannot
// talk.
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fake_verbs/fake_verbs.hpp"

namespace {

using allrail::fake_verbs::DeviceOptions;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

[[noreturn]] void refuse(const std::string& text) {
  std::fprintf(stderr, "FAKE_PORTS: '%s' describes no port\n", text.c_str());
  std::exit(2);
}

void make_host() {
  const char* const ports = std::getenv("FAKE_PORTS");
  std::vector<DeviceOptions> devices;
  std::vector<std::string> down;
  for (const std::string& port : split(ports != nullptr ? ports : "", ',')) {
    const std::vector<std::string> parts = split(port, ':');
    if (parts.size() < 3) refuse(port);
    DeviceOptions& device = devices.emplace_back();
    device.name = parts[0];
    device.infiniband = parts[1] == "ib";
    device.iwarp = parts[1] == "iwarp";
    if (!device.infiniband && !device.iwarp && parts[1] != "roce") refuse(port);
    device.address = parts[2];
    for (std::size_t i = 3; i < parts.size(); ++i) {
      if (parts[i] == "down") {
        down.push_back(device.name);
      } else if (parts[i] == "no-ip") {
        device.has_ip = false;
      } else if (parts[i] == "no-gid") {
        device.has_gids = false;
      } else if (parts[i] == "mtu-4096") {
        device.mtu = IBV_MTU_4096;
      } else {
        refuse(port);
      }
    }
  }
  allrail::fake_verbs::reset(1, devices);
  for (const std::string& name : down) allrail::fake_verbs::cut(name);
}

// Before main(), which is that of collective-probe.
const bool made = [] {
  make_host();
  return true;
}();

}  // namespace
