// The inside of a verbs rail. verbs_rail.cpp sets up, connection.cpp makes and ends connections,
// through librdmacm (cm_connection.cpp) or without it (direct_connection.cpp), datapath.cpp moves
// chunks, health.cpp finds links that are of no use any more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/handle.hpp"
#include "transport/peer_table.hpp"
#include "transport/rail.hpp"
#include "transport/retry_delay.hpp"
#include "transport/tcp/acceptor.hpp"
#include "transport/verbs/hello.hpp"
#include "transport/verbs/link.hpp"
#include "transport/verbs/port_identity.hpp"
#include "transport/verbs/queue_pair.hpp"
#include "transport/verbs/send_queue.hpp"
#include "transport/verbs/verbs_objects.hpp"
#include "transport/verbs/verbs_rail.hpp"
#include "transport/verbs/work.hpp"

namespace allrail::transport::verbs {

/// Flushed receives come at once, or the device is gone.
inline constexpr std::int64_t kDrainLimitNs = 1'000'000'000;
/// A peer that computes takes its time to accept.
inline constexpr std::int64_t kConnectTimeoutNs = 60'000'000'000;

inline bool in_transition(const Link& link) {
  return link.state == Link::State::Resolving || link.state == Link::State::Connecting ||
         link.state == Link::State::Accepting;
}

struct CompletionQueueUse {
  CompletionQueue queue;
  int links = 0;
};

/// A connection event, copied so that it can be acknowledged before anything is done about it.
struct ConnectionEvent {
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
  rdma_cm_id* id = nullptr;
  int status = 0;
  std::array<std::byte, kHelloBytes> data{};
  std::size_t data_bytes = 0;
};

void make_nonblocking(int descriptor, const std::string& rail);

class VerbsRail final : public Rail {
 public:
  explicit VerbsRail(const VerbsRailOptions& options);
  ~VerbsRail() override;

  int index() const override { return options_.index; }
  const std::string& name() const override { return options_.name; }
  std::uint32_t max_chunk_bytes() const override { return max_chunk_bytes_; }
  int queue_depth() const override { return kQueueDepth; }
  std::int64_t resend_after_ns() const override {
    return timeout_ns(acknowledgement_timeout(options_.has_siblings));
  }

  std::vector<std::byte> address() const override;
  void set_job_secret(const JobSecret& secret) override;
  void set_primary_window(std::span<std::byte> memory) override;
  RemoteKey register_window(std::span<std::byte> memory) override;
  void unregister_window(const RemoteKey& key) override;
  void register_source(std::span<const std::byte> memory) override;
  void unregister_source(std::span<const std::byte> memory) override;

  void connect(int peer, std::span<const std::byte> address) override;
  void set_only_link(int peer) override { link_of(peer).is_only = true; }
  void forget(int peer) override;
  bool is_up(int peer) const override;

  bool post(int peer, const Chunk& chunk) override;
  bool post_control(int peer, std::span<const std::byte> message) override;
  void submit() override;
  bool poll(RailEvents& events) override;
  bool flushed() const override { return listed_links_.empty(); }
  /// The device acknowledges. But whoever looks rarely does so at every look, and every one of them
  /// has to look at the clock.
  void flush_acknowledgements() override { polls_until_clock_ = 0; }
  void close(int peer, RailEvents& events) override;

  int event_descriptor() const override { return epoll_.get(); }
  void prepare_sleep() override;

 private:
  struct Region {
    std::span<const std::byte> memory;
    MemoryRegion region;  // null: the device is gone
    int sources = 0;      // how often it was made known as a source; 0: a window
  };
  /// A source that nobody sends from any more, whose key requests in flight may still have.
  struct RetiredSource {
    struct Use {
      std::uint16_t slot = 0;
      std::uint32_t generation = 0;
      std::uint64_t end = 0;  // requests of the link before this one may have the key
    };
    MemoryRegion region;
    std::vector<Use> uses;
  };

  /// Makes a queue pair in its first state, or says why not in errno.
  using MakePair = std::function<ibv_qp*(ibv_qp_init_attr& wanted)>;

  // verbs_rail.cpp
  void open_device();
  void watch(int descriptor);
  /// The context that everything but the port's events belongs to.
  ibv_context* data_context() const { return listener_ ? listener_->verbs : device_.get(); }
  RailAddress my_address() const;
  Region* source_region(std::span<const std::byte> memory);
  Link* find(int peer) const;
  Link& link_of(int peer);
  std::uint8_t timeout_of(const Link& link) const {
    return acknowledgement_timeout(options_.has_siblings && !link.is_only);
  }
  MemoryRegion register_memory(std::span<const std::byte> memory, int access);
  MemoryRegion register_for_user(std::span<const std::byte> memory, int access);
  void retire(MemoryRegion region);
  bool in_use(const RetiredSource& source) const;
  void free_retired();
  /// The key of a region that holds these bytes, or nothing.
  const std::uint32_t* key_of(const std::byte* from, std::uint32_t bytes) const;

  // connection.cpp
  bool service(RailEvents& events);
  bool take_ready(int descriptor, RailEvents& events);
  void take_completion_events();
  bool try_waiting(std::int64_t now_ns, RailEvents& events);
  /// False: why is in errno.
  bool make_queue_pair(Link& link, const MakePair& make);
  void prepare_buffers(Link& link);
  void make_buffers(Link& link);
  bool turn_away(Link& link, std::int64_t now_ns, RailEvents& events);
  Hello my_hello(const Link& link) const;
  HelloContext context_of(int to_rank, int rail_of_acceptor) const;
  void make_way(Link& link, RailEvents& events);
  void connecting_failed(Link& link, const std::string& reason, RailEvents& events);
  void take_other_way(Link& link) const;
  void wait_for_retry(Link& link);
  void go_up(Link& link, RailEvents& events);
  bool port_is_active() const;
  void let_go(ConnectionId id);
  void give_up_attempt(Link& link, RailEvents& events);
  void dismantle(Link& link, RailEvents* events);
  void take_down(Link& link, std::string_view reason, RailEvents& events);
  void take_all_down(std::string_view reason, RailEvents& events);

  // health.cpp
  bool take_device_events(RailEvents& events);
  bool gave_up_device();
  void follow_identity(RailEvents& events);
  void check_overdue(std::int64_t now_ns, RailEvents& events);
  std::int64_t overdue_ns(const Link& link) const;
  std::int64_t connect_timeout_ns() const {
    return options_.connect_timeout_ns > 0 ? options_.connect_timeout_ns : kConnectTimeoutNs;
  }

  // cm_connection.cpp
  void listen();
  bool take_connection_events(RailEvents& events);
  void on_connection_event(const ConnectionEvent& event, RailEvents& events);
  void on_request(const ConnectionEvent& event, RailEvents& events);
  void on_address(Link& link, RailEvents& events);
  void on_route(Link& link, RailEvents& events);
  void on_established(Link& link, const ConnectionEvent& event, RailEvents& events);
  void on_ended(Link& link, const ConnectionEvent& event, RailEvents& events);
  void start_resolving(Link& link, std::int64_t now_ns, RailEvents& events);
  void accept(Link& link, ConnectionId id, RailEvents& events);
  void reject_probe(rdma_cm_id& id, const Hello& hello, std::span<const std::byte> request) const;
  std::optional<Hello> answer_of(const Link& link, const ConnectionEvent& event) const;
  bool make_managed_pair(Link& link, rdma_cm_id& id);

  // direct_connection.cpp
  void listen_for_side_channels();
  bool take_pending_strangers(RailEvents& events);
  bool take_side_event(int descriptor, RailEvents& events);
  bool take_accepted(Acceptor& acceptor, RailEvents& events);
  bool watch_side(const SideChannel& side, bool is_new);
  void start_side_channel(Link& link, std::int64_t now_ns, RailEvents& events);
  void advance_side(Link& link, RailEvents& events);
  void drop_early_side(Link& link);
  void advance_early(Link& link, RailEvents& events);
  void prove_side(Link& link, RailEvents& events);
  void take_answer(Link& link, RailEvents& events);
  void path_proved(Link& link, RailEvents& events);
  void take_ready_word(Link& link, RailEvents& events);
  void watch_for_end(Link& link, RailEvents& events);
  void accept_offer(Link& link, RailEvents& events);
  /// False: why is in errno.
  bool make_direct_pair(Link& link);
  bool make_path(Link& link);
  bool make_ready(Link& link, const PathFacts& theirs);

  // datapath.cpp
  bool poll_queues(RailEvents& events);
  bool take_completions(const CompletionQueueUse& use);
  bool drain(Link& link, std::int64_t limit_ns, RailEvents& events);
  void complete(const ibv_wc& completion, RailEvents& events);
  void complete_sends(Link& link, std::uint16_t place, RailEvents& events);
  void report_receive(Link& link, const ibv_wc& completion, std::uint16_t buffer,
                      RailEvents& events);
  void complete_receive(Link& link, const ibv_wc& completion, std::uint16_t buffer,
                        RailEvents& events);
  bool post_receive(Link& link, std::uint16_t buffer);
  void list(Link& link, const SendQueue::Request& request);
  bool post_list(Link& link);
  void tell_credit(Link& link);
  void post_credit(Link& link);
  bool may_use_receive(const Link& link) const;
  void doom(Link& link, std::string reason);
  bool report_doomed(RailEvents& events);

  VerbsRailOptions options_;
  EventChannel events_;                               // of librdmacm, ...
  ConnectionId listener_;                             // ... where the port has an address
  std::vector<std::unique_ptr<Acceptor>> acceptors_;  // of side channels
  DeviceContext device_;                              // a context of our own, for the port's events
  ProtectionDomain domain_;
  CompletionChannel channel_;
  std::vector<CompletionQueueUse> completion_queues_;
  base::UniqueFd epoll_;
  base::UniqueFd wake_;  // an eventfd: completions came between polling and arming
  int completions_per_queue_ = 0;
  std::uint32_t max_chunk_bytes_ = kMaxChunkBytes;
  std::uint8_t port_ = 1;
  std::uint8_t mtu_code_ = 1;             // of the port
  std::optional<PortIdentity> identity_;  // if the device told it

  std::span<std::byte> window_;
  MemoryRegion window_region_;
  std::vector<Region> regions_;
  std::vector<RetiredSource> retired_;
  PeerTable<Link> links_;  // to those who were connect()ed, or who connected; at(Link::slot)
  // Given up while the port was down, until it is up: see let_go().
  std::vector<ConnectionId> silent_;
  // Slots of links whose work requests are collected and not posted.
  std::vector<std::uint16_t> listed_links_;
  // Taken from the queues and not looked at yet: from next_completion_ on.
  std::vector<ibv_wc> completions_;
  std::size_t next_completion_ = 0;
  int doomed_links_ = 0;
  int polls_until_clock_ = 0;
  bool device_failed_ = false;  // it said so, and has made no link since
  bool is_off_ = false;         // for ever: see gave_up_device()
  bool drained_ = true;         // the last link that ended, see take_all_down()
  std::int64_t drain_limit_ns_ = kDrainLimitNs;
  bool service_now_ = true;
  bool awake_ = false;  // wake_ is set
  std::int64_t serviced_at_ns_ = 0;
  RetryDelay retry_delay_;
};

}  // namespace allrail::transport::verbs
