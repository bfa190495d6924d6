// What the tests of the ledger need: processes that live or do not, and a look at the directory that does not go
// through the ledger.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hook/ledger/ledger.hpp"
#include "support/temp_dir.hpp"

namespace test_support {

inline const hook::PlannedHca kAlone{"mlx5_0", hook::Mode::kExclusive, 1, std::nullopt};
inline const hook::PlannedHca kOtherAlone{"mlx5_1", hook::Mode::kExclusive, 1, std::nullopt};
inline const std::vector<hook::ViewEntry> kView = {{"infiniband", "mlx5_0", "../x"}};
inline const std::string kToken = "00112233445566778899aabbccddeeff";

hook::ProcessIdentity myself();
// One that has ended.
hook::ProcessIdentity dead_process();

// "present", "gone", or "unknown: " and the errno's name.
std::string sight(const fabric::Result<hook::Presence>& seen);
// What body returns in a child of its own: 0 to 255.
int in_child(const std::function<int()>& body);
// In a child: /proc is an empty directory from here on. False: not possible here.
bool hide_proc();

// A process that waits until it is killed, at the latest when this is gone. first: what it does before, which is done
// when this is made.
class Child {
 public:
  explicit Child(const std::function<void()>& first = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  hook::ProcessIdentity identity() const { return identity_; }
  void kill();

 private:
  hook::ProcessIdentity identity_;
};

// Locks, reads the holdings as a hook does, and books; not settled.
fabric::Result<void> book(const hook::Ledger& ledger, const hook::Owner& owner,
                          const std::vector<hook::PlannedHca>& hcas, const hook::GrantUser& user);

// A ledger in a directory of its own, and who asks it.
class LedgerScene : public testing::Test {
 protected:
  explicit LedgerScene(std::shared_ptr<const hook::GrantEffects> effects = nullptr)
      : ledger_(hook::Ledger::open(path_, std::move(effects)).value()) {}

  // The pod whose network namespace is this file's.
  static hook::Owner pod_of(const std::string& path);
  // A container that is there: booked and settled. "" or the error.
  std::string give(const hook::Owner& owner, const std::vector<hook::PlannedHca>& hcas,
                   const hook::GrantUser& user) const;
  std::string give(const hook::Owner& owner, const std::vector<hook::PlannedHca>& hcas,
                   std::optional<hook::ProcessIdentity> process = myself()) const;
  // By a process that is killed before it settles.
  void book_and_die(const hook::Owner& owner, const std::vector<hook::PlannedHca>& hcas,
                    const hook::GrantUser& user) const;
  std::optional<hook::Grant> find(const hook::Owner& owner) const;
  // Names of HCAs, and keys of users, with blanks between; "no grant", or the error.
  std::string held(const hook::Owner& owner) const;
  std::string users(const hook::Owner& owner) const;
  // Who holds mlx5_0 alone, as it is told to another; "": nobody. Or the error.
  std::string holder(const hook::Owner& asking) const;
  std::string grant_file(const hook::Owner& owner) const { return path_ + "/grants/" + owner.key + ".json"; }

  TempDir temp_;
  std::string path_ = temp_ / "ledger";
  hook::Ledger ledger_;
  hook::Owner web_ = hook::container_owner("web", "/run/web");
  hook::Owner db_ = hook::container_owner("db", "/run/db");
  hook::Owner pod_ = pod_of("/proc/self/ns/net");
};

// At the end of a test the ledger has to be consistent, unless the test has damaged it.
class ConsistentLedger : public LedgerScene {
 protected:
  using LedgerScene::LedgerScene;
  void TearDown() override;
  bool is_damaged_ = false;
};

// 0: there is none.
ino_t inode(const std::string& path);
// The names in a directory, sorted, with blanks between.
std::string entries(const std::string& directory);
// Where index, views and grants contradict each other (a view that nobody names stays until recover()); "": nowhere.
std::string ledger_problems(const std::string& path);

// Runs body in a child and stops it before its system call of this number, counted from 1, for as long as `meanwhile`
// takes; without one it is killed there (SIGKILL). -1 never stops it.
struct Traced {
  bool possible = true;  // false: ptrace is not allowed here
  bool stopped = false;  // false: it ended before
  int exit_code = -1;
  long calls = 0;  // without those for memory: how many an allocator makes is its own affair, and a sanitizer's
};
Traced run_traced(const std::function<int()>& body, long stop_before, const std::function<void()>& meanwhile = {});

}  // namespace test_support
