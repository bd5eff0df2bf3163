#include <algorithm>

#include "lib/base/error.hpp"
#include "transport/control/control_plane.hpp"
#include "transport/rail.hpp"

namespace allrail::transport {

static_assert(kMaxRails * kEndpointBytes <= 256, "addresses in the start-up exchange");

std::vector<int> control_neighbours(int node, int node_count) {
  std::vector<int> neighbours;
  for (int distance = 1; distance < node_count; distance *= 2) {
    neighbours.push_back((node + distance) % node_count);
    neighbours.push_back((node + node_count - distance) % node_count);
  }
  std::sort(neighbours.begin(), neighbours.end());
  neighbours.erase(std::unique(neighbours.begin(), neighbours.end()), neighbours.end());
  return neighbours;
}

ControlListener::ControlListener(const ControlOptions& options) {
  if (options.items.empty() || options.items.size() > static_cast<std::size_t>(kMaxRails)) {
    base::fail(Code::BadConfiguration,
               "the control plane needs 1 to {} addresses of this host, not {}", kMaxRails,
               options.items.size());
  }
  HandshakeIdentity identity;
  identity.secret = options.secret;
  identity.job_hash = options.job_hash;
  identity.rank = options.rank;
  identity.size = options.size;
  identity.purpose = Purpose::ControlLink;
  for (const std::string& item : options.items) {
    places.push_back(resolve_rail_item(item));
    acceptors.push_back(std::make_unique<Acceptor>(places.back().address, identity));
  }
}

std::vector<std::byte> ControlListener::address() const {
  std::vector<std::byte> bytes;
  for (const auto& acceptor : acceptors) {
    const auto encoded = encode_endpoint(acceptor->endpoint());
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  return bytes;
}

std::uint64_t ControlListener::stranger_count() const {
  std::uint64_t count = 0;
  for (const auto& acceptor : acceptors) count += acceptor->stranger_count();
  return count;
}

}  // namespace allrail::transport
