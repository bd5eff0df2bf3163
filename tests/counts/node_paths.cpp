// Ranks of one node as communicators of one process. The others start plans, which raise their
// flags at once; rank 0 then makes the call that blocks.
#include <algorithm>
#include <functional>
#include <optional>
#include <span>

#include <allrail/allrail.hpp>

#include "tests/counts/in_process_bootstrap.hpp"
#include "tests/counts/paths.hpp"

namespace allrail::counts {
namespace {

/// The communicators of all ranks of a job; used by one thread once they are made.
class NodeJob {
 public:
  explicit NodeJob(int ranks) : communicators_(static_cast<std::size_t>(ranks)) {
    Options options;
    options.rails = "127.0.0.1";
    run_as_ranks(ranks, [this, &options](int rank) {
      communicators_[static_cast<std::size_t>(rank)].emplace(Communicator::world(options));
    });
  }
  int size() const { return static_cast<int>(communicators_.size()); }
  /// Something collective.
  void as_ranks(const std::function<void(int rank)>& work) { run_as_ranks(size(), work); }
  Communicator& of(int rank) { return *communicators_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::optional<Communicator>> communicators_;
};

struct Rank {
  std::vector<std::byte> send_vector, receive_vector;
  Buffer<std::byte> send_buffer, receive_buffer;
  std::span<std::byte> send, receive;  // either the ones or the others
  std::optional<Plan> plan;
  std::vector<std::byte> other_send, other_receive;  // of the call before, of another size
  std::optional<Plan> other_plan;
};

/// InTurn: each call follows one of another size, so that it is looked up among the calls known.
enum class Form { Allgather, InTurn, IntoBuffers, Plan };

std::string name_of(Form form) {
  switch (form) {
    case Form::Allgather:
      return "allgather";
    case Form::InTurn:
      return "allgather behind another";
    case Form::IntoBuffers:
      return "allgather between Buffers";
    case Form::Plan:
      return "plan";
  }
  return "";
}

class NodePath final : public Path {
 public:
  NodePath(std::shared_ptr<NodeJob> job, std::size_t bytes, Form form)
      : job_(std::move(job)),
        bytes_(bytes),
        form_(form),
        ranks_(static_cast<std::size_t>(job_->size())) {
    if (form_ == Form::IntoBuffers) {
      job_->as_ranks([this](int rank) { allocate(job_->of(rank), at(rank)); });
    }
    for (int rank = 0; rank < job_->size(); ++rank) {
      Rank& one = at(rank);
      if (form_ != Form::IntoBuffers) {
        one.send_vector.resize(bytes_);
        one.receive_vector.resize(bytes_ * ranks_.size());
        one.send = one.send_vector;
        one.receive = one.receive_vector;
      }
      if (rank > 0 || form_ == Form::Plan) {
        one.plan.emplace(job_->of(rank).plan_allgather(one.send, one.receive));
      }
      if (form_ == Form::InTurn) make_other(job_->of(rank), one, rank);
    }
  }

  std::string name() const override {
    const std::string ranks = ranks_.size() == 1 ? " rank" : " ranks";
    return name_of(form_) + ", " + std::to_string(ranks_.size()) + ranks + " of a node, " +
           std::to_string(bytes_) + " B";
  }

  void enter() override {
    if (form_ == Form::InTurn) call_other();
    ++turn_;
    for (int rank = 0; rank < job_->size(); ++rank) {
      std::ranges::fill(at(rank).send, content(rank, turn_));
      std::ranges::fill(at(rank).receive, std::byte{0});
      if (rank > 0) at(rank).plan->start();
    }
  }

  void call() override {
    Rank& mine = ranks_[0];
    if (form_ == Form::Plan) {
      mine.plan->start();
      mine.plan->wait();
    } else {
      job_->of(0).allgather(mine.send, mine.receive);
    }
  }

  bool leave() override {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) ranks_[rank].plan->wait();
    return std::ranges::all_of(ranks_, [this](const Rank& one) { return is_right(one); });
  }

 private:
  void allocate(Communicator& communicator, Rank& one) const {
    one.send_buffer = communicator.allocate<std::byte>(bytes_);
    one.receive_buffer = communicator.allocate<std::byte>(bytes_ * ranks_.size());
    one.send = one.send_buffer;
    one.receive = one.receive_buffer;
  }
  void make_other(Communicator& communicator, Rank& one, int rank) const {
    one.other_send.resize(bytes_ + 1);
    one.other_receive.resize((bytes_ + 1) * ranks_.size());
    if (rank == 0) return;
    one.other_plan.emplace(communicator.plan_allgather(one.other_send, one.other_receive));
  }
  void call_other() {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) ranks_[rank].other_plan->start();
    job_->of(0).allgather(ranks_[0].other_send, ranks_[0].other_receive);
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) ranks_[rank].other_plan->wait();
  }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  bool is_right(const Rank& one) const {
    for (std::size_t i = 0; i < one.receive.size(); ++i) {
      if (one.receive[i] != content(static_cast<int>(i / bytes_), turn_)) return false;
    }
    return true;
  }

  std::shared_ptr<NodeJob> job_;
  std::size_t bytes_;
  Form form_;
  int turn_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace

void add_node_paths(Paths& paths) {
  // What a call takes beyond the exchange: with nobody there is nothing to exchange.
  const auto alone = std::make_shared<NodeJob>(1);
  paths.push_back(std::make_unique<NodePath>(alone, 8, Form::Allgather));
  for (const int ranks : {2, 4}) {
    const auto job = std::make_shared<NodeJob>(ranks);
    for (const std::size_t bytes : {8, 64, 1024}) {
      paths.push_back(std::make_unique<NodePath>(job, bytes, Form::Allgather));
    }
    paths.push_back(std::make_unique<NodePath>(job, 64, Form::InTurn));
    paths.push_back(std::make_unique<NodePath>(job, 64, Form::IntoBuffers));
    paths.push_back(std::make_unique<NodePath>(job, 64, Form::Plan));
  }
}

}  // namespace allrail::counts
