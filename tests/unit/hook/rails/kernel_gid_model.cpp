#include "unit/hook/rails/kernel_gid_model.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

namespace test_support {

using namespace fabric;

KernelGidTable::KernelGidTable(unsigned length, unsigned types, std::uint8_t port) : slots_(length), types_(types) {
  Address link_local;
  link_local.bytes[0] = 0xfe;
  link_local.bytes[1] = 0x80;
  link_local.bytes[8] = 2;
  link_local.bytes[15] = port;
  for (unsigned i = 0; i < types && i < length; ++i)
    set(i, link_local, i + 1 == types, 0);
}

void KernelGidTable::set(unsigned index, const Address& gid, bool v2, unsigned netdev) {
  Slot slot;
  slot.gid = gid;
  slot.v2 = v2;
  slot.netdev = netdev;
  slots_.at(index) = slot;
}

// update_gid(), __ib_cache_gid_add(), find_gid()
void KernelGidTable::add(const Address& gid, unsigned netdev) {
  for (unsigned type = 0; type < types_; ++type) {
    const bool v2 = type + 1 == types_;
    const auto is_same = [&](const Slot& slot) {
      return !slot.is_dying && slot.gid == gid && slot.v2 == v2 && slot.netdev == netdev;
    };
    if (std::any_of(slots_.begin(), slots_.end(), is_same)) continue;
    for (unsigned index = types_; index < slots_.size(); ++index) {
      if (!slots_[index].gid.is_zero()) continue;
      set(index, gid, v2, netdev);
      break;
    }
  }
}

// _ib_cache_gid_del(), del_gid()
void KernelGidTable::remove(const Address& gid, unsigned netdev) {
  for (unsigned index = types_; index < slots_.size(); ++index) {
    Slot& slot = slots_[index];
    if (slot.gid != gid || slot.netdev != netdev) continue;
    if (slot.is_used) {
      slot.is_dying = true;
    } else {
      slot = {};
    }
  }
}

std::optional<unsigned> KernelGidTable::find(const Address& gid, unsigned netdev) const {
  for (unsigned index = 0; index < slots_.size(); ++index) {
    const Slot& slot = slots_[index];
    if (slot.gid == gid && slot.v2 && slot.netdev == netdev && !slot.is_dying) return index;
  }
  return std::nullopt;
}

bool KernelGidTable::is_visible(unsigned index) const {
  const Slot& slot = slots_.at(index);
  return !slot.gid.is_zero() && !slot.is_dying && !slot.is_hidden;
}

hook::GidTable KernelGidTable::read(unsigned read) const {
  hook::GidTable table{length(), {}, std::min(read, length())};
  for (unsigned index = 0; index < table.read; ++index)
    if (is_visible(index)) table.slots.push_back({index, slots_[index].gid, slots_[index].v2});
  return table;
}

void KernelGidModel::work(std::size_t count) {
  for (; count > 0 && !queue.empty(); --count) {
    const Work next = queue.front();
    queue.pop_front();
    if (next.is_add) {
      ports[next.port].add(next.gid, next.netdev);
    } else {
      ports[next.port].remove(next.gid, next.netdev);
    }
  }
}

ModelLink::ModelLink(KernelGidModel& model, std::vector<Address> addresses)
    : meanwhile([&model] { model.work(1); }),
      configured(addresses.size()),
      model_(model),
      addresses_(std::move(addresses)) {
  for (std::size_t rail = 0; rail < addresses_.size(); ++rail)
    configured[rail] = {addresses_[rail]};
}

Result<void> ModelLink::change(std::size_t rail, bool is_add, const Address& gid, const std::string& what) {
  meanwhile();
  TRY_VOID(fails(what));
  const bool was_there = configured[rail].contains(gid);
  if (was_there == is_add) return {};
  if (is_add) {
    configured[rail].insert(gid);
  } else {
    configured[rail].erase(gid);
  }
  const auto placeholders = configured[rail].size() - configured[rail].count(addresses_[rail]);
  most_placeholders = std::max(most_placeholders, static_cast<unsigned>(placeholders));
  model_.queue.push_back({rail, is_add, gid, kOwnNetdev});
  return {};
}

Result<void> ModelLink::remove_address(std::size_t rail) {
  return change(rail, false, addresses_[rail], fmt::format("remove_address {}", rail));
}

Result<void> ModelLink::add_address(std::size_t rail) {
  return change(rail, true, addresses_[rail], fmt::format("add_address {}", rail));
}

Result<void> ModelLink::add_placeholders(std::size_t rail, unsigned from, unsigned to) {
  for (unsigned number = from; number < to; ++number)
    TRY_VOID(change(rail, true, hook::placeholder(number), fmt::format("add_placeholder {} {}", rail, number)));
  return {};
}

Result<void> ModelLink::remove_placeholder(std::size_t rail, unsigned number) {
  return change(rail, false, hook::placeholder(number), fmt::format("remove_placeholder {} {}", rail, number));
}

// Reads slot by slot, as sysfs: the table can change in between.
Result<hook::GidTable> ModelLink::read(std::size_t rail, const std::vector<Address>& wanted, unsigned at_least) {
  ++reads;
  TRY_VOID(fails(fmt::format("read {}", rail)));
  std::vector<Address> missing = wanted;
  const KernelGidTable& port = model_.ports[rail];
  hook::GidTable table{port.length(), {}, 0};
  while (table.read < port.length() && (table.read < at_least || !missing.empty())) {
    if (table.read % 4 == 0) meanwhile();
    const auto& slot = port.slots()[table.read];
    if (port.is_visible(table.read)) {
      table.slots.push_back({table.read, slot.gid, slot.v2});
      if (slot.v2) std::erase(missing, slot.gid);
    }
    ++table.read;
    ++slots_read;
  }
  return table;
}

void ModelLink::wait() {
  now_ += std::chrono::milliseconds(1);
  meanwhile();
}

}  // namespace test_support
