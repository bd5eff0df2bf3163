// libibverbs and librdmacm in software, inside one process: what a test asks of them.
//
// A test that links this library instead of -libverbs -lrdmacm runs the real rail code against
// devices that exist only here. Bytes move when somebody polls (or when a completion queue that is
// armed would get something to say), in an order that the seed chooses: one queue pair keeps its
// order, several do not among each other, and a write can be read before its completion. Beside
// that nothing depends on time: timeouts and retries are counted in steps of that scheduler.
//
// Any call can be made to fail with any errno and any completion with any status. What no correct
// program does (destroying what is in use, overflowing a completion queue) is a misuse: it is
// reported at once, where real hardware would hang or lose data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <infiniband/verbs.h>

namespace allrail::fake_verbs {

struct DeviceOptions {
  std::string name = "fake0";
  std::string address = "10.9.0.1";  // IPv4; devices of one /24 reach each other's resolution
  bool infiniband = false;           // else RoCE
  bool iwarp = false;
  bool has_gids = true;
  bool needs_gids = false;  // of InfiniBand: it takes no packets without, as virtual functions do
  int unset_gid = -1;       // a place of the GID table that is empty
  /// Else it has link-local GIDs only, and librdmacm knows nothing of it.
  bool has_ip = true;
  /// As soft-RoCE's: a connection manager that had to send a message while the port was down hears
  /// nothing any more.
  bool manager_breaks = false;
  ibv_mtu mtu = IBV_MTU_1024;
  int max_qp = 1024;
  int max_qp_wr = 4096;
  int max_sge = 16;
  int max_cqe = 65536;
  std::uint32_t max_inline_bytes = 220;
  std::uint32_t max_message_bytes = 1U << 30;
  std::uint64_t max_registered_bytes = UINT64_MAX;  // of all regions together, as memlock has it
};

/// fake0 with 10.9.0.1 and fake1 with 10.9.1.1.
std::vector<DeviceOptions> default_devices();

/// Forgets everything, every object too, and starts anew. The first call of every test.
void reset(std::uint64_t seed, std::vector<DeviceOptions> devices = default_devices());

// ---- Failures ----

/// The n-th call from now on (1 is the next) that can fail does so with this errno, in the
/// convention of its function. A call that only finds nothing to do (an empty queue) is not
/// counted, so that a program that waits makes the same calls each time. A call that releases
/// something and is made to fail leaves it to reset(): it is no longer counted as alive, and the
/// caller may release it again.
void fail_call(int n, int error);
/// The same for the n-th call from now on of one function.
void fail_call_of(const std::string& function, int n, int error);
/// Calls that can fail, since reset().
int calls();
/// Of the n-th call since reset(); the first is 1. Empty beyond calls().
std::string name_of_call(int n);
/// Calls that were made to fail, since reset(), as "ibv_reg_mr (call 7)".
std::vector<std::string> failed_calls();

/// The n-th completion from now on that would be a success gets this status and its queue pair
/// goes into error, for errors of the remote end the other one too. Whether a write so hit has
/// landed is chosen by the seed.
void fail_completion(int n, ibv_wc_status status);
/// The n-th work request that ibv_post_send is given from now on is refused with this errno: those
/// before it in its list are posted, and those behind it are not.
void refuse_send(int n, int error);
/// The n-th work request that ibv_post_send takes from now on ends with this status, signalled or
/// not, and its queue pair goes into error, as above.
void fail_send(int n, ibv_wc_status status);
/// Successful completions, and those that were made to fail, since reset().
int completions();

/// The port goes down: contexts of the device get IBV_EVENT_PORT_ERR, sends that are not
/// acknowledged yet end with IBV_WC_RETRY_EXC_ERR (whether they have landed is chosen by the seed),
/// connections cannot be made any more.
void cut(const std::string& device);
/// The same, but the port does not know: no event, and it stays active.
void blackhole(const std::string& device);
/// Queue pairs of the device do nothing any more with what they were given to send, and tell no
/// error: as of firmware that hangs.
void freeze(const std::string& device);
/// Ends each of them. After a cut contexts get IBV_EVENT_PORT_ACTIVE. Queue pairs in error stay so.
void restore(const std::string& device);

/// The port gets other numbers, and its contexts the event that says so: another LID on InfiniBand,
/// on RoCE all GIDs move on in their table. Packets of queue pairs with the old numbers are lost,
/// but not where librdmacm connected (these know no numbers here).
void renumber(const std::string& device);
/// The port's contexts get this event, and nothing has changed.
void tell(const std::string& device, ibv_event_type type);
/// Every id of the device, listeners too, gets RDMA_CM_EVENT_DEVICE_REMOVAL. The device stays.
void tell_removal(const std::string& device);

/// From now on messages of the connection manager are lost over this device, without a word; data
/// is not.
void break_manager(const std::string& device);

/// What answers a connection to a port of a living address on which nobody listens. The kernel
/// says Rejected (status 8, invalid service id); Unreachable is what a filtered port would give.
enum class NoListener { Unreachable, Rejected };
void set_no_listener(NoListener answer);

// ---- What can be seen ----

/// Objects of the program that are alive. Contexts are those of ibv_open_device().
struct LiveObjects {
  int device_lists = 0, contexts = 0, protection_domains = 0, memory_regions = 0;
  int completion_channels = 0, completion_queues = 0, queue_pairs = 0;
  int event_channels = 0, ids = 0, unacknowledged_events = 0;
  int total() const;
  /// Such as "2 queue pairs, 1 id"; "nothing" if there is none.
  std::string text() const;
};
LiveObjects live();

/// What ibv_post_send was asked for and took, since reset().
struct PostedSends {
  int calls = 0;
  int requests = 0;
  int signalled = 0;
  int inlined = 0;
};
PostedSends posted_sends();

/// Every queue pair that is alive, its state in qp_state, in the order of their making.
std::vector<ibv_qp_attr> queue_pairs();

/// Messages that met no posted receive. A correct rail keeps it at 0.
int receiver_not_ready();
int completion_queue_overflows();
/// Queue pairs that still have something to do for the scheduler.
int busy_queue_pairs();
/// Lets the scheduler make at most this many steps; returns how many it made.
int advance(int steps);

/// What happens on a misuse; without one the process prints it and aborts. The handler runs inside
/// the call and calls nothing of this library.
void set_misuse_handler(std::function<void(const std::string&)> handler);

}  // namespace allrail::fake_verbs
