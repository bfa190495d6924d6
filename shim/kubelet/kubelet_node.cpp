#include "shim/kubelet/kubelet_node.hpp"

#include <algorithm>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "hook/plan/parts.hpp"

namespace shim {

std::map<std::string, base::Attr<std::string>> silent_ports(const fabric::Inventory& inventory,
                                                            const std::vector<std::string>& hcas,
                                                            const HcaHolds& holds) {
  std::map<std::string, base::Attr<std::string>> states;
  for (const std::string& name : hcas) {
    const fabric::Hca* const hca = fabric::find_hca(inventory, name);
    if (!hca) continue;
    const auto hold = holds.find(hca->name);
    const bool may_be_away = hold != holds.end() && hold->second.is_exclusive;
    for (const fabric::Port& port : hca->ports) {
      if (!port.is_ethernet() || !port.netdev || may_be_away)
        states.emplace(fmt::format("{}/ports/{}/state", hca->name, port.number), port.state);
    }
  }
  return states;
}

void KubeletNode::log_once(const std::string& about, const std::string& message, bool is_failure) {
  Message& last = last_message_[about];
  last.is_failure = is_failure;
  if (std::exchange(last.text, message) != message && !message.empty()) log_.warning(message);
}

KubeletNode::ConfigRead KubeletNode::read_config() {
  auto texts = hook::read_config_texts(node_.config);
  // The texts are compared, because this costs less than parsing them.
  const bool is_same = texts && config_ && *texts == texts_;
  if (is_same) {
    log_once("config", "");
    return ConfigRead::kSame;
  }
  const auto config = texts ? hook::valid_config(*texts) : Result<hook::Config>(texts.error());
  if (!config) {
    log_once("config",
             base::with_remedy(config.error()) + (config_ ? "; the previous configuration stays in use" : ""));
    return config_ ? ConfigRead::kSame : ConfigRead::kNone;
  }
  log_once("config", "");
  texts_ = std::move(*texts);
  config_ = *config;
  return ConfigRead::kNew;
}

std::optional<KubeletNode::Read> KubeletNode::read_node(const fabric::HcaFacts& facts) {
  std::vector<Error> unread;
  const auto held = held_hcas_.read(unread);
  // A part that cannot be read keeps its last known state, because a read error must not make Kubernetes lose devices.
  log_once("ledger", held ? "" : held.error().message + "; the grants of the last successful read stay in use");
  log_once("grants", unread.empty() ? "" : unread.front().message);
  auto inventory = hook::read_whole_node(*config_, node_, facts);
  // If only other parts are unread, the list of HCAs is usable.
  const auto listed =
      inventory ? hook::was_read(*inventory, fabric::Unread::Part::kHcas) : Result<void>(inventory.error());
  log_once("node", listed ? "" : listed.error().message);
  if (!listed) return std::nullopt;
  Read read{*std::move(inventory), {}};
  read.holds = held_hcas_.of(read.inventory, node_.root);
  return read;
}

std::vector<std::string> KubeletNode::directories() const {
  std::vector<std::string> directories{base::parent_of(node_.config.file), node_.ledger + "/grants"};
  if (!node_.config.file_must_exist) directories.push_back(base::parent_of(node_.config.cluster));
  if (!node_.config.drop_ins.empty()) directories.push_back(node_.config.drop_ins);
  return directories;
}

bool KubeletNode::has_silent_change() {
  if (held_hcas_.has_foreign() && held_hcas_.read_again()) return true;
  if (silent_ports_.empty()) return false;
  const auto hcas = base::Directory::open(node_.root + "/sys/class/infiniband");
  return !hcas || std::ranges::any_of(silent_ports_,
                                      [&](const auto& port) { return hcas->read(port.first.c_str()) != port.second; });
}

std::string KubeletNode::problem() const {
  for (const char* about : {"config", "node"})
    if (const auto last = last_message_.find(about); last != last_message_.end() && !last->second.text.empty())
      return last->second.text;
  return {};
}

bool KubeletNode::is_complete() const {
  return config_ && std::ranges::all_of(last_message_, [](const auto& last) {
           return !last.second.is_failure || last.second.text.empty();
         });
}

}  // namespace shim
