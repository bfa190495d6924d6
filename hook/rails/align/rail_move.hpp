// One rail on its way to an index: the part of run_alignment() that is the same for each.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/result.hpp"
#include "hook/rails/align/align.hpp"

namespace hook {

// Everything that touches the kernel. rail: position in the rails given to run_alignment().
class AlignLink {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~AlignLink() = default;
  // The address of the rail, with the routes and rules that hang on it. Removing what is not there and adding what is
  // there already is success.
  virtual fabric::Result<void> remove_address(std::size_t rail) = 0;
  virtual fabric::Result<void> add_address(std::size_t rail) = 0;
  // Placeholders number from..to - 1, in ascending order.
  virtual fabric::Result<void> add_placeholders(std::size_t rail, unsigned from, unsigned to) = 0;
  // Success when it is not there.
  virtual fabric::Result<void> remove_placeholder(std::size_t rail, unsigned number) = 0;
  // As read_gid_table().
  virtual fabric::Result<GidTable> read(std::size_t rail, const std::vector<fabric::Address>& wanted,
                                        unsigned at_least) = 0;
  // Between two readings; about a millisecond.
  virtual void wait() = 0;
  virtual Clock::time_point now() { return Clock::now(); }
};

class RailMove {
 public:
  using Deadline = AlignLink::Clock::time_point;

  // rail: with its table as it was planned for. silent: slots of it that look free and are not; what is learned about
  // them is added.
  RailMove(AlignLink& link, const AlignRail& rail, std::size_t position, unsigned target, unsigned max_placeholders,
           std::set<unsigned>& silent);

  // The address goes, placeholders come.
  fabric::Result<void> begin(unsigned fill);
  // Waits until they are in the table and adds more where slots below the target became free. false: no placeholder
  // got the target, or not in time.
  fabric::Result<bool> hold_target(Deadline deadline);
  // The placeholder at the target goes, the address comes back.
  fabric::Result<void> swap();
  // Waits for the address's GID. false: it is elsewhere, or has none in time.
  fabric::Result<bool> landed(Deadline deadline);
  // No placeholder is left, and the address is there, whatever was done before; what fails is tried more than once.
  fabric::Result<void> restore();
  // Waits until the table shows that, after another restore() if one failed; an address that got no GID (a full table)
  // is added once more.
  fabric::Result<void> settle(Deadline deadline);

  unsigned placeholders() const { return next_ - first_; }

 private:
  fabric::Result<void> add(unsigned count);
  fabric::Result<std::optional<GidTable>> settled_table(Deadline deadline);
  std::vector<unsigned> holes(const GidTable& table) const;
  std::optional<unsigned> holder(const GidTable& table) const;
  fabric::Result<bool> is_restored(Deadline deadline);
  bool wait(Deadline deadline);

  AlignLink& link_;
  const AlignRail& rail_;
  std::size_t position_;
  unsigned target_;
  unsigned max_placeholders_;
  unsigned types_;
  std::set<unsigned>& silent_;
  std::set<unsigned> present_;  // placeholders
  unsigned first_ = 0;          // number of the first placeholder
  unsigned next_ = 0;
  std::optional<unsigned> holder_;
  bool is_out_ = false;  // the address is away, or may be
};

}  // namespace hook
