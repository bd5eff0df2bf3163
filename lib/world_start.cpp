// Start-up and end of a World: cards, nodes, control plane, engine. Its rails are made in
// world_rails.cpp, its node segment in world_segment.cpp; world_reading.cpp finds out whether ranks
// read each other's memory.
#include <algorithm>
#include <chrono>
#include <numeric>

#include <unistd.h>

#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "lib/base/parse.hpp"
#include "lib/base/random.hpp"
#include "lib/base/settings.hpp"
#include "lib/node_spec.hpp"
#include "lib/topology/topology.hpp"
#include "lib/world.hpp"

namespace allrail {
namespace {

void set_up_log(const std::string& words, int rank) {
  base::Level level = base::Level::Warning;
  for (const std::string& word : base::split(words, ',')) {
    if (word == "trace") level = base::Level::Trace;
    if (word == "debug") level = base::Level::Debug;
    if (word == "info") level = base::Level::Info;
    if (word == "warning") level = base::Level::Warning;
    if (word == "error") level = base::Level::Error;
    if (word == "off") level = base::Level::Off;
  }
  base::set_log(level, rank);
}

}  // namespace

std::uint64_t World::hash_text(const std::string& text) {
  std::uint64_t hash = 0;
  for (const char character : text) hash = coll::mix(hash, static_cast<unsigned char>(character));
  return hash;
}

World::World(const Options& options)
    : options_(base::check_settings(options)),
      job_(std::make_shared<Job>(launcher::Bootstrap::start(options.bootstrap_timeout))) {
  launcher::Bootstrap& bootstrap = job_->bootstrap;
  team_.rank = bootstrap.rank();
  ranks_ = bootstrap.size();
  job_hash_ = hash_text(bootstrap.job_name());
  set_up_log(options_.log, ranks_ > 1 ? team_.rank : -1);
  wanted_pairs_ = base::parse_pairs(options_.rail_pairs).value();
  leader_policy_ = topology::parse_leader_policy(options_.leader_policy).value();
  // Lives during the whole start: hwloc unloads its plugins with the last topology there is, and
  // would load them again for the next.
  const auto machine = topology::Machine::discover(topology::Machine::Detail::CoresOnly);
  Card mine;
  prepare_or_tell(mine, ranks_ > 1);
  find_place(machine);
  fill_in(mine);
  find_switch_or_tell(mine);
  const std::vector<Card> cards = take_cards(bootstrap.exchange(encode(mine)), mine);
  check_rail_pairs(cards, wanted_pairs_);
  identity_ = cards[0].random;
  std::vector<std::string> hosts;
  hosts.reserve(cards.size());
  for (const Card& card : cards) hosts.push_back(card.host);
  adopt_nodes(cards, schedule::NodeMap(node_of_ranks(hosts, options_.nodes)),
              options_.node_memory_bytes);
  adopt_switches(cards);
  make_segment(cards);
  start_fabric();
  find_outnumbered(machine, cards);
  find_home(machine, cards);
  start_engine(cards);
  join_job();
  try {
    {
      const EntryGuard guard(job_->gate);
      agree_on_reading(cards);
    }
    or_die(coll::Operation::StartUp, 0, [this] { start_helper(); });
  } catch (const Error& error) {
    // No destructor runs, and the control plane would say goodbye as if all were well.
    if (engine_->dead()) throw;
    engine_->die(error.code(), error.peer(), error.what());
  }
}

/// A rank that cannot start comes to the exchange all the same: the others say why, too.
void World::prepare_or_tell(Card& mine, bool needs_rails) {
  try {
    if (is_first_) read_tuning();
    if (needs_rails) make_rails();
  } catch (const Error& error) {
    cannot_start(mine, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    cannot_start(mine, Code::ResourceLimit, base::kNoMemory);
  }
}

void World::cannot_start(Card& mine, Code code, const char* text) {
  mine.failure = text;
  mine.failure_code = code;
  rails_made_.clear();
  rail_ends_.clear();
  rail_devices_.clear();
}

void World::read_tuning() {
  tuning_ = read_tuning_file(options_.tuning_file);
  if (tuning_.path.empty() || team_.rank != 0) return;
  base::log_info("{} rules{} choose algorithms, from {}", tuning_.rule_count(),
                 tuning_.model ? " and a cost model" : "", tuning_.path);
}

void World::find_place(const topology::Machine& cores) {
  using topology::Machine;
  cpuset_ = cores.cpuset();
  // Where all is equally near, the devices, which take longer to find, would tell nothing.
  if (cores.domains() == 1 || ranks_ == 1) return;
  const Machine machine = Machine::discover(Machine::Detail::WithDevices);
  place_ = machine.place_of(cpuset_, rail_devices_);
}

/// Only the first rank of a node reads the map, so that all nodes do and no two ranks of a node. A
/// map that is wrong is told to all, like a rank that has no rails.
void World::find_switch_or_tell(Card& mine) {
  if (options_.switch_map.empty()) {
    mine.switch_place.leaf = job_->bootstrap.leaf_switch();
    return;
  }
  const VirtualPlace place =
      virtual_place(job_->bootstrap.local_ranks(), job_->bootstrap.rank(), options_.nodes);
  if (!place.is_first) return;
  topology::HostNames names;
  names.host = host_name(host_identity());
  names.virtual_node = place.node;
  std::vector<std::string> rails;
  for (const transport::RailEnd& end : rail_ends_) rails.push_back(end.name);
  if (verbs_rails_) names.guids = guids_of(rails, "/sys/class/infiniband");
  try {
    mine.switch_place =
        find_switch_place(options_.switch_map, names, options_.bootstrap_timeout / 2);
  } catch (const Error& error) {
    if (!mine.failure.empty()) return;
    mine.failure = error.what();
    mine.failure_code = error.code();
  }
}

SwitchPlace World::switch_place() const {
  SwitchPlace place;
  const auto& switches = roster_.switches();
  if (switches == nullptr) return place;
  const auto leaf =
      static_cast<std::size_t>(switches->leaf_of[static_cast<std::size_t>(team_.node)]);
  place.leaf = switch_names_.leaves[leaf];
  if (!switches->chassis_of.empty()) {
    place.chassis = switch_names_.chassis[static_cast<std::size_t>(switches->chassis_of[leaf])];
  }
  return place;
}

void World::fill_in(Card& mine) {
  mine.library_version = ALLRAIL_VERSION;
  mine.settings = base::settings_that_must_agree(options_);
  // Of this setting the contents of the file must agree and not its name.
  mine.settings.emplace_back("ALLRAIL_TUNING_FILE", tuning_.fingerprint);
  mine.host = host_identity();
  mine.cpuset = cpuset_;
  mine.place = place_;
  mine.pid = ::getpid();
  mine.random = base::random_number();
  // What dead jobs hold is free.
  if (ranks_ > 1) shm::remove_leftovers();
  mine.shared_memory_bytes = free_shared_memory();
  if (verbs_rails_) {
    mine.lockable_bytes = is_first_ ? lockable_memory() : job_->take_lockable();
    if (is_first_) job_->lockable_bytes = lockable_for_splits(mine.lockable_bytes);
  }
  if (team_.rank == 0) {
    const auto secret = transport::JobSecret::random();
    mine.secret.assign(secret.bytes().begin(), secret.bytes().end());
  }
  mine.rail_ends = rail_ends_;
  for (const auto& rail : rails_made_) mine.rail_addresses.push_back(rail->address());
  if (control_listener_) mine.control_address = control_listener_->address();
}

std::vector<Card> World::take_cards(const std::vector<std::vector<std::byte>>& blobs,
                                    const Card& mine) {
  std::vector<Card> cards;
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    cards.push_back(decode(blobs[rank], static_cast<int>(rank), team_.rank, mine));
  }
  // A rank that cannot start says why; what it has not read does not differ.
  check_failures(cards, team_.rank);
  check_agreement(cards);
  job_rails_ = static_cast<int>(rail_ends_.size());
  for (const Card& card : cards) {
    job_rails_ = std::min(job_rails_, static_cast<int>(card.rail_ends.size()));
  }
  if (cards[0].secret.size() != transport::kSecretBytes) {
    base::fail(Code::Bootstrap, "rank 0 published no secret; start all ranks with the same build");
  }
  const transport::JobSecret secret(std::span(cards[0].secret).first<transport::kSecretBytes>());
  for (const auto& rail : rails_made_) rail->set_job_secret(secret);
  control_options_.secret = secret;
  return cards;
}

void World::adopt_nodes(const std::vector<Card>& cards, const schedule::NodeMap& map,
                        std::uint64_t node_memory_bytes) {
  roster_ = coll::Roster(map, team_.rank);
  team_.node = roster_.node();
  team_.local_rank = roster_.local_rank_of(team_.rank);
  team_.roster = &roster_;
  team_.local_puts_by_rail = options_.local_puts == "rail" && ranks_ > 1;

  memory_ = settle_memory(cards, roster_, node_memory_bytes, !is_first_);
  if (team_.rank == 0 && memory_.segment_is_cut) {
    base::log_warning("{}", segment_warning(memory_, node_memory_bytes));
  }
  const int largest = roster_.largest_node();
  const std::uint64_t directory_bytes = RailDirectory::bytes_for(cards);
  geometry_ = coll::divide_node_memory(memory_.node_bytes,
                                       coll::bytes_beside_slots(largest, directory_bytes));
  layouts_.resize(static_cast<std::size_t>(largest) + 1);
  for (int ranks = 1; ranks <= largest; ++ranks) {
    layouts_[static_cast<std::size_t>(ranks)] =
        coll::lay_out_segment(geometry_, ranks, directory_bytes);
  }
  team_.layouts = &layouts_;
  if (ranks_ == 1) return;  // its segment is its own memory
  std::vector<std::uint64_t> segment_bytes;
  for (const shm::SegmentLayout& layout : layouts_) segment_bytes.push_back(layout.total_bytes);
  check_shared_memory(cards, roster_, segment_bytes);
}

void World::adopt_switches(const std::vector<Card>& cards) {
  JobSwitches found = settle_switches(cards, roster_.node_of_ranks());
  if (!found.warning.empty() && team_.rank == 0) base::log_warning("{}", found.warning);
  roster_.hang_on(std::move(found.switches));
  switch_names_ = std::move(found.names);
}

void World::start_fabric() {
  const bool talks_over_rails = roster_.nodes() > 1 || team_.local_puts_by_rail;
  if (talks_over_rails) {
    transport::FabricOptions fabric;
    fabric.stripe_threshold_bytes = options_.stripe_threshold_bytes;
    fabric.connect_limit_ns = options_.bootstrap_timeout.count() * 1'000'000;
    fabric.host = host_name(host_identity());
    fabric.chunk_bytes = static_cast<std::uint32_t>(options_.chunk_bytes);
    fabric.may_hold = job_->gate.admits_helper();
    fabric_ = std::make_unique<transport::Fabric>(team_.rank, roster_.ranks(),
                                                  std::move(rails_made_), fabric);
    fabric_->set_primary_window(segment_.bytes());
    team_.fabric = fabric_.get();
  }
  rails_made_.clear();
}

/// Virtual nodes share the cores of their host, so all ranks of the host are counted.
void World::find_outnumbered(const topology::Machine& cores, const std::vector<Card>& cards) {
  std::vector<std::string> host_cpusets;
  for (const Card& card : cards) {
    if (card.host == cards[static_cast<std::size_t>(team_.rank)].host) {
      host_cpusets.push_back(card.cpuset);
    }
  }
  outnumbered_ = cores.outnumbered(host_cpusets);
}

/// Hosts that are containers of one machine share its cpus, which their ranks may outnumber.
void World::find_home(const topology::Machine& cores, const std::vector<Card>& cards) {
  std::vector<int> ranks(static_cast<std::size_t>(ranks_));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::stable_sort(ranks, {}, [this](int rank) { return team_.node_of(rank); });
  const std::string& host = cards[static_cast<std::size_t>(team_.rank)].host;
  const std::string boot = boot_of(host);
  std::vector<std::string> cpusets;
  std::size_t own = 0;
  for (const int rank : ranks) {
    const Card& card = cards[static_cast<std::size_t>(rank)];
    if (boot.empty() ? card.host != host : boot_of(card.host) != boot) continue;
    if (rank == team_.rank) own = cpusets.size();
    cpusets.push_back(card.cpuset);
  }
  team_.shares_cpus = cores.outnumbered(cpusets);
  if (options_.home_cpus == "off") return;
  team_.home_cpu = cores.home_cpu(cpusets, own);
  if (team_.home_cpu < 0) return;
  base::log_info(
      "shares cpus {} with other ranks of this job, which outnumber them; is at home on "
      "cpu {} (ALLRAIL_HOME_CPUS)",
      cpuset_, team_.home_cpu);
}

void World::watch_node(const std::vector<Card>& cards) {
  const std::span<const int> ranks = roster_.local_ranks();
  std::vector<pid_t> pids;
  for (const int rank : ranks) {
    pids.push_back(cards[static_cast<std::size_t>(rank)].pid);
  }
  watch_ = shm::PeerWatch(pids);
  watch_.forget(team_.local_rank);
  team_.watch = ranks.size() > 1 ? &watch_ : nullptr;
}

void World::start_engine(const std::vector<Card>& cards) {
  team_.events = this;
  team_.group = &job_->engines;
  team_.wait_policy = shm::WaitPolicy::choose(outnumbered_);
  if (!team_.wait_policy.has_own_core()) {
    base::log_info("ranks of this host outnumber the cores of cpus {}: waits yield and do not spin",
                   cpuset_);
  }
  model_choice_ = ModelChoice::of(tuning_, options_, roster_, rail_count());
  Job* const job = job_.get();  // outlives the gate, and the table does not call without that
  buffers_ = std::make_shared<BufferTable>(
      std::shared_ptr<EntryGate>(job_, &job_->gate), fabric_.get(),
      [job](const BufferTable::Entry& entry) {
        job->engines.hand_over();
        for (World* const one : job->worlds) one->let_go(entry.mine);
      },
      roster_.node_size(team_.node));
  team_.buffers = buffers_.get();
  engine_ = std::make_unique<coll::Engine>(team_, geometry_, identity_, memory_.user_bytes);
  if (control_listener_ && team_.local_rank == 0) start_control_plane(cards);
  control_listener_.reset();
}

void World::join_job() {
  job_->engines.join(*engine_);
  job_->worlds.push_back(this);
}

/// A job without rails has none: nobody but ranks of its node could wait for this one.
void World::start_helper() {
  if (fabric_) job_->start_helper();
}

void World::start_control_plane(const std::vector<Card>& cards) {
  control_options_.node = team_.node;
  control_options_.node_count = roster_.nodes();
  std::vector<transport::ControlPeer> peers;
  for (int node = 0; node < roster_.nodes(); ++node) {
    const int first = roster_.first_rank_of(node);
    peers.push_back({first, cards[static_cast<std::size_t>(first)].control_address});
  }
  std::vector<pid_t> pids;
  for (const int rank : roster_.local_ranks()) {
    pids.push_back(rank == team_.rank ? 0 : cards[static_cast<std::size_t>(rank)].pid);
  }
  for (auto& acceptor : control_listener_->acceptors) {
    acceptor->set_secret(control_options_.secret);
  }
  node_control_ = std::make_unique<NodeControl>(segment_);
  control_ = std::make_unique<transport::ControlPlane>(
      std::move(*control_listener_), control_options_, peers, pids, *node_control_);
}

transport::PeerRails World::rails_of(int peer) {
  const RankRails mine = directory_.rails_of(team_.rank);
  RankRails theirs = directory_.rails_of(peer);
  transport::PeerRails rails;
  rails.host = host_name(theirs.host);
  const bool lower = team_.rank < peer;
  rails.pairs = transport::pair_rails(
      {lower ? mine.ends : theirs.ends, lower ? theirs.ends : mine.ends}, wanted_pairs_);
  // Where a peer is near to none of them, or it is not known to which, all are alike.
  const unsigned near =
      directory_.places(roster_.ranks())[static_cast<std::size_t>(peer)].near_rails;
  for (std::size_t i = 0; i < theirs.ends.size(); ++i) {
    rails.rails.push_back(
        {theirs.ends[i].name, std::move(theirs.addresses[i]), near == 0 || (near >> i & 1U) != 0});
  }
  return rails;
}

void World::abort_set() {
  if (control_) control_->kick();
}

World::~World() {
  if (!engine_) return;  // its start failed on another rank
  // The helper stays outside. Inside already is who splits, where that failed late.
  const bool has_entered = job_->gate.enter();
  job_->engines.hand_over();
  drop_all_plans();
  engine_->drain(std::chrono::seconds(1));
  job_->engines.leave(*engine_);
  std::erase(job_->worlds, this);
  segment_.line(team_.local_rank).state.store(shm::RankState::Goodbye, std::memory_order_release);
  shm::notify(segment_);
  print_summary();
  control_.reset();
  // Who has ended all its calls says so even if another rank of the node, such as one that calls
  // once more, ended the job meanwhile: the control plane may have left before it could tell. Peers
  // may owe acknowledgements, as one that is stopped does: what they were sent goes before this.
  if (fabric_ && !engine_->dead()) fabric_->say_goodbye();
  if (fabric_) fabric_->shut_down();
  if (buffers_) buffers_->close();
  if (has_entered) job_->gate.leave();
}

}  // namespace allrail
