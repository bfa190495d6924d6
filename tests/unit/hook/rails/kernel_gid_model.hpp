// A model of the kernel's GID tables for alignments: drivers/infiniband/core/cache.c and roce_gid_mgmt.c, Linux 6.12.
// Netlink calls only queue work; one ordered queue serves all ports of the node.
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "hook/rails/align/align.hpp"

namespace test_support {

// The table of one port. Slots below `types` are for link-local GIDs only.
class KernelGidTable {
 public:
  struct Slot {
    fabric::Address gid;  // zero: free
    bool v2 = false;
    unsigned netdev = 0;
    bool is_used = false;    // by a queue pair: the slot stays in use after its GID is removed
    bool is_dying = false;   // a removed GID in use: reads as empty
    bool is_hidden = false;  // reads as empty (MLNX_OFED, another namespace)
    friend bool operator==(const Slot&, const Slot&) = default;
  };

  explicit KernelGidTable(unsigned length = 0, unsigned types = 2, std::uint8_t port = 0);

  // Adds the GIDs of a netdev's address, by first fit for each type. A GID that finds no slot is not added.
  void add(const fabric::Address& gid, unsigned netdev);
  void remove(const fabric::Address& gid, unsigned netdev);
  // Puts one GID into this slot.
  void set(unsigned index, const fabric::Address& gid, bool v2, unsigned netdev);

  Slot& at(unsigned index) { return slots_.at(index); }
  const std::vector<Slot>& slots() const { return slots_; }
  unsigned length() const { return static_cast<unsigned>(slots_.size()); }
  unsigned types() const { return types_; }
  // Returns the index of the v2 GID of this netdev.
  std::optional<unsigned> find(const fabric::Address& gid, unsigned netdev) const;
  bool is_visible(unsigned index) const;
  // Returns the first `read` slots as sysfs shows them.
  hook::GidTable read(unsigned read) const;

 private:
  std::vector<Slot> slots_;
  unsigned types_;
};

// The node: its ports and the queue of the kernel.
struct KernelGidModel {
  struct Work {
    std::size_t port = 0;
    bool is_add = true;
    fabric::Address gid;
    unsigned netdev = 0;
  };
  std::vector<KernelGidTable> ports;
  std::deque<Work> queue;

  // Does the oldest `count` changes in the queue.
  void work(std::size_t count = ~std::size_t{0});
};

constexpr unsigned kOwnNetdev = 1;

// Rails of one container on the model, rail n on port n, with its own clock. Every call first runs `meanwhile`: changes
// of other containers, and work of the kernel, by default one change of the queue.
class ModelLink : public hook::AlignLink {
 public:
  ModelLink(KernelGidModel& model, std::vector<fabric::Address> addresses);

  base::Result<void> remove_address(std::size_t rail) override;
  base::Result<void> add_address(std::size_t rail) override;
  base::Result<void> add_placeholders(std::size_t rail, unsigned from, unsigned to) override;
  base::Result<void> remove_placeholder(std::size_t rail, unsigned number) override;
  base::Result<hook::GidTable> read(std::size_t rail, const std::vector<fabric::Address>& wanted,
                                    unsigned at_least) override;
  void wait() override;
  Clock::time_point now() override { return now_; }

  std::function<void()> meanwhile;
  // Called before every call, which fails with its error. what: "remove_address 1", "add_placeholder 0 3", "read 2".
  std::function<base::Result<void>(const std::string& what)> fails = [](const std::string&) {
    return base::Result<void>();
  };
  // The addresses that are configured on each rail's netdev.
  std::vector<std::set<fabric::Address>> configured;
  unsigned reads = 0;
  unsigned slots_read = 0;
  unsigned most_placeholders = 0;

 private:
  base::Result<void> change(std::size_t rail, bool is_add, const fabric::Address& gid, const std::string& what);

  KernelGidModel& model_;
  std::vector<fabric::Address> addresses_;
  Clock::time_point now_{};
};

}  // namespace test_support
