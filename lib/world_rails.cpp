// The rails of a World, and the listeners of its control plane: before anything is exchanged.
#include "lib/base/log.hpp"
#include "lib/world.hpp"
#include "transport/tcp/tcp_rail.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail {

std::unique_ptr<transport::Rail> World::make_tcp_rail(const RailChoice& choice, int index,
                                                      const RailChoices& choices) {
  transport::TcpRailOptions rail;
  rail.index = index;
  rail.item = choice.name;
  rail.rank = team_.rank;
  rail.size = ranks_;
  rail.rail_count = static_cast<int>(choices.rails.size());
  rail.job_hash = job_hash_;
  return transport::make_tcp_rail(rail);
}

std::unique_ptr<transport::Rail> World::make_verbs_rail(const RailChoice& choice, int index,
                                                        const RailChoices& choices) {
  transport::VerbsRailOptions rail;
  rail.index = index;
  rail.name = choice.name;
  rail.address = choice.address;
  rail.side_addresses = choices.side_addresses;
  rail.device = choice.device;
  rail.port = choice.port;
  rail.gid_index = choice.gid_index;
  rail.rank = team_.rank;
  rail.size = ranks_;
  rail.job_hash = job_hash_;
  rail.has_siblings = choices.rails.size() > 1;
  return transport::make_verbs_rail(rail);
}

void World::make_rails() {
  if (is_first_) {
    job_->is_one_host = static_cast<int>(job_->bootstrap.local_ranks().size()) == ranks_;
  }
  const RailChoices choices = choose_rails(options_, job_->is_one_host);
  if (!choices.note.empty() && is_first_ && team_.rank == 0) base::log_warning("{}", choices.note);
  verbs_rails_ = choices.verbs;
  for (const RailChoice& choice : choices.rails) {
    rail_ends_.push_back(choice.end);
    rail_devices_.push_back(choice.device);
    const int index = static_cast<int>(rails_made_.size());
    rails_made_.push_back(choices.verbs ? make_verbs_rail(choice, index, choices)
                                        : make_tcp_rail(choice, index, choices));
  }
  make_control_listener(choices);
}

void World::make_control_listener(const RailChoices& choices) {
  control_options_.rank = team_.rank;
  control_options_.size = ranks_;
  control_options_.job_hash = job_hash_;
  control_options_.items = choices.control;
  control_listener_ = std::make_unique<transport::ControlListener>(control_options_);
}

}  // namespace allrail
