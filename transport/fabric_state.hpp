// What stands behind Fabric: its peers and rails (peer_state.hpp), and the events of the rails.
//   sender.cpp  queueing puts, pulling chunks onto rails
//   turns.cpp   which rail a put takes that is not cut
//   completions.cpp what they tell of the rails, puts that are done
//   links.cpp   links going up and down, control messages
//   pairing.cpp which rails of a peer are tried, and what is said if none answers
//   fence.cpp   fence and replay, stalls, giving up
// Rails report only inside poll(). Events note what is to be answered, and progress() sends it
// after the polls, so that no rail is entered while it is reporting.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.hpp"
#include "lib/base/handle.hpp"
#include "transport/control_message.hpp"
#include "transport/fabric.hpp"
#include "transport/holding.hpp"
#include "transport/peer_state.hpp"
#include "transport/peer_table.hpp"
#include "transport/shares.hpp"
#include "transport/striping.hpp"
#include "transport/turn_shares.hpp"

namespace allrail::transport {

class FabricState : public RailEvents {
 public:
  FabricState(int rank, int size, std::vector<std::unique_ptr<Rail>> rails, FabricOptions options);

  // fabric.cpp
  void connect(int rank, const PeerRails& rails);
  Peer& peer(int rank) const {
    // Most questions are about the peer of the last one.
    return rank == last_rank_ ? *last_peer_ : look_for(rank);
  }
  bool progress();
  bool glance(int peer, std::uint64_t bytes, int port);
  void consume(int peer, std::uint64_t number, int port);
  void send_told();
  void flush_acknowledgements();
  void acknowledge();
  void shut_down();
  void say_goodbye();
  void give_up(int peer, std::string text, bool mismatch = false);
  /// Called before whatever may have posted returns to the engine.
  void submit();
  bool rails_flushed() const;
  /// put() left something in the rails, and nothing has handed it over since.
  bool has_held() const { return holds_; }
  /// The same, or rails have some of it still.
  bool holds();
  /// What put() left in the rails leaves now.
  void hand_over() {
    to_submit_ = to_submit_ || holds_;
    submit();
  }

  // sender.cpp
  std::uint64_t put(const Put& put);
  void pump();

  // links.cpp
  void link_up(int rail, int peer, int peer_rail) override;
  void link_answered(int rail, int peer) override;
  void link_down(int rail, int peer, std::string_view reason) override;
  bool chunk_wanted(int rail, int peer, std::uint32_t immediate) override;
  void chunk_arrived(int rail, int peer, std::uint32_t immediate, std::uint32_t bytes) override;
  void control_arrived(int rail, int peer, std::span<const std::byte> bytes) override;
  void owe_state(Peer& peer);
  void take_goodbye(Peer& peer);
  void send_owed();

  // completions.cpp
  void chunks_completed(int rail, int peer, int count) override;
  /// Looks whether watched chunks have left.
  void look_at_departures();

  std::int64_t now() const { return options_.now_ns ? options_.now_ns() : base::now_ns(); }

  int rank_;
  int size_;
  FabricOptions options_;
  std::vector<RailState> rails_;
  std::array<double, kMaxRails> ahead_bytes_{};  // of striped puts: see add_ahead()
  std::int64_t ahead_since_ns_ = 0;
  Shares shares_;           // of puts that are cut
  TurnShares turn_shares_;  // of others that are answered
  std::array<Observation, kObservations> observations_{};
  std::uint64_t newest_observation_ = 0;
  PeerTable<Peer> peers_;  // those that were connect()ed
  std::vector<Peer*> connected_;
  std::optional<FabricFailure> failure_;
  OpenPut* oldest_ = nullptr;
  OpenPut* newest_ = nullptr;
  base::UniqueFd epoll_;
  bool said_goodbye_ = false;

 private:
  bool poll_all();
  void after_polls(bool any);

  // sender.cpp
  void describe(const Peer& peer, std::uint32_t chunk_bytes, std::span<RailChoice> choices);
  bool has_room(const Link& link, RailState& rail, std::uint32_t chunk_bytes);
  bool post(Peer& peer, int rail, OpenPut& put, std::uint32_t index);
  int place_striped(Peer& peer, OpenPut& put, std::uint32_t index, std::uint64_t waiting_bytes);
  int place(Peer& peer, OpenPut& put, std::uint32_t index, std::uint64_t waiting_bytes);
  void pump_peer(Peer& peer, std::uint64_t& ahead_bytes);
  bool any_room(const Peer& peer) const;
  RailSpeeds speeds_to(const Peer& peer) const;
  bool are_fast(const Peer& peer) const;
  bool may_be_held(const Peer& peer, const Put& put) const;
  bool is_to_measure(Peer& peer, const Put& put) const;
  void activate(Peer& peer);

  // turns.cpp
  int choose_small(Peer& peer, const OpenPut& put, std::uint32_t bytes);
  int turn_of(Peer& peer, const OpenPut& put, std::uint32_t bytes, RailSet rails);
  bool has_shared_turn(const OpenPut& put) const;
  int turn_of_stream(Peer& peer, const OpenPut& put, int in_turn, unsigned rails);
  void look_at_queues(Peer& peer);

  // completions.cpp
  void chunk_done(Peer& peer, const ChunkName& chunk);
  void observe(OpenPut& put);
  Observation* observation_of(const OpenPut& put);
  void learn_shares(const Peer& peer, Observation& observed);
  void complete(Peer& peer, OpenPut& put);

  // links.cpp
  bool send(Peer& peer, int rail, ControlMessage& message);
  int healthy_link(const Peer& peer, int preferred) const;
  void take_state(Peer& peer, const ControlMessage& message);
  void condemn(Peer& peer, int rail, std::string reason);
  void take_message(Peer& peer, int rail, const ControlMessage& message);
  static bool makes_sense(const Peer& peer, const ControlMessage& message);

  // fabric.cpp
  Peer& look_for(int rank) const;

  // pairing.cpp
  bool connects_to(const Peer& peer) const { return rank_ < peer.rank; }
  RailPair pair_of(const Peer& peer, int rail, int peer_rail) const;
  void try_pairs();
  void assign_pairs(Peer& peer);
  void want_link(const Peer& peer, int rail, int peer_rail);
  void take_pair(Peer& peer, int rail, int peer_rail);
  void pair_failed(Peer& peer, int rail, std::string_view reason);
  std::string no_link_text(const Peer& peer, std::int64_t without_ns) const;
  std::string pair_text(const Peer& peer, int rail, int peer_rail) const;
  std::string lost_rails_text(const Peer& peer, const std::string& what) const;

  // fence.cpp
  void close_condemned();
  void drop_link(Peer& peer, int rail, std::string_view reason);
  void lose_link(Peer& peer, int rail, std::string_view reason);
  void send_fences(Peer& peer);
  void answer_fences(Peer& peer);
  void take_answer(Peer& peer, const ControlMessage& message);
  void check_peers();
  bool awaits_answer(const Peer& peer) const;
  void ping(Peer& peer);
  void check_stalls(Peer& peer);
  bool unreachable(const Peer& peer) const;
  void check_no_link(Peer& peer);
  void check_losses_in_vain(const Peer& peer);

  std::int64_t now_ns_ = 0;         // when progress() or put() was entered, or something was heard
  std::int64_t all_polled_ns_ = 0;  // when the last look at all rails began
  bool was_asked_ = false;          // a ping came since then
  std::int64_t next_check_ns_ = 0;
  std::uint64_t next_order_ = 0;
  bool pump_needed_ = false;
  bool to_submit_ = false;  // some rail took something since the last submit()
  Holding holding_;
  bool may_hold_ = false;   // the put that is begun right now may stay in its rails
  bool holds_ = false;      // some rail took what may stay there, and nothing else, since then
  bool left_some_ = false;  // of what was held, when it was handed over: a socket was full
  bool probes_due_ = false;
  mutable int last_rank_ = -1;  // that peer() was asked for; entries never move
  mutable Peer* last_peer_ = nullptr;
  bool owed_ = false;  // some hello, pong, state, fence or answer is to be sent
  std::vector<Peer*> active_;
  // Links whose peer broke the rules inside an event: closed after the polls.
  struct Condemned {
    Peer* peer = nullptr;
    int rail = -1;
    std::uint64_t generation = 0;
    std::string reason;
  };
  std::vector<Condemned> condemned_;
};

}  // namespace allrail::transport
