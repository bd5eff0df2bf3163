#include <allrail/plan.hpp>

#include "lib/base/error.hpp"
#include "lib/user_plan.hpp"
#include "lib/world.hpp"

namespace allrail {

Plan::Plan(std::shared_ptr<UserPlan> plan) : plan_(std::move(plan)) {}
Plan::Plan(Plan&&) noexcept = default;

Plan& Plan::operator=(Plan&& other) noexcept {
  Plan old(std::move(other));
  plan_.swap(old.plan_);
  return *this;
}

Plan::~Plan() {
  if (plan_ && plan_->world != nullptr) plan_->world->drop(*plan_);
}

UserPlan& Plan::bound() const {
  if (!plan_) base::fail(Code::InvalidArgument, "this plan was moved from");
  if (plan_->world == nullptr) {
    base::fail(Code::InvalidArgument, "the communicator of this plan was destroyed before it");
  }
  return *plan_;
}

void Plan::start() {
  UserPlan& plan = bound();
  plan.world->start(plan);
}

bool Plan::test() {
  UserPlan& plan = bound();
  return plan.world->test(plan);
}

void Plan::wait() {
  UserPlan& plan = bound();
  plan.world->wait(plan);
}

}  // namespace allrail
