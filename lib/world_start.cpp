// Start-up and end of a World: cards, nodes, segment, rails, control plane, engine.

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include <unistd.h>

#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "lib/base/parse.hpp"
#include "lib/base/settings.hpp"
#include "lib/node_spec.hpp"
#include "lib/topology/topology.hpp"
#include "lib/world.hpp"
#include "transport/tcp/tcp_rail.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail {
namespace {

void set_up_log(const std::string& words, int rank) {
  base::Level level = base::Level::Warning;
  for (const std::string& word : base::split(words, ',')) {
    if (word == "trace") level = base::Level::Trace;
    if (word == "debug") level = base::Level::Debug;
    if (word == "info") level = base::Level::Info;
    if (word == "error") level = base::Level::Error;
    if (word == "off") level = base::Level::Off;
  }
  base::set_log(level, rank);
}

std::uint64_t random_number() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

std::uint64_t hash_text(const std::string& text) {
  std::uint64_t hash = 0;
  for (const char character : text) hash = coll::mix(hash, static_cast<unsigned char>(character));
  return hash;
}

}  // namespace

World::World(const Options& options)
    : options_(options), bootstrap_(launcher::Bootstrap::start(options.bootstrap_timeout)) {
  set_up_log(options_.log, bootstrap_.size() > 1 ? bootstrap_.rank() : -1);
  const auto pairs = base::parse_pairs(options_.rail_pairs);
  if (!pairs) {
    base::fail(Code::BadConfiguration,
               "ALLRAIL_RAIL_PAIRS is '{}', which is not allowed; use pairs such as "
               "eth0=eth1,eth1=eth0, each once",
               options_.rail_pairs);
  }
  wanted_pairs_ = *pairs;
  if (bootstrap_.size() > 1) make_rails();
  const std::vector<Card> cards = exchange_cards();
  adopt_nodes(cards);
  make_segment(cards);
  start_fabric();
  start_engine(cards);
}

std::unique_ptr<transport::Rail> World::make_tcp_rail(const RailChoice& choice, int index) {
  transport::TcpRailOptions rail;
  rail.index = index;
  rail.item = choice.name;
  rail.rank = bootstrap_.rank();
  rail.size = bootstrap_.size();
  rail.job_hash = hash_text(bootstrap_.job_name());
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
  rail.rank = bootstrap_.rank();
  rail.size = bootstrap_.size();
  rail.job_hash = hash_text(bootstrap_.job_name());
  rail.has_siblings = choices.rails.size() > 1;
  return transport::make_verbs_rail(rail);
}

void World::make_rails() {
  const bool one_host = static_cast<int>(bootstrap_.local_ranks().size()) == bootstrap_.size();
  const RailChoices choices = choose_rails(options_, one_host);
  if (!choices.note.empty() && bootstrap_.rank() == 0) base::log_warning("{}", choices.note);
  verbs_rails_ = choices.verbs;
  for (const RailChoice& choice : choices.rails) {
    rail_ends_.push_back(choice.end);
    const int index = static_cast<int>(rails_made_.size());
    rails_made_.push_back(choices.verbs ? make_verbs_rail(choice, index, choices)
                                        : make_tcp_rail(choice, index));
  }
  control_options_.rank = bootstrap_.rank();
  control_options_.size = bootstrap_.size();
  control_options_.job_hash = hash_text(bootstrap_.job_name());
  control_options_.items = choices.control;
  control_listener_ = std::make_unique<transport::ControlListener>(control_options_);
}

std::vector<Card> World::exchange_cards() {
  Card mine;
  mine.library_version = ALLRAIL_VERSION;
  mine.settings = base::settings_that_must_agree(options_);
  mine.host = host_identity();
  mine.cpuset = topology::Machine::discover(topology::Machine::Detail::CoresOnly).cpuset();
  mine.pid = ::getpid();
  mine.random = random_number();
  mine.shared_memory_bytes = free_shared_memory();
  if (verbs_rails_) mine.lockable_bytes = lockable_memory();
  if (bootstrap_.rank() == 0) {
    const auto secret = transport::JobSecret::random();
    mine.secret.assign(secret.bytes().begin(), secret.bytes().end());
  }
  mine.rail_ends = rail_ends_;
  for (const auto& rail : rails_made_) mine.rail_addresses.push_back(rail->address());
  if (control_listener_) mine.control_address = control_listener_->address();
  const auto blobs = bootstrap_.exchange(encode(mine));
  std::vector<Card> cards;
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    cards.push_back(decode(blobs[rank], static_cast<int>(rank)));
  }
  check_agreement(cards);
  check_rail_pairs(cards, wanted_pairs_);
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

void World::adopt_nodes(const std::vector<Card>& cards) {
  std::vector<std::string> hosts;
  hosts.reserve(cards.size());
  for (const Card& card : cards) hosts.push_back(card.host);
  roster_ =
      coll::Roster(schedule::NodeMap(node_of_ranks(hosts, options_.nodes)), bootstrap_.rank());
  team_.rank = bootstrap_.rank();
  team_.node = roster_.node();
  team_.local_rank = roster_.local_rank_of(team_.rank);
  team_.roster = &roster_;
  team_.local_puts_by_rail = options_.local_puts == "rail" && bootstrap_.size() > 1;

  memory_ = settle_memory(cards, roster_, options_.node_memory_bytes);
  if (team_.rank == 0 && memory_.segment_is_cut) {
    base::log_warning("{}", segment_warning(memory_, options_.node_memory_bytes));
  }
  geometry_ = coll::divide_node_memory(memory_.node_bytes);
  const int largest = roster_.largest_node();
  const std::uint64_t directory_bytes = RailDirectory::bytes_for(cards);
  layouts_.resize(static_cast<std::size_t>(largest) + 1);
  for (int ranks = 1; ranks <= largest; ++ranks) {
    shm::SegmentLayout layout;
    layout.ranks = ranks;
    layout.small_slots = geometry_.small_slots;
    layout.small_slot_bytes = geometry_.small_slot_bytes;
    layout.large_slots = geometry_.large_slots;
    layout.large_slot_bytes = geometry_.large_slot_bytes;
    layout.directory_bytes = directory_bytes;
    layouts_[static_cast<std::size_t>(ranks)] = shm::lay_out(layout);
  }
  team_.layouts = &layouts_;
}

void World::make_segment(const std::vector<Card>& cards) {
  const std::span<const int> ranks = roster_.local_ranks();
  const auto& layout = layouts_[ranks.size()];
  if (roster_.ranks() == 1) {
    segment_ = std::move(shm::NodeSegment::in_memory(layout).front());
    RailDirectory::write(cards, segment_.directory());
  } else {
    const auto name = shm::NodeSegment::make_name(cards[static_cast<std::size_t>(ranks[0])].random);
    // Whoever fails here must still come to the fence, or the others would wait there for long.
    std::string failure;
    if (team_.local_rank == 0) {
      try {
        segment_ = shm::NodeSegment::create(name, layout);
        RailDirectory::write(cards, segment_.directory());
      } catch (const Error& error) {
        failure = error.what();
      }
    }
    bootstrap_.fence();
    if (!failure.empty()) throw Error(Code::ResourceLimit, failure);
    if (team_.local_rank != 0) {
      try {
        segment_ = shm::NodeSegment::attach(name, layout);
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("{}; rank {} makes it, see its output first",
                                              error.what(), ranks[0]));
      }
    }
    await_attached();
  }
  shm::RankLine& line = segment_.line(team_.local_rank);
  line.rank.store(team_.rank, std::memory_order_relaxed);
  line.pid.store(::getpid(), std::memory_order_relaxed);
  line.state.store(shm::RankState::Active, std::memory_order_release);
  shm::enable_sleep(segment_);
  team_.segment = &segment_;
  directory_ = RailDirectory(segment_.directory());
}

void World::await_attached() {
  if (team_.local_rank != 0) return;
  const auto deadline = base::Deadline::after(options_.bootstrap_timeout);
  while (segment_.attached_count() < segment_.ranks()) {
    if (deadline.passed()) {
      base::fail(Code::Timeout,
                 "only {} of {} ranks of node {} attached to its memory within {} ms; see the "
                 "output of the others",
                 segment_.attached_count(), segment_.ranks(), team_.node,
                 options_.bootstrap_timeout.count());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  segment_.unlink();
}

void World::start_fabric() {
  const bool talks_over_rails = roster_.nodes() > 1 || team_.local_puts_by_rail;
  if (talks_over_rails) {
    transport::FabricOptions fabric;
    fabric.stripe_threshold_bytes = options_.stripe_threshold_bytes;
    fabric.connect_limit_ns = options_.bootstrap_timeout.count() * 1'000'000;
    fabric.host = host_name(host_identity());
    fabric.chunk_bytes = static_cast<std::uint32_t>(options_.chunk_bytes);
    fabric_ = std::make_unique<transport::Fabric>(team_.rank, roster_.ranks(),
                                                  std::move(rails_made_), fabric);
    fabric_->set_primary_window(segment_.bytes());
    team_.fabric = fabric_.get();
  }
  rails_made_.clear();
}

void World::start_engine(const std::vector<Card>& cards) {
  const std::span<const int> ranks = roster_.local_ranks();
  std::vector<pid_t> pids;
  for (const int rank : ranks) {
    pids.push_back(cards[static_cast<std::size_t>(rank)].pid);
  }
  watch_ = shm::PeerWatch(pids);
  watch_.forget(team_.local_rank);
  team_.watch = ranks.size() > 1 ? &watch_ : nullptr;
  team_.events = this;
  // Virtual nodes share the cores of their host, so all ranks of the host are counted.
  std::vector<std::string> host_cpusets;
  for (const Card& card : cards) {
    if (card.host == cards[static_cast<std::size_t>(team_.rank)].host) {
      host_cpusets.push_back(card.cpuset);
    }
  }
  const auto machine = topology::Machine::discover(topology::Machine::Detail::CoresOnly);
  team_.wait_policy = shm::WaitPolicy::choose(machine.outnumbered(host_cpusets));
  buffers_ = std::make_shared<BufferTable>(
      gate_, fabric_.get(), [this](const BufferTable::Entry& entry) { let_go(entry); });
  engine_ = std::make_unique<coll::Engine>(team_, geometry_, cards[0].random, memory_.user_bytes);
  if (roster_.ranks() > 1 && team_.local_rank == 0) start_control_plane(cards);
  control_listener_.reset();
  if (fabric_) {
    helper_.start(gate_, [this] { engine_->idle_progress(); });
  }
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
  for (std::size_t i = 0; i < theirs.ends.size(); ++i) {
    rails.rails.push_back({theirs.ends[i].name, std::move(theirs.addresses[i])});
  }
  return rails;
}

void World::abort_set() {
  if (control_) control_->kick();
}

World::~World() {
  helper_.stop();
  if (engine_) drop_all_plans();
  if (engine_) engine_->drain(std::chrono::seconds(1));
  if (segment_.ranks() > 0) {
    segment_.line(team_.local_rank).state.store(shm::RankState::Goodbye, std::memory_order_release);
    shm::notify(segment_);
  }
  print_summary();
  control_.reset();
  // Who has ended all its calls in peace says so even if another rank of the node, such as one that
  // calls once more, ended the job meanwhile: the control plane may have left before it could tell.
  const bool in_peace = !segment_.aborted() || (engine_ && !engine_->dead() && fabric_ &&
                                                fabric_->oldest_open_call() == UINT64_MAX);
  if (fabric_ && in_peace) fabric_->say_goodbye();
  if (fabric_) fabric_->shut_down();
  if (buffers_) buffers_->close();
}

}  // namespace allrail
