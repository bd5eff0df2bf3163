// The state behind the fake libraries. One mutex guards all of it: every function of the two
// libraries takes it once, on entry (class Call), and nothing below that level does.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/eventfd.h>

#include "tests/fake_verbs/fake_verbs.hpp"

namespace allrail::fake_verbs {

/// A descriptor that is readable while events wait, as the kernel's are.
class Bell {
 public:
  Bell();
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  int descriptor() const { return descriptor_; }
  void ring() const;
  void take() const;
  /// Whether the program made the descriptor nonblocking.
  bool nonblocking() const;

 private:
  int descriptor_;
};

/// What all objects have. An abandoned one was released by a call that was made to fail.
struct Object {
  bool abandoned = false;
};

/// Owns all objects of one kind, in the order of their making.
template <typename T>
class Pool {
 public:
  T& add(std::unique_ptr<T> object) { return *objects_.emplace_back(std::move(object)); }
  bool holds(const T* object) const { return find(object) != objects_.end(); }
  void remove(const T* object) { objects_.erase(find(object)); }
  auto begin() const { return objects_.begin(); }
  auto end() const { return objects_.end(); }
  int alive() const {
    return static_cast<int>(std::count_if(objects_.begin(), objects_.end(),
                                          [](const auto& object) { return !object->abandoned; }));
  }

 private:
  auto find(const T* object) const {
    return std::find_if(objects_.begin(), objects_.end(),
                        [&](const auto& one) { return one.get() == object; });
  }
  std::vector<std::unique_ptr<T>> objects_;
};

struct Context;

struct Device : ibv_device {
  DeviceOptions options;
  std::uint32_t address = 0;  // IPv4, network order
  bool is_cut = false;
  bool is_blackholed = false;
  bool is_frozen = false;
  int times_renumbered = 0;
  bool manager_is_broken = false;
  std::uint64_t registered_bytes = 0;
  std::unique_ptr<Context> shared;  // what the ids of this device use, as in librdmacm
  bool reachable() const { return !is_cut && !is_blackholed; }
};

struct Context : verbs_context, Object {
  Device* owner = nullptr;
  std::deque<ibv_async_event> events;
  Bell bell;
};

struct DeviceList : Object {
  std::vector<ibv_device*> array;  // ends with a null
};

struct Domain : ibv_pd, Object {};

struct Region : ibv_mr, Object {
  std::uint64_t start = 0;  // as remote ends and work requests name it
  unsigned access = 0;
};

struct Cq;

struct CompletionChannel : ibv_comp_channel, Object {
  Bell bell;
  std::deque<Cq*> events;
};

struct Completion {
  ibv_wc wc;
  bool of_send = false;
  bool solicited = false;
  int frees = 0;  // slots of its queue that polling it gives back
};

enum class Armed { No, Solicited, Any };

struct Cq : ibv_cq, Object {
  std::deque<Completion> entries;
  Armed armed = Armed::No;
  unsigned unacknowledged = 0;
  unsigned unacknowledged_asynchronous = 0;
  bool overflowed = false;
};

struct Send {
  std::uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = 0;
  __be32 immediate = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  std::vector<ibv_sge> pieces;
  std::vector<std::byte> inlined;
  std::uint64_t bytes = 0;
  std::uint64_t moved = 0;
  bool signalled = false;
  bool saw_no_receive = false;
  ibv_wc_status wanted = IBV_WC_SUCCESS;  // what it ends with, if all goes well
};

struct Receive {
  std::uint64_t wr_id = 0;
  std::vector<ibv_sge> pieces;
};

struct Qp : ibv_qp, Object {
  ibv_qp_attr attributes{};
  bool moved_by_program = false;     // through its states; else by librdmacm
  ibv_qp_state now = IBV_QPS_RESET;  // `state` is what the program was told last
  ibv_qp_cap cap{};
  bool signal_all = false;
  std::deque<Send> sends;  // the first `landed` of them are at the other end
  std::size_t landed = 0;  // ... and wait to be acknowledged
  std::deque<Receive> receives;
  std::uint32_t used_sends = 0;  // slots, until the completion that frees them is polled
  std::uint32_t used_receives = 0;
  int silent_sends = 0;  // done without completion since the last one with
  int patience = 0;      // steps until an unreachable peer ends the first send
  unsigned unacknowledged_asynchronous = 0;
  Device* device() const;
};

struct Id;

struct Event : rdma_cm_event, Object {
  Id* owner = nullptr;  // whose acknowledgements it counts among
  std::vector<std::byte> data;
  Id* from = nullptr;     // of a request: the connecting end, null once it is gone
  bool response = false;  // completes the connecting end: see rdma_get_cm_event()
};

struct EventChannel : rdma_event_channel, Object {
  Bell bell;
  std::deque<std::unique_ptr<Event>> events;
};

enum class IdState {
  Idle,
  Bound,
  AddressResolved,
  RouteResolved,
  Listening,
  Connecting,
  Requested,
  Accepted,
  Connected,
  Disconnecting,  // this end asked
  Asked,          // the other end asked, this one has not answered
  Done,
};

struct Id : rdma_cm_id, Object {
  IdState at = IdState::Idle;
  Device* device = nullptr;
  Id* other = nullptr;
  int backlog = 0;
  int unacknowledged = 0;
  std::uint8_t rnr_retry = 0;    // what the other end asked of this one's queue pair
  std::uint8_t retry_count = 0;  // what the connecting end asked of both
  std::uint8_t timeout = 18;     // what the program set, or what the kernel would take
};

struct CallFailure {
  std::string function;  // any, if empty
  int n = 0;             // counts down to 0, then it is spent
  int error = 0;
};

struct State {
  std::mt19937_64 engine;
  std::vector<std::unique_ptr<Device>> devices;
  Pool<DeviceList> lists;
  Pool<Context> contexts;
  Pool<Domain> domains;
  Pool<Region> regions;
  Pool<CompletionChannel> channels;
  Pool<Cq> cqs;
  Pool<Qp> qps;
  Pool<EventChannel> event_channels;
  Pool<Id> ids;
  Pool<Event> events;  // got, not acknowledged

  std::vector<std::string> calls;
  std::vector<std::string> failed;
  std::vector<CallFailure> call_failures;
  std::vector<std::pair<int, ibv_wc_status>> completion_failures;  // by number since reset()
  int completions = 0;
  std::vector<std::pair<int, int>> send_refusals;            // errno by number given since reset()
  std::vector<std::pair<int, ibv_wc_status>> send_failures;  // by number posted since reset()
  int given_sends = 0;
  PostedSends posted_sends;
  int receiver_not_ready = 0;
  int overflows = 0;
  NoListener no_listener = NoListener::Unreachable;
  std::uint32_t next_qp_num = 0;
  std::uint32_t next_key = 0;
  std::uint16_t next_port = 0;

  /// Below `limit`, by the seed.
  std::uint64_t random(std::uint64_t limit) { return limit < 2 ? 0 : engine() % limit; }
  bool coin() { return random(2) == 0; }
  void misuse(const std::string& sentence) const;
  Device* device_of(std::uint32_t address) const;
  Device* device_named(const std::string& name) const;
  std::uint32_t new_key();
};

struct World : State {
  std::mutex mutex;
};

World& world();
extern std::function<void(const std::string&)> misuse_handler;

/// One call of the program: takes the mutex, and is counted if it can fail.
class Call {
 public:
  explicit Call(const char* function);
  /// To be counted later, or never.
  Call() : lock_(world().mutex) {}
  void count(const char* function);
  /// What the test wants this call to fail with, or 0.
  int error() const { return error_; }
  /// Lets others run, for a call that blocks.
  void wait_for(const Bell& bell);

 private:
  std::unique_lock<std::mutex> lock_;
  int error_ = 0;
};

/// The two conventions beside "the errno itself".
inline int minus_one(int error) {
  errno = error;
  return -1;
}
inline std::nullptr_t null_with(int error) {
  errno = error;
  return nullptr;
}

// devices.cpp
void open_context(Context& context, Device& device);
Context* context_of(ibv_context* context);
Context& shared_context(Device& device);
bool has_gid(const Device& device, int index);
/// Whether packets that take this way from `from` come out at `to`, at the GID that it answers by.
bool leads_to(const Device& from, const ibv_ah_attr& way, const Device& to,
              const ibv_ah_attr& way_back);
void raise_asynchronous(Context& context, const ibv_async_event& event);
/// Takes the events of a queue or queue pair that is destroyed.
void forget_asynchronous(Context& context, const void* element);

// memory.cpp
/// The memory that a work request or a remote end names, or null if the key does not allow it.
std::byte* memory_behind(const ibv_pd* domain, std::uint32_t key, bool remote,
                         std::uint64_t address, std::uint64_t bytes, unsigned access);

// completion.cpp
/// Puts a completion into the queue and rings. The status may come out changed: see
/// fail_completion().
ibv_wc_status complete(Cq& cq, Completion completion);

// queue_pair.cpp, work_request.cpp
int create_queue_pair(Qp*& made, ibv_pd* domain, ibv_qp_init_attr& wanted);
void remove_queue_pair(Qp& qp);
Qp* queue_pair_numbered(std::uint32_t number);
int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad);
int post_receive(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad);
int poll_completions(ibv_cq* cq, int count, ibv_wc* completions);
int request_notification(ibv_cq* cq, int solicited_only);

// wire.cpp
bool path_open(const Device* from, const Device* to);
/// One step of a random queue pair that has something to do; false if none has.
bool step();
/// Moves everything that an armed completion queue waits for: its program may be asleep.
void settle();
void to_error(Qp& qp);
/// The device has just become unreachable.
void lose_acknowledgements(const Device& device);

// connection_event.cpp
inline constexpr std::size_t kRequestDataBytes = 56;
inline constexpr std::size_t kReplyDataBytes = 196;
inline constexpr std::size_t kRejectDataBytes = 148;
Event& push_event(Id& id, rdma_cm_event_type type, int status = 0);
/// Private data comes as long as its message has room for, filled up with zeros.
void add_data(Event& event, const void* data, std::size_t bytes, std::size_t room);
/// Removes an id's events that were not got; the connecting ends of requests are told.
void drop_events(Id& id);
void connect_queue_pairs(Id& id, const Id& other);

// connection.cpp
Id* id_of(rdma_cm_id* id);
void reject_connection(Id& active, int status, const void* data, std::size_t bytes);
void end_waiting_connections(const Device& device);

}  // namespace allrail::fake_verbs
