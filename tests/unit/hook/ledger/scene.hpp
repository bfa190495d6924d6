// Fixtures for tests of the ledger: living and dead processes, and functions that read the directory without the
// ledger's code.
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

base::ProcessIdentity myself();
// Returns a process that has ended.
base::ProcessIdentity dead_process();

// Returns "present", "gone", or "unknown: " and the errno's name.
std::string sight(const base::Result<base::Presence>& seen);
// Runs body in a child and returns its result: 0 to 255.
int in_child(const std::function<int()>& body);
// Call it in a child: makes /proc an empty directory. Returns false if this machine does not allow it.
bool hide_proc();

// A process that waits until kill() or the destructor ends it. first: runs in that process before the constructor
// returns.
class Child {
 public:
  explicit Child(const std::function<void()>& first = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  base::ProcessIdentity identity() const { return identity_; }
  void kill();

 private:
  base::ProcessIdentity identity_;
};

// Locks, reads the holdings as a hook does, and books, without settle().
base::Result<void> book(const hook::Ledger& ledger, const hook::Owner& owner, const std::vector<hook::PlannedHca>& hcas,
                        const hook::GrantUser& user);

// A ledger in its own directory, with owners that request HCAs.
class LedgerScene : public testing::Test {
 protected:
  explicit LedgerScene(std::shared_ptr<const hook::GrantEffects> effects = nullptr)
      : ledger_(hook::Ledger::open(path_, std::move(effects)).value()) {}

  // Returns the pod with the network namespace at this path.
  static hook::Owner pod_of(const std::string& path);
  // Books and settles, as for a container that runs. Returns "" or the error.
  std::string allocate(const hook::Owner& owner, const std::vector<hook::PlannedHca>& hcas,
                       const hook::GrantUser& user) const;
  std::string allocate(const hook::Owner& owner, const std::vector<hook::PlannedHca>& hcas,
                       std::optional<base::ProcessIdentity> process = myself()) const;
  // Books in a process that ends before it settles.
  void book_and_die(const hook::Owner& owner, const std::vector<hook::PlannedHca>& hcas,
                    const hook::GrantUser& user) const;
  std::optional<hook::Grant> find(const hook::Owner& owner) const;
  // Returns names of HCAs, or keys of users, separated by blanks; "no grant", or the error.
  std::string held(const hook::Owner& owner) const;
  std::string users(const hook::Owner& owner) const;
  // Returns the exclusive owner of mlx5_0 as another owner gets it; "": none; or the error.
  std::string exclusive_owner(const hook::Owner& requesting) const;
  std::string grant_file(const hook::Owner& owner) const { return path_ + "/grants/" + owner.key + ".json"; }

  TempDir temp_;
  std::string path_ = temp_ / "ledger";
  hook::Ledger ledger_;
  hook::Owner web_ = hook::container_owner("web", "/run/web");
  hook::Owner db_ = hook::container_owner("db", "/run/db");
  hook::Owner pod_ = pod_of("/proc/self/ns/net");
};

// Checks at the end of each test that the ledger is consistent, unless the test has damaged it.
class ConsistentLedger : public LedgerScene {
 protected:
  using LedgerScene::LedgerScene;
  void TearDown() override;
  bool is_damaged_ = false;
};

// Returns 0 if there is no file.
ino_t inode(const std::string& path);
// Returns the sorted names in a directory, separated by blanks.
std::string entries(const std::string& directory);
// Returns the contradictions between index, views and grants; "": none. A view without a user is no contradiction: it
// stays until recover().
std::string ledger_problems(const std::string& path);

// Runs body in a child and stops it before the system call of this number, counted from 1, while `meanwhile` runs.
// Kills it there (SIGKILL) without a `meanwhile`. -1 never stops it.
struct Traced {
  bool possible = true;  // false: ptrace is not allowed here
  bool stopped = false;  // false: it ended before
  int exit_code = -1;
  long calls = 0;  // without calls for memory, which depend on the allocator and on sanitizers
};
Traced run_traced(const std::function<int()>& body, long stop_before, const std::function<void()>& meanwhile = {});

}  // namespace test_support
