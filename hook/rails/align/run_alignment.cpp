#include "base/result.hpp"
#include "hook/rails/align/align.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

namespace hook {
namespace {

using fabric::Address;

constexpr unsigned kNumbers = 256;  // numbers of placeholders: 0 to 255
// Limit on repeated additions of placeholders. More placeholders are needed if slots below the target became free while
// earlier placeholders were added.
constexpr int kRefills = 4;
constexpr int kRestoreTries = 3;

// Returns the first of `count` successive placeholder numbers whose addresses are not in this table. A call that was
// killed can have left placeholders in the table.
unsigned unused_numbers(const GidTable& table, unsigned count) {
  unsigned first = 0;
  for (unsigned number = 0; number < kNumbers && number - first < count; ++number) {
    const auto has_it = [&](const GidSlot& slot) { return slot.gid == placeholder(number); };
    if (std::ranges::any_of(table.slots, has_it)) first = number + 1;
  }
  return first;
}

// The move of one rail to an index, in the steps of AlignMove.
class RailMove {
 public:
  using Deadline = AlignLink::Clock::time_point;

  // rail: rail.table is the table on which the plan is based.
  // silent: slots that read as empty but are in use; this object adds such slots when it detects them.
  RailMove(AlignLink& link, const AlignRail& rail, std::size_t position, unsigned target, unsigned max_placeholders,
           std::set<unsigned>& silent)
      : link_(link),
        rail_(rail),
        position_(position),
        target_(target),
        max_placeholders_(max_placeholders),
        types_(gid_types(rail.table)),
        silent_(silent) {}

  // Removes the address and adds the placeholders.
  Result<void> begin(unsigned fill) {
    first_ = next_ = unused_numbers(rail_.table, fill);
    if (first_ + fill > kNumbers)
      return Error{"other calls left too many placeholder addresses (192.0.2.0/24) in the GID table", 0,
                   "run `rdma-hook recover`"};
    is_out_ = true;  // set before the call, because a call that fails may have removed the address
    TRY_VOID(link_.remove_address(position_));
    return add(fill);
  }

  // Waits until the placeholders are in the table, and adds more of them if slots below the target became free. Returns
  // false if no placeholder got the target slot in time.
  Result<bool> hold_target(Deadline deadline) {
    std::vector<unsigned> before;
    for (int refill = 0; refill < kRefills; ++refill) {
      const auto table = TRY(settled_table(deadline));
      if (!table) return false;
      auto free = holes(*table);
      // Enough placeholders were added for the slots in `before`, but the kernel put them into other slots. The slots
      // of `before` that still read as empty are therefore in use.
      for (const unsigned index : before)
        if (std::ranges::find(free, index) != free.end()) silent_.insert(index);
      std::erase_if(free, [&](unsigned index) { return silent_.contains(index); });
      in_target_ = find_in_target(*table);
      if (free.empty()) return in_target_.has_value();
      const auto count = static_cast<unsigned>((free.size() + types_ - 1) / types_);
      if (next_ + count > kNumbers || present_.size() + count > max_placeholders_) return false;
      TRY_VOID(add(count));
      before = std::move(free);
    }
    return false;
  }

  // Removes the placeholder that has the target slot of the GID table, and adds the address, whose GID gets this slot.
  Result<void> swap() {
    TRY_VOID(link_.remove_placeholder(position_, *in_target_));
    present_.erase(*in_target_);
    TRY_VOID(link_.add_address(position_));
    is_out_ = false;
    return {};
  }

  // Waits for the GID of the address. Returns false if the GID is in another slot, or is not in the table in time.
  Result<bool> landed(Deadline deadline) {
    for (;;) {
      const auto index = v2_index(TRY(link_.read(position_, {rail_.address}, 0)), rail_.address);
      if (index) return *index == target_;
      if (!wait(deadline)) return false;
    }
  }

  // Removes all placeholders and adds the address, after any step of the move. Repeats calls that fail.
  Result<void> restore() {
    std::optional<Error> failed;
    // Placeholders are removed before the address is added, because a full table has no slot for it.
    for (int left = kRestoreTries; left > 0; --left) {
      failed.reset();
      // The first placeholder, which has the lowest slot, is removed last. The kernel changes GIDs in the order of the
      // calls: if the first placeholder is gone from the table, all placeholders are gone.
      const std::vector<unsigned> numbers(present_.rbegin(), present_.rend());
      for (const unsigned number : numbers) {
        if (auto removed = link_.remove_placeholder(position_, number); removed) {
          present_.erase(number);
        } else {
          failed =
              base::wrap(std::move(removed).error(), fmt::format("`{}` still has the placeholder address {}",
                                                                 rail_.name, fabric::to_string(placeholder(number))));
        }
      }
      if (is_out_) {
        if (auto added = link_.add_address(position_); added) {
          is_out_ = false;
        } else {
          failed = base::wrap(std::move(added).error(), fmt::format("`{}` has lost its address {}", rail_.name,
                                                                    fabric::to_string(rail_.address)));
        }
      }
      if (!failed) return {};
      link_.wait();
    }
    return *std::move(failed);
  }

  // Waits until the address has a GID and the placeholders are gone. Repeats restore() if an earlier call of it failed.
  // If the address got no GID, for instance because the table is full, removes the address and adds it again.
  Result<void> settle(Deadline deadline) {
    if (is_out_ || !present_.empty()) TRY_VOID(restore());
    const auto half = link_.now() + (deadline - link_.now()) / 2;
    if (TRY(is_restored(half))) return {};
    is_out_ = true;
    const auto removed = link_.remove_address(position_);
    TRY_VOID(restore());
    TRY_VOID(removed);
    if (TRY(is_restored(deadline))) return {};
    return Error{
        fmt::format("the address {} of `{}` has no RoCE v2 GID any more", fabric::to_string(rail_.address), rail_.name),
        0, "let fewer containers share the HCA: the GID table of its port is full"};
  }

  unsigned placeholders() const { return next_ - first_; }

 private:
  Result<void> add(unsigned count) {
    const unsigned from = next_;
    next_ += count;
    for (unsigned number = from; number < next_; ++number)
      present_.insert(number);
    return link_.add_placeholders(position_, from, next_);
  }

  // Waits until the last placeholder is in the table, and returns the table; nullopt if the time is over.
  Result<std::optional<GidTable>> settled_table(Deadline deadline) {
    const fabric::Address last = placeholder(next_ - 1);
    while (!v2_index(TRY(link_.read(position_, {last}, target_ + 1)), last))
      if (!wait(deadline)) return std::optional<GidTable>();
    // The table is read again: its lower slots were read before the last placeholder was found, and can have changed.
    return std::optional(TRY(link_.read(position_, {}, target_ + 1)));
  }

  // Returns the free slots up to and including the target, without the slots that the kernel reserves. As long as a
  // slot below the target is free, the address would get that slot. If the target is free, no placeholder is in it yet.
  std::vector<unsigned> holes(const GidTable& table) const {
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

  // Returns the number of the placeholder in the target slot; nullopt if the slot has another GID.
  std::optional<unsigned> find_in_target(const GidTable& table) const {
    for (const GidSlot& slot : table.slots) {
      if (slot.index != target_ || !slot.v2) continue;
      for (const unsigned number : present_)
        if (slot.gid == placeholder(number)) return number;
    }
    return std::nullopt;
  }

  Result<bool> is_restored(Deadline deadline) {
    const auto is_own_placeholder = [&](const GidSlot& slot) {
      for (unsigned number = first_; number < next_; ++number)
        if (slot.gid == placeholder(number)) return true;
      return false;
    };
    for (;;) {
      const GidTable table = TRY(link_.read(position_, {rail_.address}, target_ + 1));
      if (v2_index(table, rail_.address) && std::ranges::none_of(table.slots, is_own_placeholder)) return true;
      if (!wait(deadline)) return v2_index(table, rail_.address).has_value();
    }
  }

  bool wait(Deadline deadline) {
    if (link_.now() >= deadline) return false;
    link_.wait();
    return true;
  }

  AlignLink& link_;
  const AlignRail& rail_;
  std::size_t position_;
  unsigned target_;
  unsigned max_placeholders_;
  unsigned types_;
  std::set<unsigned>& silent_;
  std::set<unsigned> present_;  // numbers of the placeholders that are on the netdev
  unsigned first_ = 0;          // number of the first placeholder
  unsigned next_ = 0;
  std::optional<unsigned> in_target_;
  bool is_out_ = false;  // true from the call of remove_address() until add_address() has succeeded
};

class Run {
 public:
  Run(std::vector<AlignRail> rails, AlignLink& link, const AlignLimits& limits)
      : rails_(std::move(rails)),
        link_(link),
        limits_(limits),
        started_(rails_.size()),
        silent_(rails_.size()),
        deadline_(link.now() + limits.time) {}

  // Plans and moves in rounds. Each round reads the tables again, because other containers change the same tables.
  Result<AlignReport> run() {
    for (;;) {
      auto plan = read_and_plan();
      if (!plan) return failure(std::move(plan).error());
      if (report_.rounds == 0) {
        for (std::size_t rail = 0; rail < rails_.size(); ++rail)
          started_[rail] = v2_index(rails_[rail].table, rails_[rail].address).value_or(0);
      }
      if (plan->moves.empty()) return report(plan->index);
      if (report_.rounds == limits_.rounds || link_.now() >= deadline_) {
        return failure({.message = fmt::format("cannot move {} rails to one GID index in {} attempts", rails_.size(),
                                               report_.rounds),
                        .code = EAGAIN,
                        .hint = "start the container again: other containers change these GID tables"});
      }
      ++report_.rounds;
      if (auto reached = round(*plan); !reached.has_value()) return failure(std::move(reached).error());
    }
  }

 private:
  // Reads only as many slots as a plan needs, because every slot costs system calls. Reads all tables up to the highest
  // GID index that a rail has. If no plan is possible, doubles the number of slots and tries again.
  Result<Alignment> read_and_plan() {
    for (std::size_t rail = 0; rail < rails_.size(); ++rail)
      TRY_VOID(read_table(rail, 0));
    unsigned wanted = 0;
    for (const AlignRail& rail : rails_)
      wanted = std::max(wanted, v2_index(rail.table, rail.address) ? rail.table.read : 0);
    for (;; wanted *= 2) {
      bool whole = true;
      for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
        const GidTable& table = rails_[rail].table;
        if (table.read < std::min(wanted, table.length)) TRY_VOID(read_table(rail, wanted));
        whole = whole && table.read >= table.length;
      }
      auto plan = plan_alignment(rails_, limits_.max_placeholders);
      if (plan || whole || wanted == 0) return plan;
    }
  }

  // Reads a table. A slot that reads as empty but is known to be in use gets a GID that no rail has.
  Result<void> read_table(std::size_t rail, unsigned at_least) {
    GidTable table = TRY(link_.read(rail, {rails_[rail].address}, at_least));
    for (const GidSlot& slot : table.slots)
      silent_[rail].erase(slot.index);
    Address somebody;
    somebody.bytes.fill(0xff);
    for (const unsigned index : silent_[rail])
      if (index < table.read) table.slots.push_back({index, somebody, true});
    std::ranges::sort(table.slots, [](const GidSlot& left, const GidSlot& right) { return left.index < right.index; });
    rails_[rail].table = std::move(table);
    return {};
  }

  Result<bool> round(const Alignment& alignment) {
    std::vector<RailMove> moves;
    moves.reserve(alignment.moves.size());
    for (const AlignMove& move : alignment.moves)
      moves.emplace_back(link_, rails_[move.rail], move.rail, alignment.index, limits_.max_placeholders,
                         silent_[move.rail]);
    auto reached = move_all(alignment, moves);
    auto back = restore(moves);  // called after success too, because placeholders must not stay in a GID table
    for (std::size_t i = 0; i < moves.size(); ++i) {
      AlignMove& all = moved_.try_emplace(alignment.moves[i].rail, alignment.moves[i]).first->second;
      all = alignment.moves[i];
      all.from = started_[all.rail];
      report_.placeholders += moves[i].placeholders();
    }
    if (back) return reached;
    Error error = std::move(back).error();
    if (!reached.has_value()) error.message = fmt::format("{}; {}", reached.error().message, error.message);
    return error;
  }

  // Does each step for all rails before the next step, so that the kernel works for all rails during one wait.
  Result<bool> move_all(const Alignment& alignment, std::vector<RailMove>& moves) {
    const auto named = [&](Error error, std::size_t i) {
      return base::wrap(std::move(error), fmt::format("cannot align `{}`", rails_[alignment.moves[i].rail].name));
    };
    const unsigned rounds_left = limits_.rounds - report_.rounds + 1;
    const auto until = link_.now() + (deadline_ - link_.now()) / rounds_left;
    for (std::size_t i = 0; i < moves.size(); ++i)
      if (auto begun = moves[i].begin(alignment.moves[i].fill); !begun) return named(begun.error(), i);
    for (std::size_t i = 0; i < moves.size(); ++i) {
      const auto held = moves[i].hold_target(until);
      if (!held.has_value()) return named(held.error(), i);
      if (!*held) return false;
    }
    for (std::size_t i = 0; i < moves.size(); ++i)
      if (auto swapped = moves[i].swap(); !swapped) return named(swapped.error(), i);
    bool all = true;
    for (std::size_t i = 0; i < moves.size(); ++i) {
      const auto landed = moves[i].landed(until);
      if (!landed.has_value()) return named(landed.error(), i);
      all = all && *landed;
    }
    return all;
  }

  Result<void> restore(std::vector<RailMove>& moves) {
    // RailMove::restore() is called for all rails before the first wait, so that the kernel changes all GID tables
    // during one wait. settle() repeats the calls that fail.
    for (RailMove& move : moves)
      (void)move.restore();
    std::optional<Error> failed;
    const auto until = std::max(link_.now(), deadline_) + limits_.time / 2;
    for (RailMove& move : moves) {
      auto settled = move.settle(until);
      if (settled) continue;
      if (failed) settled.error().message = fmt::format("{}; {}", failed->message, settled.error().message);
      failed = std::move(settled).error();
    }
    return failed ? Result<void>(*std::move(failed)) : Result<void>();
  }

  AlignReport report(unsigned index) {
    report_.done.index = index;
    for (const auto& [rail, move] : moved_) {
      if (move.from == index) continue;
      report_.done.moves.push_back(move);
      report_.slots_moved += gid_types(rails_[rail].table);
    }
    report_.text = to_string(report_.done, rails_);
    return std::move(report_);
  }

  Error failure(Error error) const {
    error.message = fmt::format("{} (GID indices now: {})", error.message, where());
    return error;
  }

  // Returns the present indices for messages: "3: rail0, rail2; 5: rail1".
  std::string where() const {
    std::map<std::string, std::vector<std::string>> names;
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
      const auto table = link_.read(rail, {rails_[rail].address}, 0);
      const auto index = table ? v2_index(*table, rails_[rail].address) : std::nullopt;
      names[index ? std::to_string(*index) : table ? "none" : "unknown"].push_back(rails_[rail].name);
    }
    std::string text;
    for (const auto& [index, list] : names) {
      text += text.empty() ? "" : "; ";
      text += index + ":";
      for (const std::string& name : list)
        text += (&name == &list.front() ? " " : ", ") + name;
    }
    return text;
  }

  std::vector<AlignRail> rails_;
  AlignLink& link_;
  AlignLimits limits_;
  std::vector<unsigned> started_;  // GID index of each rail before the first round
  std::vector<std::set<unsigned>> silent_;
  AlignLink::Clock::time_point deadline_;
  std::map<std::size_t, AlignMove> moved_;
  AlignReport report_;
};

}  // namespace

Result<AlignReport> run_alignment(std::vector<AlignRail> rails, AlignLink& link, const AlignLimits& limits) {
  return Run(std::move(rails), link, limits).run();
}

}  // namespace hook
