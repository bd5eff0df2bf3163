#include "lib/rails.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"
#include "lib/topology/topology.hpp"
#include "transport/rail.hpp"
#include "transport/tcp/interfaces.hpp"
#include "transport/verbs/gid_choice.hpp"
#include "transport/verbs/port_choice.hpp"
#include "transport/verbs/rail_end.hpp"

namespace allrail {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

std::vector<std::string> interfaces_but(const std::vector<std::string>& excluded) {
  std::vector<std::string> items;
  for (const transport::Interface& one : transport::list_interfaces()) {
    if (!one.is_loopback && std::ranges::find(excluded, one.name) == excluded.end()) {
      items.push_back(one.name);
    }
  }
  return items;
}

/// The interfaces or addresses that the setting means, where no verbs port is meant. That it does
/// not name some and exclude others was seen to when the ports were surveyed.
std::vector<std::string> tcp_items(const std::string& setting, bool one_host) {
  if (setting == "auto" || setting == "tcp") {
    if (one_host) return {kLoopback};
    auto items = interfaces_but({});
    if (items.size() > transport::kMaxRails) items.resize(transport::kMaxRails);
    if (items.empty()) items.emplace_back(kLoopback);
    return items;
  }
  std::vector<std::string> named;
  std::vector<std::string> excluded;
  for (const std::string& item : base::split(setting, ',')) {
    if (item.starts_with('^')) {
      excluded.push_back(item.substr(1));
    } else {
      named.push_back(item);
    }
  }
  auto items = named.empty() ? interfaces_but(excluded) : named;
  if (items.empty()) {
    base::fail(Code::BadConfiguration,
               "ALLRAIL_RAILS is '{}', which leaves no rail; allrail-info lists the interfaces of "
               "this host",
               setting);
  }
  if (items.size() > transport::kMaxRails) {
    base::fail(Code::BadConfiguration, "ALLRAIL_RAILS names {} rails; at most {} can be used",
               items.size(), transport::kMaxRails);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (std::ranges::find(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(i),
                          items[i]) != items.begin() + static_cast<std::ptrdiff_t>(i)) {
      base::fail(Code::BadConfiguration, "ALLRAIL_RAILS is '{}': '{}' stands there twice", setting,
                 items[i]);
    }
  }
  return items;
}

/// The items of the setting that name something else than a verbs port.
std::vector<std::string> other_items(const std::string& setting,
                                     const std::vector<transport::VerbsPort>& ports) {
  std::vector<std::string> others;
  for (const transport::Interface& one : transport::list_interfaces()) others.push_back(one.name);
  for (const std::string& item : base::split(setting, ',')) {
    const std::string name = item.starts_with('^') ? item.substr(1) : item;
    if (!transport::names_verbs_port(name, ports)) others.push_back(name);
  }
  return others;
}

struct Survey {
  std::vector<transport::VerbsPort> ports;
  transport::PortChoices choices;
};

Survey survey_ports(const Options& options) {
  Survey survey{transport::list_verbs_ports(), {}};
  const bool is_word =
      options.rails == "auto" || options.rails == "verbs" || options.rails == "tcp";
  const auto others =
      is_word ? std::vector<std::string>{} : other_items(options.rails, survey.ports);
  transport::PortWish wish;
  wish.setting = options.rails;
  wish.other_names = others;
  if (options.gid_index >= 0) wish.gid_index = options.gid_index;
  if (survey.ports.size() > 1) {
    using topology::Machine;
    wish.numa_node = Machine::discover(Machine::Detail::CoresOnly).own_numa_node();
  }
  survey.choices = transport::choose_ports(survey.ports, wish);
  return survey;
}

/// The interface that a TCP rail lives on; empty for the loopback.
std::string interface_of(const transport::RailPlace& place) {
  if (place.is_loopback || !place.device.empty()) return place.is_loopback ? "" : place.device;
  for (const transport::Interface& one : transport::list_interfaces()) {
    if (one.address.address_text() == place.address.address_text()) return one.name;
  }
  return "";
}

/// Addresses of this host that its TCP connections use, where the rails bring none.
std::vector<std::string> host_addresses(bool one_host) {
  std::vector<std::string> addresses;
  for (const transport::Interface& one : transport::list_interfaces()) {
    if (!one_host && !one.is_loopback) addresses.push_back(one.address.address_text());
  }
  if (addresses.empty()) addresses.emplace_back(kLoopback);
  if (addresses.size() > transport::kMaxRails) addresses.resize(transport::kMaxRails);
  return addresses;
}

RailChoices verbs_choices(const Survey& survey, const Options& options, bool one_host) {
  RailChoices choices;
  choices.verbs = true;
  for (const std::size_t at : survey.choices.taken) {
    const transport::VerbsPort& port = survey.ports[at];
    const transport::VerbsGid* gid =
        transport::find_gid(port, survey.choices.of_port[at].gid_index);
    RailChoice rail{port.name(), transport::rail_end(port, survey.choices.of_port[at].gid_index),
                    port.device, transport::ip_address(port, gid),
                    port.number, gid == nullptr ? 0 : gid->index};
    if (rail.address.empty() && options.connect == "cm") {
      base::fail(
          Code::BadConfiguration,
          "rail {} has no IP address, which ALLRAIL_CONNECT=cm needs; give its interface one, "
          "or leave the setting at auto",
          port.name());
    }
    if (options.connect == "direct") rail.address.clear();
    choices.control.push_back(rail.address);
    choices.rails.push_back(std::move(rail));
  }
  const bool all_have_one =
      std::ranges::none_of(choices.control, [](const auto& address) { return address.empty(); });
  if (!all_have_one) choices.control = host_addresses(one_host);
  if (options.connect != "cm") choices.side_addresses = host_addresses(one_host);
  return choices;
}

}  // namespace

RailChoices choose_rails(const Options& options, bool one_host) {
  const bool loopback = options.rails == "auto" && one_host;
  RailChoices choices;
  if (!loopback && options.rails != "tcp") {
    const Survey survey = survey_ports(options);
    if (!survey.choices.taken.empty()) {
      choices = verbs_choices(survey, options, one_host);
      const bool named =
          options.rails != "auto" && options.rails != "verbs" && !options.rails.starts_with('^');
      if (named && base::split(options.rails, ',').size() != choices.rails.size()) {
        base::fail(Code::BadConfiguration,
                   "ALLRAIL_RAILS is '{}', which mixes RDMA ports with interfaces; name one kind "
                   "only",
                   options.rails);
      }
      return choices;
    }
    if (options.rails == "auto") {
      choices.note = fmt::format(
          "this host has no RDMA port that can be a rail ({}): rails over TCP; ALLRAIL_RAILS=tcp "
          "says that this is meant",
          transport::ports_text(survey.ports));
    }
  }
  choices.control = tcp_items(options.rails, one_host);
  for (const std::string& item : choices.control) {
    RailChoice rail;
    rail.name = item;
    const transport::RailPlace place = transport::resolve_rail_item(item);
    rail.end = transport::rail_end(place);
    rail.device = interface_of(place);
    choices.rails.push_back(std::move(rail));
  }
  return choices;
}

std::vector<diagnostics::RailInfo> survey_rails(const Options& options) {
  std::vector<diagnostics::RailInfo> rails;
  const Survey survey = survey_ports(options);
  for (std::size_t i = 0; i < survey.ports.size(); ++i) {
    const transport::VerbsPort& port = survey.ports[i];
    const transport::PortChoice& choice = survey.choices.of_port[i];
    const transport::VerbsGid* gid = transport::find_gid(port, choice.gid_index);
    rails.push_back({port.name(), choice.reason,
                     gid == nullptr ? "" : transport::address_text(gid->bytes),
                     static_cast<int>(port.rate_mbit), choice.taken, true, port.hardware_text()});
  }
  const bool verbs = !survey.choices.taken.empty();
  const auto items = verbs ? std::vector<std::string>{} : tcp_items(options.rails, false);
  for (const transport::Interface& one : transport::list_interfaces()) {
    diagnostics::RailInfo info;
    info.name = one.name;
    info.address = one.address.address_text();
    info.speed_mbit = one.speed_mbit;
    info.in_use = std::ranges::find(items, one.name) != items.end();
    info.state = info.in_use ? "taken" : "not taken";
    if (!info.in_use && one.is_loopback) {
      info.state = "not taken: loopback, used where all ranks are on this host";
    } else if (!info.in_use && verbs) {
      info.state = "not taken: the rails are RDMA ports";
    } else if (!info.in_use) {
      info.state = "not taken: ALLRAIL_RAILS is '" + options.rails + "'";
    }
    rails.push_back(std::move(info));
  }
  for (const std::string& item : items) {
    const auto known = [&](const diagnostics::RailInfo& info) { return info.name == item; };
    if (std::ranges::any_of(rails, known)) continue;
    const transport::RailPlace place = transport::resolve_rail_item(item);
    rails.push_back(
        {place.name, "taken", place.address.address_text(), place.speed_mbit, true, false});
  }
  return rails;
}

}  // namespace allrail
