// What ALLRAIL_RAILS says about the RDMA ports of this host. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/verbs/port_choice.hpp"

namespace allrail::transport {

struct PortSetting {
  enum class Kind { Auto, Verbs, Tcp, Named, Excludes } kind = Kind::Auto;
  std::vector<std::size_t> ports;  // named or excluded, in the setting's order
};

/// Throws Error{BadConfiguration} that lists the ports of this host.
PortSetting read_port_setting(std::span<const VerbsPort> ports, const PortWish& wish);

}  // namespace allrail::transport
