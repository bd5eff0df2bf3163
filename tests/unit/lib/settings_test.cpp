// Options that a program sets itself: they must be what their variables may be.
#include "lib/base/settings.hpp"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace allrail {
namespace {

TEST(Settings, TheDefaultsAndOddSizesAreAllowed) {
  EXPECT_NO_THROW(base::check_settings(Options{}));
  Options options;
  options.node_memory_bytes = (5U << 20) + 4097;
  options.stripe_threshold_bytes = 12345;
  options.chunk_bytes = 65537;
  options.timeout = std::chrono::milliseconds(1234567);
  options.log = "off";
  EXPECT_EQ(&base::check_settings(options), &options);
}

TEST(Settings, WhatAProgramSetsIsRefusedByTheNameOfItsVariable) {
  const std::pair<const char*, std::function<void(Options&)>> wrong[] = {
      {"ALLRAIL_RAILS", [](Options& o) { o.rails.clear(); }},
      {"ALLRAIL_GID_INDEX", [](Options& o) { o.gid_index = 65536; }},
      {"ALLRAIL_RAIL_PAIRS", [](Options& o) { o.rail_pairs = "eth0"; }},
      {"ALLRAIL_CONNECT", [](Options& o) { o.connect = "anyhow"; }},
      {"ALLRAIL_PORTS", [](Options& o) { o.ports = -1; }},
      {"ALLRAIL_LEADERS", [](Options& o) { o.leaders = 65; }},
      {"ALLRAIL_LEADER_POLICY", [](Options& o) { o.leader_policy = "far"; }},
      {"ALLRAIL_LOCAL_PUTS", [](Options& o) { o.local_puts = ""; }},
      {"ALLRAIL_SINGLE_COPY", [](Options& o) { o.single_copy = "yes"; }},
      {"ALLRAIL_CHUNK", [](Options& o) { o.chunk_bytes = 1; }},
      {"ALLRAIL_BROADCAST_SEGMENT", [](Options& o) { o.broadcast_segment_bytes = 1; }},
      {"ALLRAIL_NODE_MEMORY", [](Options& o) { o.node_memory_bytes = 0; }},
      {"ALLRAIL_HUGE_PAGES", [](Options& o) { o.huge_pages = "nonsense"; }},
      {"ALLRAIL_HOME_CPUS", [](Options& o) { o.home_cpus = "0"; }},
      {"ALLRAIL_TIMEOUT", [](Options& o) { o.timeout = std::chrono::milliseconds(-1); }},
      {"ALLRAIL_BOOTSTRAP_TIMEOUT",
       [](Options& o) { o.bootstrap_timeout = std::chrono::milliseconds(0); }},
      {"ALLRAIL_LOG", [](Options& o) { o.log = "loud"; }},
  };
  for (const auto& [name, spoil] : wrong) {
    Options options;
    spoil(options);
    try {
      base::check_settings(options);
      ADD_FAILURE() << name << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::BadConfiguration) << name;
      EXPECT_NE(std::string(error.what()).find(std::string(name) + " is '"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace allrail
