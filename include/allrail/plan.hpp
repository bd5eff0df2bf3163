// A collective call that is prepared once, started as often as one likes, and does not block.
#pragma once

#include <memory>

#include <allrail/error.hpp>

namespace allrail {

struct UserPlan;

/// A collective call bound to its buffers, made by Communicator::plan_allgather() and its like.
/// Move-only. The buffers are borrowed for the life of the plan. Between start() and its end the
/// receive buffer belongs to Allrail, and the send buffer may only be read; before and after, both
/// are the program's, and each start sends what the send buffer holds then.
///
/// Each start is one call of the communicator: every rank starts its plans in the same order among
/// its other calls. A plan goes on in test() and wait() of any plan, in every call that blocks, and
/// now and then in a helper thread (see docs/threading.md); otherwise the processor is the
/// program's. Several plans may run at once, if no buffer that one of them writes belongs to
/// another: they are under way together as far as the memory of the node allows, and end in the
/// order of their starts. A call that blocks waits for the plans that were started before it.
///
/// Where a call of this size goes straight between user buffers, the first start registers them
/// with the rails, and they stay registered until the plan is destroyed: they may not be freed or
/// unmapped before. (Where locked memory is limited, a plan that does not run may be registered
/// anew at its next start.) What lies in a Buffer is registered already. A Buffer must outlive its
/// plans; see there what happens if it does not.
class ALLRAIL_API Plan {
 public:
  Plan(Plan&&) noexcept;
  /// The plan that was here is destroyed.
  Plan& operator=(Plan&&) noexcept;
  /// Local. A plan that runs is given a second to end; then the communicator dies on all ranks with
  /// Error{Aborted}, so that nobody writes into its buffers afterwards. Never throws.
  ~Plan();

  /// Starts the call; never waits for another rank. The timeout of its CallOptions counts from
  /// here. Collective.
  /// @throws Error{InvalidArgument} if it runs, which ends the communicator as any wrong call does,
  /// or if a Buffer of it was destroyed, which does the same; if it was moved from or its
  /// communicator was destroyed; Error{Aborted} and what Communicator::allgather() throws.
  void start();
  /// Makes progress without waiting, and says whether the call has ended. True until the next
  /// start. A program that only tests should test often. Local.
  /// @throws Error{InvalidArgument} if it was never started or moved from, or its communicator was
  /// destroyed: nothing else happens then; what Communicator::allgather() throws, with the
  /// communicator dead.
  bool test();
  /// Returns when the call has ended; at once if it has already. Throws as test() does.
  void wait();

 private:
  friend class Communicator;
  explicit Plan(std::shared_ptr<UserPlan> plan);
  UserPlan& bound() const;
  std::shared_ptr<UserPlan> plan_;
};

}  // namespace allrail
