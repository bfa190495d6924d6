#include "hook/rails/align/rail_move.hpp"

#include <algorithm>

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;

constexpr unsigned kNumbers = 256;  // of placeholders
// Each time, slots below the target became free while placeholders were added.
constexpr int kRefills = 4;
constexpr int kRestoreTries = 3;

// The first of `count` placeholder numbers that are not in this table: a container that died may have left some.
unsigned unused_numbers(const GidTable& table, unsigned count) {
  unsigned first = 0;
  for (unsigned number = 0; number < kNumbers && number - first < count; ++number) {
    const auto has_it = [&](const GidSlot& slot) { return slot.gid == placeholder(number); };
    if (std::any_of(table.slots.begin(), table.slots.end(), has_it)) first = number + 1;
  }
  return first;
}

}  // namespace

RailMove::RailMove(AlignLink& link, const AlignRail& rail, std::size_t position, unsigned target,
                   unsigned max_placeholders, std::set<unsigned>& silent)
    : link_(link),
      rail_(rail),
      position_(position),
      target_(target),
      max_placeholders_(max_placeholders),
      types_(gid_types(rail.table)),
      silent_(silent) {}

bool RailMove::wait(Deadline deadline) {
  if (link_.now() >= deadline) return false;
  link_.wait();
  return true;
}

Result<void> RailMove::add(unsigned count) {
  const unsigned from = next_;
  next_ += count;
  for (unsigned number = from; number < next_; ++number)
    present_.insert(number);
  return link_.add_placeholders(position_, from, next_);
}

Result<void> RailMove::begin(unsigned fill) {
  first_ = next_ = unused_numbers(rail_.table, fill);
  if (first_ + fill > kNumbers) {
    return Error{.message = "the GID table is full of placeholders that another container left",
                 .hint = "run `rdma-hook recover`"};
  }
  is_out_ = true;  // first: a call that fails may have removed it all the same
  TRY_VOID(link_.remove_address(position_));
  return add(fill);
}

// nullopt: not in time.
Result<std::optional<GidTable>> RailMove::settled_table(Deadline deadline) {
  const fabric::Address last = placeholder(next_ - 1);
  while (!v2_index(TRY(link_.read(position_, {last}, target_ + 1)), last)) {
    if (!wait(deadline)) return std::optional<GidTable>();
  }
  // Once more: of what was read before the last placeholder was, some may have changed since.
  return std::optional(TRY(link_.read(position_, {}, target_ + 1)));
}

// Slots up to the target that the address could get instead of it.
std::vector<unsigned> RailMove::holes(const GidTable& table) const {
  std::vector<unsigned> found;
  auto slot = table.slots.begin();
  for (unsigned index = 0; index <= target_ && index < table.read; ++index) {
    while (slot != table.slots.end() && slot->index < index)
      ++slot;
    const bool taken = slot != table.slots.end() && slot->index == index;
    if (!taken && index >= types_ && !silent_.contains(index)) found.push_back(index);
  }
  return found;
}

std::optional<unsigned> RailMove::holder(const GidTable& table) const {
  for (const GidSlot& slot : table.slots) {
    if (slot.index != target_ || !slot.v2) continue;
    for (const unsigned number : present_)
      if (slot.gid == placeholder(number)) return number;
  }
  return std::nullopt;
}

Result<bool> RailMove::hold_target(Deadline deadline) {
  std::vector<unsigned> before;
  for (int refill = 0; refill < kRefills; ++refill) {
    const auto table = TRY(settled_table(deadline));
    if (!table) return false;
    auto free = holes(*table);
    // As many placeholders came as these slots could take, and they went elsewhere.
    for (const unsigned index : before)
      if (std::find(free.begin(), free.end(), index) != free.end()) silent_.insert(index);
    std::erase_if(free, [&](unsigned index) { return silent_.contains(index); });
    holder_ = holder(*table);
    if (free.empty()) return holder_.has_value();
    const auto count = static_cast<unsigned>((free.size() + types_ - 1) / types_);
    if (next_ + count > kNumbers || present_.size() + count > max_placeholders_) return false;
    TRY_VOID(add(count));
    before = std::move(free);
  }
  return false;
}

Result<void> RailMove::swap() {
  TRY_VOID(link_.remove_placeholder(position_, *holder_));
  present_.erase(*holder_);
  TRY_VOID(link_.add_address(position_));
  is_out_ = false;
  return {};
}

Result<bool> RailMove::landed(Deadline deadline) {
  for (;;) {
    const auto index = v2_index(TRY(link_.read(position_, {rail_.address}, 0)), rail_.address);
    if (index) return *index == target_;
    if (!wait(deadline)) return false;
  }
}

Result<void> RailMove::restore() {
  std::optional<Error> failed;
  // The placeholders first: in a full table the address would find no slot before they are gone.
  for (int left = kRestoreTries; left > 0; --left) {
    failed.reset();
    // The first that came, in a low slot, goes last: once it is gone from the table, all are.
    const std::vector<unsigned> numbers(present_.rbegin(), present_.rend());
    for (const unsigned number : numbers) {
      if (auto removed = link_.remove_placeholder(position_, number); removed) {
        present_.erase(number);
      } else {
        failed = fabric::wrap(std::move(removed).error(),
                              fmt::format("`{}` keeps {}", rail_.name, fabric::to_string(placeholder(number))));
      }
    }
    if (is_out_) {
      if (auto added = link_.add_address(position_); added) {
        is_out_ = false;
      } else {
        failed = fabric::wrap(std::move(added).error(), fmt::format("`{}` has lost its address {}", rail_.name,
                                                                    fabric::to_string(rail_.address)));
      }
    }
    if (!failed) return {};
    link_.wait();
  }
  return *std::move(failed);
}

Result<bool> RailMove::is_restored(Deadline deadline) {
  const auto is_own_placeholder = [&](const GidSlot& slot) {
    for (unsigned number = first_; number < next_; ++number)
      if (slot.gid == placeholder(number)) return true;
    return false;
  };
  for (;;) {
    const GidTable table = TRY(link_.read(position_, {rail_.address}, target_ + 1));
    if (v2_index(table, rail_.address) && std::none_of(table.slots.begin(), table.slots.end(), is_own_placeholder)) {
      return true;
    }
    if (!wait(deadline)) return v2_index(table, rail_.address).has_value();
  }
}

Result<void> RailMove::settle(Deadline deadline) {
  if (is_out_ || !present_.empty()) TRY_VOID(restore());
  const auto half = link_.now() + (deadline - link_.now()) / 2;
  if (TRY(is_restored(half))) return {};
  is_out_ = true;
  const auto removed = link_.remove_address(position_);
  TRY_VOID(restore());
  TRY_VOID(removed);
  if (TRY(is_restored(deadline))) return {};
  return Error{.message = fmt::format("the address {} of `{}` has no RoCE v2 GID any more",
                                      fabric::to_string(rail_.address), rail_.name),
               .hint = "the GID table of its port is full: have fewer containers share the HCA"};
}

}  // namespace hook
