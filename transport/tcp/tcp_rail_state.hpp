// The inside of a TCP rail. tcp_rail.cpp sets up, links.cpp makes and ends connections,
// datapath.cpp moves chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/handle.hpp"
#include "transport/peer_table.hpp"
#include "transport/rail.hpp"
#include "transport/retry_delay.hpp"
#include "transport/tcp/acceptor.hpp"
#include "transport/tcp/interfaces.hpp"
#include "transport/tcp/stream.hpp"
#include "transport/tcp/tcp_rail.hpp"
#include "transport/tcp/window_table.hpp"

namespace allrail::transport {

/// The connection to one peer, in whatever state. Lives as long as the rail, so that pointers to
/// it inside epoll never dangle.
struct TcpLink {
  enum class State { Idle, Waiting, Connecting, Handshaking, Up };

  int peer = -1;
  bool wanted = false;
  State state = State::Idle;
  base::UniqueFd fd;
  std::uint32_t generation = 0;  // counts connections, so that callers notice a close()

  // The connecting side.
  Endpoint remote;
  int remote_rail = 0;  // of the link that is up, too
  std::unique_ptr<ClientHandshake> handshake;
  std::int64_t next_try_ns = 0;  // Waiting: try again; Connecting: give up
  int retry_delay_ms = 0;

  // The accepting side: a connection that came before it was wanted here.
  base::UniqueFd early;
  int early_rail = 0;

  std::unique_ptr<Stream> stream;  // made when the link is up for the first time
  std::string doom;                // why the link must go down at the next poll(); empty: no
  bool is_up() const { return state == State::Up && doom.empty(); }
  bool is_connecting() const { return state == State::Connecting || state == State::Handshaking; }
};

class TcpRail final : public Rail {
 public:
  TcpRail(const TcpRailOptions& options, const RailPlace& place);
  ~TcpRail() override;

  int index() const override { return options_.index; }
  const std::string& name() const override { return place_.name; }
  std::uint32_t max_chunk_bytes() const override { return kTcpMaxChunkBytes; }
  int queue_depth() const override { return kTcpQueueDepth; }

  std::vector<std::byte> address() const override;
  void set_primary_window(std::span<std::byte> memory) override;
  RemoteKey register_window(std::span<std::byte> memory) override;
  void unregister_window(const RemoteKey& key) override;

  void connect(int peer, std::span<const std::byte> address) override;
  void forget(int peer) override;
  bool is_up(int peer) const override;

  bool post(int peer, const Chunk& chunk) override;
  bool post_control(int peer, std::span<const std::byte> message) override;
  void submit() override;
  bool poll(RailEvents& events) override;
  bool poll_peer(RailEvents& events, int peer) override;
  bool flushed() const override { return queued_links_ == 0; }
  std::int64_t unsent_bytes(int peer) const override;
  std::int64_t undelivered_bytes(int peer) const override;
  void flush_acknowledgements() override;
  void acknowledge_unanswered() override;
  void close(int peer, RailEvents& events) override;

  int event_descriptor() const override { return epoll_.get(); }
  void prepare_sleep() override;

  void set_job_secret(const JobSecret& secret) override {
    options_.secret = secret;
    acceptor_.set_secret(secret);
  }
  std::uint64_t stranger_count() const { return acceptor_.stranger_count(); }

 private:
  class Receiver;

  // tcp_rail.cpp
  TcpLink* find(int peer) const;
  TcpLink& link_of(int peer);
  void set_timer(std::int64_t at_ns);

  // links.cpp
  bool service(RailEvents& events);
  bool take_accepted(RailEvents& events);
  bool try_waiting(std::int64_t now_ns, RailEvents& events);
  void start_connecting(TcpLink& link, std::int64_t now_ns, RailEvents& events);
  void advance_connecting(TcpLink& link, RailEvents& events);
  void connecting_failed(TcpLink& link, const std::string& reason, RailEvents& events);
  void wait_for_retry(TcpLink& link);
  void go_up(TcpLink& link, base::UniqueFd fd, RailEvents& events);
  void close_socket(TcpLink& link);
  void take_down(TcpLink& link, std::string_view reason, RailEvents& events);
  void doom(TcpLink& link, std::string reason);
  bool report_doomed(RailEvents& events);
  bool check_silent_hosts(RailEvents& events);
  void watch(TcpLink& link, std::uint32_t wanted_events, bool is_new);

  // datapath.cpp
  /// `held`: it lies in the queue until submit().
  bool send_frame(TcpLink& link, const FrameHeader& frame, const std::byte* payload,
                  bool held = false);
  void send_or_queue(TcpLink& link, const FrameHeader& header, const std::byte* payload, bool held);
  void flush(TcpLink& link);
  void advance_queue(Stream& stream, std::size_t sent_bytes);
  void send_failed(TcpLink& link, int error_number);
  bool receive(TcpLink& link, RailEvents& events);

  // acknowledgements.cpp
  void note_chunk(Stream& stream, const FrameHeader& chunk);
  static bool is_much_untold(const Stream& stream);
  void told(Stream& stream, const FrameHeader& header);
  void send_acknowledgement(TcpLink& link);
  void check_acknowledgements();

  TcpRailOptions options_;
  RailPlace place_;
  base::UniqueFd epoll_;
  base::UniqueFd timer_;
  Acceptor acceptor_;
  WindowTable windows_;
  PeerTable<TcpLink> links_;          // to those who were connect()ed, or who connected
  std::vector<TcpLink*> up_;          // links that have a socket in State::Up
  std::vector<TcpLink*> connecting_;  // wanted, ours to connect, and not up
  int queued_links_ = 0;              // up, with frames that the kernel has not taken
  bool unsubmitted_ = false;          // some of them have frames that it was not offered yet
  int untold_links_ = 0;              // up, with chunks that were not acknowledged
  int doomed_links_ = 0;
  int early_links_ = 0;  // with a connection that came early
  int polls_until_clock_ = 0;
  bool service_now_ = true;
  std::int64_t serviced_at_ns_ = 0;
  std::int64_t silence_checked_at_ns_ = 0;
  std::int64_t timer_at_ns_ = 0;
  RetryDelay retry_delay_;
  std::unique_ptr<std::byte[]> buffer_;
};

}  // namespace allrail::transport
