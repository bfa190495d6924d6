#include "unit/hook/ledger/scene.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/text_digest.hpp"

namespace test_support {

base::ProcessIdentity myself() {
  return base::identify(getpid()).value();
}

base::ProcessIdentity dead_process() {
  Child child;
  return child.identity();
}

std::string sight(const base::Result<base::Presence>& seen) {
  if (!seen) return std::string("unknown: ") + strerrorname_np(seen.error().code);
  return *seen == base::Presence::kAbsent ? "gone" : "present";
}

int in_child(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool hide_proc() {
  return unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
}

Child::Child(const std::function<void()>& first) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    if (first) first();
    close(ends[0]);
    close(ends[1]);
    for (;;)
      pause();
  }
  close(ends[1]);
  char end = 0;
  EXPECT_EQ(read(ends[0], &end, 1), 0);
  close(ends[0]);
  identity_ = base::identify(pid).value();
}

Child::~Child() {
  kill();
}

void Child::kill() {
  if (identity_.pid == 0) return;
  ::kill(identity_.pid, SIGKILL);
  waitpid(identity_.pid, nullptr, 0);
  identity_.pid = 0;
}

base::Result<void> book(const hook::Ledger& ledger, const hook::Owner& owner, const std::vector<hook::PlannedHca>& hcas,
                        const hook::GrantUser& user) {
  std::vector<std::string> names;
  for (const auto& hca : hcas)
    names.push_back(hca.name);
  auto locked = TRY(ledger.lock(names));
  TRY(locked.holdings(owner, {}));
  return locked.book(owner, hcas, user);
}

hook::Owner LedgerScene::pod_of(const std::string& path) {
  return hook::netns_owner(hook::identify_netns(path).value());
}

std::string LedgerScene::allocate(const hook::Owner& owner, const std::vector<hook::PlannedHca>& hcas,
                                  const hook::GrantUser& user) const {
  const auto booked = book(ledger_, owner, hcas, user);
  if (!booked) return booked.error().message;
  const auto settled = ledger_.settle(owner.key);
  return settled ? "" : settled.error().message;
}

std::string LedgerScene::allocate(const hook::Owner& owner, const std::vector<hook::PlannedHca>& hcas,
                                  std::optional<base::ProcessIdentity> process) const {
  return allocate(owner, hcas, hook::GrantUser{owner.key, "c", process});
}

void LedgerScene::book_and_die(const hook::Owner& owner, const std::vector<hook::PlannedHca>& hcas,
                               const hook::GrantUser& user) const {
  ASSERT_EQ(in_child([&] {
              const auto ledger = hook::Ledger::open(path_);
              return ledger && book(*ledger, owner, hcas, user) ? 0 : 1;
            }),
            0);
}

std::optional<hook::Grant> LedgerScene::find(const hook::Owner& owner) const {
  const auto grant = ledger_.find(owner.key);
  if (grant) return *grant;
  ADD_FAILURE() << grant.error().message;
  return std::nullopt;
}

namespace {

template <typename List, typename Name>
std::string listed(const base::Result<std::optional<hook::Grant>>& grant, List hook::Grant::*list, Name name) {
  if (!grant) return grant.error().message;
  if (!*grant) return "no grant";
  std::string text;
  for (const auto& entry : (**grant).*list)
    text += (text.empty() ? "" : " ") + entry.*name;
  return text;
}

}  // namespace

std::string LedgerScene::held(const hook::Owner& owner) const {
  return listed(ledger_.find(owner.key), &hook::Grant::hcas, &hook::PlannedHca::name);
}

std::string LedgerScene::users(const hook::Owner& owner) const {
  return listed(ledger_.find(owner.key), &hook::Grant::users, &hook::GrantUser::key);
}

std::string LedgerScene::exclusive_owner(const hook::Owner& requesting) const {
  const auto locked = ledger_.lock({kAlone.name});
  const auto holdings = locked ? locked->holdings(requesting, {{kAlone.name, {1, 1}}}) : locked.error();
  return holdings ? holdings->at(kAlone.name).exclusive_owner.value_or("") : holdings.error().message;
}

void ConsistentLedger::TearDown() {
  if (!is_damaged_ && !IsSkipped()) {
    EXPECT_EQ(ledger_problems(path_), "");
  }
}

ino_t inode(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

std::string entries(const std::string& directory) {
  std::set<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none))
    names.insert(entry.path().filename());
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : " ") + name;
  return text;
}

std::string ledger_problems(const std::string& path) {
  const auto ledger = hook::Ledger::open(path);
  const auto grants = ledger ? ledger->list() : ledger.error();
  if (!grants) return grants.error().message;
  std::map<std::string, std::set<std::string>> indexed_keys;
  std::map<std::string, std::set<std::string>> alone;
  std::set<std::string> views;
  std::string absent_claims;
  for (const hook::Grant& grant : *grants) {
    for (const auto& hca : grant.hcas) {
      if (!hca.claim.empty()) {
        const auto is_claim = [&](const hook::Grant& one) { return one.owner.key == hca.claim; };
        const auto claim = std::ranges::find_if(*grants, is_claim);
        if (claim == grants->end() || !find_hca(claim->hcas, booked_as(hca)))
          absent_claims += hca.claim + " does not hold " + hca.name + " of " + grant.owner.key + "\n";
        continue;
      }
      indexed_keys[booked_as(hca)].insert(grant.owner.key + "@" + std::to_string(hca.units));
      if (hca.mode == hook::Mode::kExclusive) alone[booked_as(hca)].insert(grant.owner.key);
    }
    for (const auto& user : grant.users)
      if (!user.view.empty() && !grant.pending) views.insert(user.view);
  }
  const auto joined = [](const std::set<std::string>& names) {
    std::string text;
    for (const std::string& name : names)
      text += (text.empty() ? "" : " ") + name;
    return text;
  };
  std::string problems = absent_claims;
  for (const auto& entry : std::filesystem::directory_iterator(path + "/hca")) {
    const std::string hca = entry.path().filename();
    const std::string indexed = entries(entry.path().string() + "/holders");
    if (indexed != joined(indexed_keys[hca]))
      problems += hca + " has [" + indexed + "], not [" + joined(indexed_keys[hca]) + "]\n";
    std::error_code none;
    std::string link = std::filesystem::read_symlink(entry.path() / "exclusive", none);
    if (link == "none" && !indexed_keys[hca].empty())
      problems += hca + " is free, but has " + joined(indexed_keys[hca]) + "\n";
    if (link == "none" || link == "shared") link.clear();
    if (link != joined(alone[hca])) problems += hca + " is [" + link + "]'s, not [" + joined(alone[hca]) + "]'s\n";
    if (alone[hca].size() > 1 || (alone[hca].size() == 1 && indexed_keys[hca].size() > 1))
      problems += hca + " has several holders: " + joined(indexed_keys[hca]) + "\n";
    indexed_keys.erase(hca);
  }
  for (const auto& [hca, keys] : indexed_keys)
    problems += hca + " has no entry of " + joined(keys) + "\n";
  for (const hook::Grant& grant : *grants) {
    for (const auto& user : grant.users) {
      for (const std::string& id : {user.id, user.pod}) {
        const auto found = path + "/ids/" + base::text_digest(id) + "/" + grant.owner.key;
        if (!id.empty() && !std::filesystem::is_symlink(found)) problems += id + " does not lead to " + found + "\n";
      }
    }
  }
  for (const std::string& view : views)
    if (!std::filesystem::is_directory(path + "/views/" + view)) problems += "missing: view " + view + "\n";
  return problems;
}

namespace {

// Call it for a process that is stopped at the entry of a system call.
bool is_about_memory(pid_t pid) {
  __ptrace_syscall_info info{};
  if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0) return false;
  constexpr std::array kCalls = {SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise};
  return std::ranges::find(kCalls, static_cast<long>(info.entry.nr)) != kCalls.end();
}

}  // namespace

Traced run_traced(const std::function<int()>& body, long stop_before, const std::function<void()>& meanwhile) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(125);
    raise(SIGSTOP);
    _exit(body());
  }
  Traced result;
  int status = 0;
  waitpid(pid, &status, 0);
  result.possible = WIFSTOPPED(status);
  if (!result.possible) return result;
  ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
  bool entering = true;
  long entered = 0;
  while (ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr) == 0 && waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    if (entering && ++entered == stop_before) {
      result.stopped = true;
      if (meanwhile) {
        meanwhile();
      } else {
        // After a fatal signal at the entry, the kernel does not execute the call.
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return result;
      }
    }
    if (entering && !is_about_memory(pid)) ++result.calls;
    entering = !entering;
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace test_support
