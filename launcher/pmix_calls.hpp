// Calls to PMIx with a clock of our own. PMIx enforces PMIX_TIMEOUT in the server at best, so a
// stopped or lost server would hang the caller for ever; here every call ends at its deadline.
// What is still running then is abandoned: it shares ownership of all that it may yet write to.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <pmix.h>

#include "lib/base/clock.hpp"

namespace allrail::launcher {

/// What a callback brought, copied out of PMIx's memory. Which field is set depends on the key.
struct Reply {
  pmix_status_t status = PMIX_ERR_NOT_FOUND;
  std::vector<std::byte> bytes;
  std::string text;
  std::optional<std::uint64_t> number;
};

/// Collects the replies to `count` requests that are under way together.
class Replies : public std::enable_shared_from_this<Replies> {
 public:
  static std::shared_ptr<Replies> create(std::size_t count);
  ~Replies();

  /// Both start one request, whose reply goes to `index`. A refusal by PMIx is that reply.
  void start_fence(std::size_t index, bool collect_data, int timeout_s);
  void start_get(std::size_t index, const pmix_proc_t& of, const char* key, int timeout_s);
  /// Only what the client has at hand: nobody is asked.
  void start_local_get(std::size_t index, const pmix_proc_t& of, const char* key);

  /// True when all replies are there, false when the deadline passed first.
  bool wait(base::Deadline deadline);
  /// After wait() only.
  const Reply& operator[](std::size_t index) const { return replies_[index]; }
  /// The first request without a reply; for messages after a wait() that returned false.
  std::size_t first_missing();

 private:
  struct Cookie;
  struct Request;
  explicit Replies(std::size_t count);
  void complete(std::size_t index, Reply reply);
  Request& add_request(std::size_t attribute_count);
  void start(std::size_t index, const pmix_proc_t& of, Request& request);
  static void on_fence(pmix_status_t status, void* cookie);
  static void on_get(pmix_status_t status, pmix_value_t* value, void* cookie);

  // PMIx keeps pointers to the key and the attributes of a request until its callback, and may
  // still look at them around it, so they live as long as this object.
  std::vector<std::unique_ptr<Request>> requests_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Reply> replies_;
  std::vector<bool> arrived_;
  std::size_t open_;
};

/// Runs a call that has no non-blocking form in a thread of its own. Empty when the deadline
/// passed first; the thread is then left alone, so `call` must own all that it touches. The thread
/// blocks all signals, and so do the threads that PMIx starts from it: handlers of the program
/// keep running where they did before.
std::optional<pmix_status_t> call_with_deadline(base::Deadline deadline,
                                                std::function<pmix_status_t()> call);

/// The first PMIX_FABRIC_SWITCH in a value of PMIX_SWITCH_PEERS, which is arrays in arrays; empty:
/// there is none.
std::string switch_in(const pmix_value_t& value);

/// "3.1.5" -> 3; empty when it does not begin with a number.
std::optional<int> major_version(const std::string& version);

}  // namespace allrail::launcher
