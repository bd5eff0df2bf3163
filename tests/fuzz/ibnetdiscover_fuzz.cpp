// Listings of fabrics: every port hangs on a leaf of the list and is found by its GUID, and what is
// refused names its line.
#include <string>

#include "include/allrail/error.hpp"
#include "lib/topology/switch_map.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace allrail::fuzz {

std::vector<Bytes> seeds() {
  const std::string leaf =
      "vendid=0x2c9\ndevid=0xc738\nsysimgguid=0x2c90200400a00\t\t# Chassis 1\n"
      "switchguid=0x2c90200400a01(2c90200400a01)\t# Line 1 Chip 1\n"
      "Switch\t36 \"S-0002c90200400a01\"\t\t# \"leaf0\" enhanced port 0 lid 2 lmc 0\n"
      "[1][ext 3]\t\"H-0002c90300100000\"[1](2c90300100001) \t\t# \"node0 HCA-1\" lid 4 4xFDR\n"
      "[36]\t\"S-0002c90200400c01\"[1]\t\t# \"spine0\" lid 1 4xFDR\n\n";
  const std::string host =
      "vendid=0x2c9\ndevid=0x1003\nsysimgguid=0x2c90300100003\ncaguid=0x2c90300100000\n"
      "Ca\t2 \"H-0002c90300100000\"\t\t# \"node0 HCA-1\"\n"
      "[1](2c90300100001) \t\"S-0002c90200400a01\"[1][ext 3]\t\t# lid 4 lmc 0 \"leaf0\" lid 2 "
      "4xFDR\n";
  const std::string head = "#\n# Topology file: generated on Mon Mar  3 10:12:47 2025\n#\n\n";
  return {bytes_of(head + leaf + host), bytes_of(head + host),
          bytes_of(head + "Chassis 1 (guid 0x2c90200400a00)\n\n# Line Nodes\n" + leaf +
                   "Non-Chassis Nodes\n" + host),
          bytes_of("Rt\t2 \"R-1\"\t# \"r\"\n[1](1) \t\"S-2\"[3]\n" + host)};
}

void fuzz_one(std::span<const std::byte> input) {
  topology::SwitchMap map;
  try {
    map = topology::parse_ibnetdiscover(text_of(input));
  } catch (const Error& error) {
    require(error.code() == Code::BadConfiguration &&
                std::string_view(error.what()).starts_with("line "),
            "what is refused has a line");
    return;
  }
  require(!map.ports.empty(), "a listing has hosts");
  for (const topology::HostPort& port : map.ports) {
    require(port.leaf < map.leaves.size(), "every port hangs on a leaf");
    require(!map.leaves[port.leaf].name.empty(), "every leaf has a name");
  }
  const topology::HostPort& last = map.ports.back();
  const auto* by_guid = topology::find_host(map, {"", -1, {last.guids[0]}});
  require(last.guids[0] == 0 || (by_guid != nullptr && (by_guid->guids[0] == last.guids[0] ||
                                                        by_guid->guids[1] == last.guids[0])),
          "a port is found by its GUID");
  require(topology::find_host(map, {last.host}) != nullptr, "a host is found by its name");
}

}  // namespace allrail::fuzz
