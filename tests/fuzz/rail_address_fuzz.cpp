// The addresses that rails of peers hand out at start-up: alone, and given to a rail of each kind.
// The verbs rail runs over software devices (tests/fake_verbs/fake_verbs.hpp).
#include <memory>

#include "include/allrail/error.hpp"
#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "transport/tcp/socket.hpp"
#include "transport/tcp/tcp_rail.hpp"
#include "transport/verbs/rail_address.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail::fuzz {
namespace {

using namespace transport;  // NOLINT(google-build-using-namespace): a program of its own

constexpr int kPeer = 1;

struct NoEvents final : RailEvents {
  void link_up(int, int, int) override { require(false, "nobody is there to connect to"); }
  void link_down(int, int, std::string_view reason) override {
    require(!reason.empty(), "a link that cannot be made says why");
  }
  bool chunk_wanted(int, int, std::uint32_t) override { return false; }
  void chunk_arrived(int, int, std::uint32_t, std::uint32_t) override {}
  void chunks_completed(int, int, int) override {}
  void control_arrived(int, int, std::span<const std::byte>) override {}
};

std::unique_ptr<Rail> tcp_rail() {
  TcpRailOptions options;
  options.item = "127.0.0.1";
  options.size = 2;
  return make_tcp_rail(options);
}

std::unique_ptr<Rail> verbs_rail() {
  VerbsRailOptions options;
  options.name = "fake0:1";
  options.address = "10.9.0.1";
  options.size = 2;
  return make_verbs_rail(options);
}

/// Both rails, made anew now and then: the software devices remember every call.
struct Rails {
  static constexpr int kInputs = 2000;
  std::unique_ptr<Rail> tcp = tcp_rail();
  std::unique_ptr<Rail> verbs;
  int inputs = 0;

  Rails() { renew(); }
  void renew() {
    if (inputs++ % kInputs != 0) return;
    verbs.reset();
    require(fake_verbs::live().total() == 0, "a rail gives everything back");
    fake_verbs::reset(1);
    verbs = verbs_rail();
  }
};

/// Whether the rail takes it; one that does is asked to forget it.
bool takes(Rail& rail, std::span<const std::byte> address, bool connect) {
  try {
    rail.connect(kPeer, address);
  } catch (const Error& error) {
    require(error.peer() == kPeer &&
                std::string_view(error.what()).find("ALLRAIL_RAILS") != std::string_view::npos,
            "an address that is refused names the rank and the setting");
    return false;
  }
  NoEvents events;
  for (int i = 0; connect && i < 8; ++i) rail.poll(events);
  rail.forget(kPeer);
  require(!rail.is_up(kPeer), "a link that was forgotten is not up");
  return true;
}

}  // namespace

std::vector<Bytes> seeds() {
  const Rails rails;
  Endpoint four;
  four.port = 4711;
  four.address = {127, 0, 0, 1};
  Endpoint six = four;
  six.is_ipv6 = true;
  const auto first = encode_endpoint(four);
  const auto second = encode_endpoint(six);
  return {rails.tcp->address(), rails.verbs->address(), Bytes(first.begin(), first.end()),
          Bytes(second.begin(), second.end())};
}

void fuzz_one(std::span<const std::byte> input) {
  if (const auto endpoint = decode_endpoint(input)) {
    require(equal(encode_endpoint(*endpoint), input), "it re-encodes to the same bytes");
    require(parse_address(endpoint->address_text()).has_value(), "its text is an address");
  }
  static Rails rails;
  rails.renew();
  // Not polled: it would dial whatever the input names.
  const bool tcp = takes(*rails.tcp, input, false);
  const bool verbs = takes(*rails.verbs, input, true);
  require(!tcp || !verbs, "no address is of both kinds of rails");
  if (!verbs) return;
  const auto remote = transport::verbs::decode_rail_address(input);
  require(remote && equal(transport::verbs::encode(*remote), input), "what it takes re-encodes");
  require(remote->manager && !remote->manager->is_ipv6,
          "a verbs rail takes addresses of its own family only");
}

}  // namespace allrail::fuzz
