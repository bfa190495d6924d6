#include "hook/rails/add.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/result.hpp"
#include "base/text.hpp"
#include "fabric/gid_slots.hpp"
#include "fabric/inventory.hpp"
#include "hook/ledger/files.hpp"
#include "hook/rails/netlink/records.hpp"

namespace hook {
namespace {

using fabric::Address;
using fabric::GidSlots;

Result<GidSlots> open_slots(int sysfs, const std::string& path) {
  const auto port = base::Directory::open(sysfs, path.c_str());
  if (!port) return sys_error(errno, "cannot open `{}`", path);
  auto slots = GidSlots::open(*port, ".");
  if (!slots) return sys_error(errno, "cannot open `{}/gids`", path);
  if (slots->types_error() != 0) return sys_error(slots->types_error(), "cannot open `{}/gid_attrs/types`", path);
  return *std::move(slots);
}

// Returns the GID of a slot: zero if the slot is empty, nullopt if the table has no such slot.
Result<std::optional<Address>> read_gid(const GidSlots& slots, const std::string& path, unsigned index) {
  const auto gid = slots.gid(index);
  if (const auto* address = std::get_if<Address>(&gid)) return std::optional(*address);
  const int code = std::get<Unreadable>(gid).code;
  if (code == ENOENT) return std::optional<Address>();
  if (code == EBADMSG) return make_error("cannot use `{}/gids/{}`: it holds no GID", path, index);
  return sys_error(code, "cannot read `{}/gids/{}`", path, index);
}

// Reads a slot with its type. GID and type are two files, so the kernel can change the slot between the two reads.
Result<std::optional<GidSlot>> read_slot(const GidSlots& slots, const std::string& path, unsigned index) {
  const auto gid = TRY(read_gid(slots, path, index));
  if (!gid) return std::optional<GidSlot>();
  GidSlot slot{index, *gid, true};
  if (gid->is_zero()) return std::optional(slot);
  const auto type = slots.type(index);
  if (const auto* text = std::get_if<std::string>(&type)) {
    slot.v2 = *text == "RoCE v2";
    return std::optional(slot);
  }
  // Reading the type fails with EINVAL if the slot has just become empty. Therefore the GID is read again. If there is
  // still a GID, the slot counts as in use.
  const auto again = TRY(read_gid(slots, path, index));
  slot.gid = again ? *again : Address{};
  return std::optional(slot);
}

// Returns the number of slots of the GID table, used and free. The slots are numbered from 0 without gaps, so a binary
// search finds the first number that has no slot.
// known: number of slots that are known to exist.
unsigned table_length(const GidSlots& slots, unsigned known) {
  unsigned step = 1;
  unsigned missing = known;
  while (missing < GidSlots::kMost && slots.has(missing)) {
    known = missing + 1;
    missing += step;
    step *= 2;
  }
  missing = std::min(missing, GidSlots::kMost);
  while (known < missing) {
    const unsigned middle = known + (missing - known) / 2;
    if (slots.has(middle)) {
      known = middle + 1;
    } else {
      missing = middle;
    }
  }
  return known;
}

constexpr int kLockTimeoutMs = 60000;  // another process can have the lock for seconds while it aligns rails
constexpr int kPauseUs = 1000;

// Returns the number of the port that has the rail's netdev. If no port has the netdev, returns the first active port,
// or 1 if no port is active.
unsigned port_of(const GidRail& rail) {
  const auto& ports = rail.hca->ports;
  const auto own = std::ranges::find_if(
      ports, [&](const fabric::Port& port) { return port.netdev == rail.placed.record->rail.host; });
  if (own != ports.end()) return own->number;
  const auto active = std::ranges::find_if(ports, [](const fabric::Port& port) { return port.is_active(); });
  return active == ports.end() ? 1 : active->number;
}

// AlignLink on a real kernel. Reads the sysfs of the container's namespace for an HCA that moved there, because no
// other sysfs shows it.
class LiveRails : public AlignLink {
 public:
  LiveRails(NetworkNamespace& inside, const std::vector<GidRail>& rails, int sysfs)
      : inside_(&inside), rails_(&rails), sysfs_(sysfs) {}

  Result<void> remove_address(std::size_t rail) override {
    return remove_records(inside_->route, {address_record_of(rail)});
  }
  // Adds the routes again too: together with the address, the kernel removed routes with this preferred source and
  // on-link routes.
  Result<void> add_address(std::size_t rail) override {
    const GidRail& own = (*rails_)[rail];
    TRY_VOID(add_records(inside_->route, {address_record_of(rail)}));
    return add_records(inside_->route, own.config.routes);
  }
  Result<void> add_placeholders(std::size_t rail, unsigned from, unsigned to) override {
    std::vector<NetRecord> records;
    for (unsigned number = from; number < to; ++number)
      records.push_back(placeholder_record(rail, number));
    return add_records(inside_->route, records);
  }
  Result<void> remove_placeholder(std::size_t rail, unsigned number) override {
    return remove_records(inside_->route, {placeholder_record(rail, number)});
  }
  Result<GidTable> read(std::size_t rail, const std::vector<fabric::Address>& wanted, unsigned at_least) override {
    const GidRail& own = (*rails_)[rail];
    const bool moved = own.placed.record->rail.move_rdma;
    const int sysfs = moved && inside_->sysfs.ok() ? inside_->sysfs.get() : sysfs_;
    return read_gid_table(sysfs, own.hca->name, port_of(own), wanted, at_least);
  }
  void wait() override { ::usleep(kPauseUs); }

 private:
  NetRecord address_record_of(std::size_t rail) const {
    const GidRail& own = (*rails_)[rail];
    const auto& records = own.config.addresses;
    const auto found =
        std::ranges::find_if(records, [&](const NetRecord& record) { return address_of(record) == own.address; });
    return *found;  // the record is found, because gid_address() chose its address from these records
  }
  // Makes the record of a placeholder address, which takes a GID slot like any other address. The record has host scope
  // and no prefix route, so that the kernel adds only a local route.
  NetRecord placeholder_record(std::size_t rail, unsigned number) const {
    return address_record((*rails_)[rail].placed.ifindex, placeholder(number), 32,
                          {.no_prefix_route = true, .host_scope = true});
  }
  NetworkNamespace* inside_;
  const std::vector<GidRail>* rails_;
  int sysfs_;
};

// Returns false for an InfiniBand rail, which has only one GID. That GID does not depend on the rail's addresses.
bool has_gid_index(const GidRail& rail) {
  if (rail.placed.record->rail.kind == RailKind::kIpoib) return false;
  const auto& ports = rail.hca->ports;
  return std::ranges::none_of(ports, [](const fabric::Port& port) { return port.is_infiniband(); });
}

// Returns the limit on waiting for the GIDs of all rails together: the longest gid_wait_ms of their networks.
std::chrono::milliseconds patience(const std::vector<GidRail>& rails, const GidOptions& options) {
  unsigned longest = 0;
  for (const GidRail& rail : rails)
    longest = std::max(longest, rail.placed.network->gid_wait_ms);
  return std::chrono::milliseconds(options.wait ? longest : 0);
}

// Waits until each rail has its GID, or the time is over. A missing GID is a warning, because the kernel may still make
// it: rdma-init waits for it in the container.
SettledGids await_gids(LiveRails& live, const std::vector<GidRail>& rails, std::chrono::milliseconds patience) {
  SettledGids settled;
  const auto deadline = AlignLink::Clock::now() + patience;
  for (std::size_t i = 0; i < rails.size(); ++i) {
    const Rail& rail = rails[i].placed.record->rail;
    for (;;) {
      const auto table = live.read(i, {rails[i].address}, 1);
      const auto index = table ? v2_index(*table, rails[i].address) : std::nullopt;
      if (index) {
        settled.indices[rail.name] = *index;
        break;
      }
      if (AlignLink::Clock::now() >= deadline) {
        settled.warnings.push_back(
            table ? fmt::format("`{}`: no RoCE v2 GID for {} in the table of `{}` after {} ms; rdma-init waits for it",
                                rail.name, to_string(rails[i].address), rail.hca, patience.count())
                  : fmt::format("`{}`: {}", rail.name, table.error().message));
        break;
      }
      live.wait();
    }
  }
  return settled;
}

// Returns the first rail of each HCA. Only these rails are aligned: rails of one HCA share a port, and a port has only
// one GID at an index.
std::vector<GidRail> first_of_each_hca(const std::vector<GidRail>& rails) {
  std::vector<GidRail> first;
  for (const GidRail& rail : rails) {
    const auto same = [&](const GidRail& other) { return other.hca == rail.hca; };
    if (std::ranges::none_of(first, same)) first.push_back(rail);
  }
  return first;
}

bool agree(const std::vector<GidRail>& rails, const std::map<std::string, unsigned>& indices) {
  const auto index = [&](const GidRail& rail) { return indices.at(rail.placed.record->rail.name); };
  return std::ranges::all_of(rails, [&](const GidRail& rail) { return index(rail) == index(rails[0]); });
}

std::string indices_text(const std::map<std::string, unsigned>& indices) {
  std::vector<std::string> parts;
  parts.reserve(indices.size());
  for (const auto& [name, index] : indices)
    parts.push_back(fmt::format("{} at {}", name, index));
  return base::join(parts, ", ");
}

Result<void> align(const Ledger& ledger, LiveRails& live, const std::vector<GidRail>& rails, SettledGids& settled) {
  std::vector<AlignRail> wanted;
  std::vector<std::string> hcas;
  for (const GidRail& rail : rails) {
    const Rail& own = rail.placed.record->rail;
    wanted.push_back({own.rail, fmt::format("rail{}", own.rail), rail.address, {}});
    hcas.push_back(own.hca);
  }
  const auto locked = TRY(ledger.lock(hcas, kLockTimeoutMs));
  const auto report = run_alignment(std::move(wanted), live);
  if (!report) {
    settled.warnings.push_back(
        fmt::format("GID indices differ ({}), but NCCL_IB_GID_INDEX is one number for all rails: {}",
                    indices_text(settled.indices), report.error().message));
    return {};
  }
  settled.alignment = report->text;
  for (const GidRail& rail : rails)
    settled.indices[rail.placed.record->rail.name] = report->done.index;
  return {};
}

}  // namespace

Result<GidTable> read_gid_table(int sysfs, const std::string& hca, unsigned port, const std::vector<Address>& wanted,
                                unsigned at_least) {
  // The name is checked because it becomes part of a path.
  TRY_VOID(check_hca_name(hca));
  const std::string path = fmt::format("class/infiniband/{}/ports/{}", hca, port);
  const GidSlots slots = TRY(open_slots(sysfs, path));
  std::vector<Address> missing = wanted;
  GidTable table;
  while (table.read < GidSlots::kMost && (table.read < at_least || !missing.empty())) {
    const auto slot = TRY(read_slot(slots, path, table.read));
    if (!slot) {
      table.length = table.read;
      return table;
    }
    ++table.read;
    if (slot->gid.is_zero()) continue;
    if (slot->v2) std::erase(missing, slot->gid);
    table.slots.push_back(*slot);
  }
  table.length = table_length(slots, table.read);
  return table;
}

Result<SettledGids> settle_rail_gids(const Ledger& ledger, NetworkNamespace& inside, const std::vector<GidRail>& all,
                                     const GidOptions& options) {
  std::vector<GidRail> rails;
  std::ranges::copy_if(all, std::back_inserter(rails), has_gid_index);
  if (rails.empty()) return SettledGids{};
  const base::UniqueFd sysfs(::open(options.sys.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  LiveRails live(inside, rails, sysfs.get());
  SettledGids settled = await_gids(live, rails, patience(rails, options));
  const bool complete = settled.indices.size() == rails.size();  // false: the index of at least one rail is unknown
  const bool wanted = std::ranges::all_of(rails, [](const GidRail& rail) { return rail.placed.network->align_gids; });
  const std::vector<GidRail> first = first_of_each_hca(rails);
  if (options.align && wanted && complete && !agree(first, settled.indices)) {
    LiveRails firsts(inside, first, sysfs.get());
    TRY_VOID(align(ledger, firsts, first, settled));
  }
  return settled;
}

}  // namespace hook
