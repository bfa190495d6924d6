#include "shim/device_plugin/node_reader.hpp"

#include <algorithm>
#include <string_view>

#include "base/file.hpp"
#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/apply/cdi_spec.hpp"
#include "shim/kubelet/away_hcas.hpp"

namespace shim {
namespace {

void add_devices_of(const std::string& path, std::set<std::string>& devices) {
  const auto text = base::read_text_file(path);
  const auto spec = text ? base::parse_json(*text, path) : Result<base::Json>(text.error());
  const auto kind = spec ? base::text_at(*spec, "kind") : spec.error();
  // An invalid file is ignored, as runtimes ignore it.
  const base::Json* list = kind && *kind == hook::kCdiKind ? base::member(*spec, "devices") : nullptr;
  if (!list || !list->is_array()) return;
  for (const base::Json& device : *list)
    if (auto name = base::text_at(device, "name")) devices.insert(*std::move(name));
}

std::map<std::string, std::string> problems_of(const std::vector<Resource>& resources) {
  std::map<std::string, std::string> problems;
  for (const Resource& resource : resources) {
    for (const CountedDevice& device : resource.devices)
      problems.emplace(resource.name + " " + device.id, device.problem);
  }
  return problems;
}

}  // namespace

std::set<std::string> described_cdi_devices(const std::string& root) {
  std::set<std::string> devices;
  for (const char* place : {"/etc/cdi", "/var/run/cdi"}) {
    const std::string path = root + place;
    const auto directory = base::Directory::open(path);
    if (!directory) continue;
    for (const std::string& name : directory->list())
      if (name.ends_with(".json")) add_devices_of(fmt::format("{}/{}", path, name), devices);
  }
  return devices;
}

// Returns which facts read() must read. Each fact costs reads in sysfs for every HCA. GIDs limit the number of child
// netdevs; VFs are needed for exclusive HCAs. By the names of the ports' netdevs, fabric::KeptNode knows which events
// concern the plugin.
fabric::HcaFacts NodeReader::facts() const {
  fabric::HcaFacts facts{.link_layer = true, .netdevs = true, .place = true, .rate = true, .pfs = true};
  for (const hook::Pool& pool : config().pools) {
    if (!pool.resource) continue;
    facts.gids = facts.gids || pool.network;
    facts.driver = facts.gids;  // the node type of a software device decides how its GIDs count
    facts.vfs = facts.vfs || std::ranges::find(pool.modes, hook::Mode::kExclusive) != pool.modes.end();
  }
  return facts;
}

// Logs a line for each device whose state has changed, with the ID by which the kubelet and its users know the device.
void NodeReader::log_changes(const std::vector<Resource>& now) const {
  const auto before = problems_of(resources_);
  for (const auto& [device, problem] : problems_of(now)) {
    const auto old = before.find(device);
    const bool was_healthy = old == before.end() || old->second.empty();
    if (!problem.empty() && (old == before.end() || old->second != problem)) {
      log_.warning(fmt::format("{} is not healthy: {}", device, base::printable(problem)));
    } else if (problem.empty() && !was_healthy) {
      log_.info(fmt::format("{} is healthy again", device));
    }
  }
  for (const Resource& resource : now) {
    const auto same = std::ranges::find_if(resources_, [&](const Resource& old) { return old.name == resource.name; });
    if (same == resources_.end() || same->devices.size() != resource.devices.size())
      log_.info(fmt::format("{}: {} devices of {} HCAs", resource.name, resource.devices.size(), resource.hcas.size()));
  }
}

void NodeReader::note_moved(const HcaHolds& now) {
  const auto time = std::chrono::steady_clock::now();
  std::map<std::string, unsigned> held;
  for (const auto& [name, hold] : now)
    if (hold.units > 0) held.emplace(name, hold.units);
  std::set<std::string> names;
  // At the first read held_ has no value, and grants that exist already do not count as changes.
  if (held_) {
    for (const auto* one : {&*held_, &held})
      for (const auto& [name, units] : *one)
        if (held_->contains(name) != held.contains(name) || held_->at(name) != held.at(name)) names.insert(name);
  }
  // Entries older than kSettling have no effect and are dropped, so that the map does not grow.
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
  const auto again = held_hcas().read_again_at();
  return again && (!first || *again < *first) ? again : first;
}

std::set<std::string> NodeReader::configured_resources() const {
  std::set<std::string> names;
  for (const hook::Pool& pool : config().pools)
    if (pool.resource) names.insert(*pool.resource);
  return names;
}

// Returns the last announced resources. After a start of the plugin they also have the HCAs that are in pods since
// before: the kubelet must not count fewer devices than pods have.
std::vector<Resource> NodeReader::known_resources(const fabric::Inventory& inventory, const HcaHolds& holds) const {
  auto away = held_hcas().away();
  std::erase_if(away, [&](const auto& one) { return was_announced(resources_, one.second.name); });
  if (away.empty()) return resources_;
  fabric::Inventory whole = inventory;
  for (const auto& [device, hca] : away)
    add_away_hca(device, hca, node_.ledger, node_.root, whole);
  return count_resources(whole, config(), holds, resources_);
}

bool NodeReader::read() {
  const auto config_read = read_config();
  if (config_read == ConfigRead::kNone) return false;
  const auto counts = [](const hook::Pool& pool) { return pool.resource.has_value(); };
  if (config_read == ConfigRead::kNew && std::ranges::none_of(config().pools, counts))
    log_.warning(
        fmt::format("no pool of `{}` has a \"resource\": no HCAs are announced", base::printable(node_.config.file)));
  const auto read = read_node(facts());
  if (!read) return true;
  // note_moved() comes first: keep_settling() needs to know which HCAs were granted or released a short time ago.
  note_moved(read->holds);
  std::vector<std::string> others;
  auto now =
      count_resources(read->inventory, config(), read->holds, known_resources(read->inventory, read->holds), &others);
  log_once("kinds",
           others.empty() ? ""
                          : fmt::format("HCAs are not announced, because their rate or link layer differs from most "
                                        "HCAs of their pool: {}",
                                        base::printable(base::join(others, ", "))),
           false);
  keep_settling(resources_, moved_at_, std::chrono::steady_clock::now(), now);
  log_changes(now);
  resources_ = std::move(now);
  std::vector<std::string> names;
  for (const Resource& resource : resources_)
    for (const CountedHca& hca : resource.hcas)
      names.push_back(hca.name);
  set_silent_ports(silent_ports(read->inventory, names, read->holds));
  return true;
}

}  // namespace shim
