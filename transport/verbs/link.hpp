// One link of a verbs rail: its memory and its state.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/rail.hpp"
#include "transport/verbs/hello.hpp"
#include "transport/verbs/offer.hpp"
#include "transport/verbs/rail_address.hpp"
#include "transport/verbs/send_queue.hpp"
#include "transport/verbs/side_channel.hpp"
#include "transport/verbs/verbs_objects.hpp"
#include "transport/verbs/work.hpp"

namespace allrail::transport::verbs {

/// Memory of one link that the device reads and writes: received and sent control messages, and the
/// two credit words.
struct LinkBuffers {
  std::array<std::array<std::byte, kMaxControlBytes>, kReceiveDepth> received;
  std::array<std::array<std::byte, kMaxControlBytes>, kControlDepth> sent;
  alignas(64) std::uint64_t credit_from_peer;  // written by the peer
  alignas(64) std::uint64_t credit_to_peer;
};

/// The connection to one peer, in whatever state. Lives as long as the rail.
struct Link {
  enum class State { Idle, Waiting, Resolving, Connecting, Accepting, Up };

  int peer = -1;
  std::uint16_t slot = 0;  // its place in WorkId
  bool wanted = false;
  bool is_only = false;  // between the two hosts
  State state = State::Idle;
  std::uint32_t generation = 0;  // counts connections
  // The connection, made in one of two ways: librdmacm's, which owns its queue pair, ...
  ConnectionId id;
  // ... or the direct one.
  QueuePair direct_pair;
  SideChannel side;
  ibv_qp* pair = nullptr;     // of either
  int completion_queue = -1;  // which of the rail's, for as long as the link exists

  // The connecting side.
  RailAddress remote;
  Way way = Way::None;
  // By number of the peer's rail, which is one byte of its address: the next attempt takes the
  // other way than the first did.
  std::bitset<256> other_way;
  // Which of the peer's side addresses, by turns. All its rails have the same ones, so that it is
  // kept when another rail is tried.
  std::size_t tries = 0;
  bool answered = false;     // there, since it was tried first: the peer comes when it may
  bool proves_path = false;  // the peer has come, and a first write asks for the way to it
  // By number of the peer's rail: the peer had come, and nothing got through to it.
  std::bitset<256> path_failed;
  std::int64_t next_try_ns = 0;  // Waiting: try again; Resolving, Connecting: give up
  int retry_delay_ms = 0;

  // The accepting side: a request that came before it was wanted here.
  ConnectionId early;
  Hello early_hello;
  SideChannel early_side;
  bool early_offered = false;  // its offer is there
  Offer early_offer;

  // Of the request that was sent or accepted last.
  HelloBytes request{};
  OfferBytes offer{};
  OfferBytes inbox{};        // of `side`, until the message is whole
  OfferBytes early_inbox{};  // of `early_side`
  PathFacts my_path;
  Hello theirs;
  std::unique_ptr<LinkBuffers> buffers;
  MemoryRegion buffers_region;
  std::uint32_t inline_bytes = 0;
  int receives_posted = 0;
  SendQueue sends;
  std::uint64_t free_control = 0;    // one bit per sent control buffer
  std::uint64_t receives_used = 0;   // of the peer's, by our sends
  std::uint64_t receives_again = 0;  // of ours, posted again
  std::uint64_t receives_told = 0;   // as far as the peer was told
  std::uint64_t done_when_seen = 0;  // sends.done(), at the last look for progress
  std::int64_t waited_ns = -1;       // for it to grow; -1: nothing was in flight
  std::string doom;                  // why the link must go down at the next poll(); empty: no

  bool has_queue_pair() const {
    return state == State::Connecting || state == State::Accepting || state == State::Up;
  }
  bool is_up() const { return state == State::Up && doom.empty(); }
};

}  // namespace allrail::transport::verbs
