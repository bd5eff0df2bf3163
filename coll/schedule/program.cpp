#include "coll/schedule/program.hpp"

namespace allrail::schedule {
namespace {

class Compiler {
 public:
  Compiler(const Model& model, const NodePhase& phase, bool joins_pieces)
      : model_(model), phase_(phase), joins_pieces_(joins_pieces) {}

  Program run(const Schedule& schedule) {
    for (const Step& step : schedule.steps) {
      add(step, schedule.lane);
      before_ = &step;
    }
    work_s_ += phase_.flags_at_end * model_.flag_s;
    append(Act::End, -1, 0);
    return std::move(program_);
  }

 private:
  void copy(const Step& step) {
    double share = 1;
    double ranks = 1;
    if (step.from == Memory::Send && step.to == Memory::Slot) {
      share = phase_.give_share;
      ranks = phase_.give_ranks;
    } else if (step.from == Memory::Send) {
      share = phase_.keep_share;
      ranks = phase_.keep_ranks;
    } else if (step.to == Memory::Receive) {
      share = phase_.take_share;
      ranks = phase_.take_ranks;
    }
    work(static_cast<double>(step.bytes) * share, ranks);
  }

  void work(double bytes, double ranks) {
    work_s_ += bytes * model_.copy_s_per_byte;
    copied_bytes_ += bytes * ranks;
  }

  /// Whether a step is the next piece of the transfer that the step before it began.
  bool goes_on(const Step& step) const {
    return before_ != nullptr && before_->kind == step.kind && before_->peer == step.peer &&
           before_->round == step.round && before_->port == step.port;
  }

  void add(const Step& step, int lane) {
    switch (step.kind) {
      case StepKind::Copy:
      case StepKind::Pack:
      case StepKind::Unpack:
        copy(step);
        break;
      case StepKind::Read:
      case StepKind::Stamp:
        work(static_cast<double>(step.bytes), 1);
        break;
      case StepKind::Put:
        put(step, lane);
        break;
      case StepKind::Await:
        await(step);
        break;
      case StepKind::Publish:
      case StepKind::Offer:
        append(Act::Raise, -1, step.stage);
        break;
      case StepKind::AwaitLocal:
        append(Act::AwaitFlag, step.peer, step.stage);
        near_ = static_cast<std::int16_t>(step.peer);
        work_s_ += model_.flag_s;
        break;
      case StepKind::Once:
        break;  // of a single node, which is not modelled
      case StepKind::AwaitSent:
        append(Act::AwaitSent, -1, 0);
        break;
    }
  }

  void put(const Step& step, int lane) {
    if (joins_pieces_ && goes_on(step)) {
      program_.back().amount += step.bytes;
      return;
    }
    if (!has_put_) work_s_ += phase_.flags_before_puts * model_.flag_s;
    has_put_ = true;
    work_s_ += model_.post_s;
    const bool own_ports = model_.rail_owner == RailOwner::Rank;
    append(own_ports && goes_on(step) ? Act::PutRest : Act::Put, step.peer, step.bytes);
    const int turn = own_ports ? step.port : lane + step.round + step.port;
    program_.back().rail = static_cast<std::uint8_t>(turn % model_.rails());
    near_ = -1;
  }

  void await(const Step& step) {
    if (joins_pieces_ && goes_on(step)) {
      program_.back().amount += step.bytes;
      return;
    }
    append(Act::Await, step.peer, step.bytes);
    near_ = -1;
    work_s_ += model_.arrival_s;
  }

  void append(Act act, std::int32_t peer, std::uint64_t amount) {
    program_.push_back({work_s_, copied_bytes_, amount, peer, near_, 0, act});
    work_s_ = copied_bytes_ = 0;
  }

  const Model& model_;
  const NodePhase& phase_;
  const bool joins_pieces_;
  const Step* before_ = nullptr;
  bool has_put_ = false;
  double work_s_ = 0;  // since the last action
  double copied_bytes_ = 0;
  std::int16_t near_ = -1;
  Program program_;
};

}  // namespace

Program compile(const Schedule& schedule, const Model& model, const NodePhase& phase,
                bool joins_pieces) {
  return Compiler(model, phase, joins_pieces).run(schedule);
}

}  // namespace allrail::schedule
