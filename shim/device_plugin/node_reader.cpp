#include "shim/device_plugin/node_reader.hpp"

#include <algorithm>
#include <utility>

#include "fabric/remedy.hpp"
#include "fabric/text.hpp"
#include "hook/config/read_config.hpp"

namespace shim {
namespace {

using fabric::Error;

bool has_children(const hook::Config& config) {
  return std::any_of(config.pools.begin(), config.pools.end(),
                     [](const hook::Pool& pool) { return pool.resource && pool.network; });
}

bool may_be_exclusive(const hook::Config& config) {
  return std::any_of(config.pools.begin(), config.pools.end(), [](const hook::Pool& pool) {
    return pool.resource && std::find(pool.modes.begin(), pool.modes.end(), hook::Mode::kExclusive) != pool.modes.end();
  });
}

std::map<std::string, std::string> problems_of(const std::vector<Resource>& resources) {
  std::map<std::string, std::string> problems;
  for (const Resource& resource : resources) {
    for (const CountedDevice& device : resource.devices)
      problems.emplace(resource.name + " " + device.id, device.problem);
  }
  return problems;
}

// What it is, whatever else was read: which HCAs there are.
const fabric::Unread* unread_hcas(const fabric::Inventory& inventory) {
  const auto found = std::find_if(inventory.unread.begin(), inventory.unread.end(), [](const fabric::Unread& unread) {
    return unread.part == fabric::Unread::Part::kHcas;
  });
  return found == inventory.unread.end() ? nullptr : &*found;
}

}  // namespace

void NodeReader::say_once(const std::string& about, const std::string& what) {
  if (std::exchange(said_[about], what) != what && !what.empty()) log_.warning(what);
}

void NodeReader::read_config() {
  auto texts = hook::read_config_texts(node_.config);
  if (texts && config_ && *texts == texts_) return say_once("config", "");
  const auto config = texts ? hook::valid_config(*texts) : fabric::Result<hook::Config>(texts.error());
  if (!config) {
    const std::string hint = fabric::remedy_of(config.error());
    return say_once("config", config.error().message + (hint.empty() ? "" : "; " + hint) +
                                  (config_ ? "; the configuration before it stays" : ""));
  }
  say_once("config", "");
  texts_ = std::move(*texts);
  config_ = *config;
  const bool counts = std::any_of(config_->pools.begin(), config_->pools.end(),
                                  [](const hook::Pool& pool) { return pool.resource.has_value(); });
  if (!counts) log_.warning("no pool of config.json has a \"resource\": nothing to announce");
}

fabric::HcaFacts NodeReader::facts() const {
  const bool children = has_children(*config_);
  return {.driver = true,
          .link_layer = true,
          .place = true,
          .rate = true,
          .gids = children,
          .vfs = may_be_exclusive(*config_),
          .pfs = true};
}

// One line for each HCA would be enough, but who reads the kubelet's numbers knows IDs.
void NodeReader::say_changes(const std::vector<Resource>& now) const {
  const auto before = problems_of(resources_);
  for (const auto& [device, problem] : problems_of(now)) {
    const auto old = before.find(device);
    const bool was_healthy = old == before.end() || old->second.empty();
    if (!problem.empty() && (old == before.end() || old->second != problem)) {
      log_.warning(fmt::format("{} is not healthy: {}", device, fabric::printable(problem)));
    } else if (problem.empty() && !was_healthy) {
      log_.info(fmt::format("{} is healthy again", device));
    }
  }
  for (const Resource& resource : now) {
    const auto same = std::find_if(resources_.begin(), resources_.end(),
                                   [&](const Resource& old) { return old.name == resource.name; });
    if (same == resources_.end() || same->devices.size() != resource.devices.size())
      log_.info(fmt::format("{}: {} devices of {} HCAs", resource.name, resource.devices.size(), resource.hcas.size()));
  }
}

void NodeReader::say_other_kinds(const std::vector<std::string>& others) {
  say_once("kinds", others.empty()
                        ? ""
                        : fmt::format("of another rate or link layer than most of their pool, and not counted "
                                      "unless they were before: {}",
                                      fabric::printable(fabric::join(others, ", "))));
}

void NodeReader::note_moved(const HcaHolds& now) {
  const auto time = std::chrono::steady_clock::now();
  std::map<std::string, unsigned> held;
  for (const auto& [name, hold] : now)
    if (hold.units > 0) held.emplace(name, hold.units);
  std::set<std::string> names;
  if (held_) {
    for (const auto* one : {&*held_, &held})
      for (const auto& [name, units] : *one)
        if (held_->contains(name) != held.contains(name) || held_->at(name) != held.at(name)) names.insert(name);
  }
  std::erase_if(moved_at_, [&](const auto& moved) { return time - moved.second >= kSettling; });
  for (const std::string& name : names)
    moved_at_[name] = time;
  held_ = std::move(held);
}

std::optional<std::chrono::steady_clock::time_point> NodeReader::settles_at() const {
  const auto now = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> first;
  for (const auto& [name, moment] : moved_at_) {
    const auto end = moment + kSettling;
    if (end > now && (!first || end < *first)) first = end;
  }
  return first;
}

bool NodeReader::read() {
  read_config();
  if (!config_) return false;
  std::vector<Error> unread;
  const auto held = holders_.read(unread);
  say_once("ledger", held ? "" : held.error().message + "; who held HCAs before counts as holding them");
  say_once("grants", unread.empty() ? "" : unread.front().message);
  const auto inventory = hook::read_whole_node(*config_, node_, facts());
  if (!inventory) {
    say_once("node", inventory.error().message);
    return true;
  }
  if (const fabric::Unread* hidden = unread_hcas(*inventory)) {
    say_once("node", fabric::sys_error(hidden->code, "cannot read `{}`", fabric::printable(hidden->path)).message);
    return true;
  }
  say_once("node", "");
  const HcaHolds holds = holders_.of(*inventory, node_.root);
  note_moved(holds);
  std::vector<std::string> others;
  auto now = count_resources(*inventory, *config_, holds, resources_, &others);
  say_other_kinds(others);
  keep_settling(resources_, moved_at_, std::chrono::steady_clock::now(), now);
  say_changes(now);
  resources_ = std::move(now);
  return true;
}

}  // namespace shim
