// The one exception type of Allrail, and its codes.
#pragma once

#include <stdexcept>
#include <string>

#if defined(__GNUC__)
#define ALLRAIL_API __attribute__((visibility("default")))
#else
#define ALLRAIL_API
#endif

namespace allrail {

/// What kind of failure it was. Programs act on the code; people read the text.
enum class Code {
  InvalidArgument,   ///< this rank's arguments are wrong; mostly nothing was sent
  Mismatch,          ///< ranks made different calls (operation, size, root, algorithm)
  BadConfiguration,  ///< a setting or the environment is wrong
  Bootstrap,         ///< the launcher (PMIx) could not start the job
  ResourceLimit,     ///< the system refused memory, files or registrations
  Network,           ///< no rail to a peer is left
  PeerLost,          ///< a process of the job died
  Timeout,           ///< a deadline that the caller gave, or one of start-up, has passed
  Aborted,           ///< the communicator died earlier; the text repeats the first cause
  Internal,          ///< a bug of Allrail
};

/// The name of `code` as it is spelled in logs and tests, such as "peer-lost".
ALLRAIL_API const char* code_name(Code code) noexcept;

/// Thrown by every call of Allrail that fails. `what()` is one sentence that says what happened,
/// where (rank, peer, rail) and what to change.
class ALLRAIL_API Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& text, int peer = -1)
      : std::runtime_error(text), code_(code), peer_(peer) {}
  Code code() const noexcept { return code_; }
  /// The rank at the other end, or -1 where no single peer is to blame.
  int peer() const noexcept { return peer_; }

 private:
  Code code_;
  int peer_;
};

}  // namespace allrail
