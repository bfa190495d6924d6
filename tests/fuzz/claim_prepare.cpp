// Any claims, prepared and unprepared in any order: texts that are no names, HCAs twice, more devices than a claim may
// have, modes and networks that the pool does not allow.
#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <set>

#include "base/log.hpp"
#include "hook/claim/claims.hpp"
#include "hook/ledger/ledger.hpp"
#include "require.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace {

using fuzz::require;
namespace fs = std::filesystem;

constexpr unsigned kRails = 4;

// A node with some HCAs in files, for all inputs. Each input begins without grants.
class Node {
 public:
  Node() {
    auto inventory = test_support::rails(3, kRails);
    for (fabric::Hca& hca : inventory.hcas)
      hca.uverbs_dev = fmt::format("231:{}", 192 + *hca.uverbs);
    test_support::lay_out(inventory, directory_ / "node");
    settings_.root = directory_ / "node";
    settings_.ledger = directory_ / "ledger";
    settings_.config = {directory_ / "config.json", "", true, directory_ / "none"};
    test_support::write_file(
        settings_.config.file,
        R"({"pools": [{"name": "rails", "modes": ["exclusive", "shared"], "limits": {"shared": 2}}]})");
  }
  void clear() {
    fs::remove_all(settings_.ledger);
    fs::remove_all(directory_ / "cdi");
  }
  hook::ClaimSettings claims() const { return {.node = settings_, .cdi_directory = directory_ / "cdi"}; }
  std::string ledger() const { return settings_.ledger; }
  std::set<std::string> files_beside() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(std::string(directory_ / ".")))
      names.insert(entry.path().filename());
    return names;
  }

 private:
  test_support::TempDir directory_;
  hook::NodeSettings settings_;
};

std::string text_of(FuzzedDataProvider& data, const char* usual) {
  return data.ConsumeIntegralInRange(0, 7) == 0 ? data.ConsumeRandomLengthString(80) : usual;
}

hook::ClaimOfNode claim_of(FuzzedDataProvider& data, const std::string& uid) {
  hook::ClaimOfNode claim{
      .uid = uid, .space = text_of(data, "team"), .name = text_of(data, "nics"), .pods = {}, .devices = {}};
  if (data.ConsumeBool()) claim.pods.push_back(text_of(data, "pod-1"));
  for (unsigned left = data.ConsumeIntegralInRange(0U, 40U); left > 0 && data.remaining_bytes() > 0; --left) {
    const unsigned rail = data.ConsumeIntegralInRange(0U, kRails);
    hook::ClaimDevice device{.request = text_of(data, "hcas"),
                             .name = text_of(data, fmt::format("pci-{}", rail).c_str()),
                             .hca = text_of(data, fmt::format("mlx5_{}", rail).c_str())};
    device.units = data.ConsumeIntegralInRange(0U, 3U);
    device.is_admin = data.ConsumeIntegralInRange(0, 7) == 0;
    if (data.ConsumeBool())
      device.mode = data.PickValueInArray({hook::Mode::kExclusive, hook::Mode::kShared, hook::Mode::kHca});
    if (data.ConsumeIntegralInRange(0, 7) == 0) device.network = data.ConsumeRandomLengthString(20);
    claim.devices.push_back(std::move(device));
    if (data.ConsumeBool()) break;
  }
  return claim;
}

// No HCA has two owners if one of them has it exclusively, and none has more than the pool's limit.
void check_ledger(const std::string& ledger) {
  std::map<std::string, std::pair<unsigned, bool>> held;  // units, and whether an owner has the HCA exclusively
  const auto add = [&](const hook::Grant& grant) -> base::Result<void> {
    for (const hook::PlannedHca& hca : grant.hcas) {
      auto& [units, is_exclusive] = held[hca.device];
      units += hca.units;
      is_exclusive = is_exclusive || hca.mode == hook::Mode::kExclusive;
    }
    return {};
  };
  std::vector<base::Error> unread;
  require(hook::Ledger::for_each_at(ledger, add, &unread).has_value() && unread.empty(), "each record can be read");
  for (const auto& [device, of] : held)
    require(of.second ? of.first == 1 : of.first <= 2, "an HCA has the owners that its mode allows", device);
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  static Node node;
  static base::Log log = base::Log::to_syslog("fuzz");
  node.clear();
  const auto before = node.files_beside();
  const auto settings = node.claims();
  std::set<std::string> uids;
  for (unsigned calls = 0; calls < 6 && data.remaining_bytes() > 0; ++calls) {
    const std::string uid = text_of(data, data.ConsumeBool() ? "3f2a-01" : "9c11-02");
    if (data.ConsumeIntegralInRange(0, 3) == 0) {
      const auto done = hook::unprepare_claim(uid, settings, log, base::Deadline());
      if (!done) require_refusal(done.error(), "the refusal of an Unprepare");
    } else {
      const hook::ClaimOfNode claim = claim_of(data, uid);
      const auto done = hook::prepare_claim(claim, settings, log, base::Deadline());
      if (!done) require_refusal(done.error(), "the refusal of a claim");
      if (done) require(done->size() == claim.devices.size(), "an answer for each device");
      if (done && !claim.devices.empty()) {
        uids.insert(uid);
        require(fs::exists(hook::claim_file(settings.cdi_directory, uid)), "a prepared claim has its file");
      }
    }
    check_ledger(node.ledger());
  }
  for (const std::string& uid : uids)
    require(hook::unprepare_claim(uid, settings, log, base::Deadline()).has_value(), "a claim without users ends", uid);
  std::vector<base::Error> unread;
  const auto left = hook::claims_on_record(node.ledger(), unread);
  require(!left.has_value() || left->empty(), "no claim is left");
  auto after = node.files_beside();
  after.erase("cdi");
  after.erase("ledger");
  auto expected = before;
  require(after == expected, "no file outside of ledger and CDI directory");
}
