// Whether a container lives, by the state file of its runtime, and which runtime made it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/json/record.hpp"
#include "hook/ledger/absence.hpp"
#include "hook/ledger/runtime_records.hpp"
#include "hook/ledger/runtime_state.hpp"
#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using namespace test_support;
using Kind = RuntimeState::Kind;

class RuntimeStates : public ConsistentLedger, public testing::WithParamInterface<Kind> {
 protected:
  RuntimeStates() {
    fs::create_directories(bundle_);
    fs::create_directories(root_);
    state_ = identify_runtime_state(GetParam(), root_).value();
  }
  static bool is_runc() { return GetParam() == Kind::kRunc; }

  // Returns a state as the runtimes write it, with other members.
  static Json document(const ProcessIdentity& init, const std::string& bundle) {
    if (!is_runc()) return {{"pid", init.pid}, {"process-start-time", init.start_time}, {"bundle", bundle}};
    const Json labels{"bundle=/evil", "bundle=" + bundle};
    return {{"id", "c"},
            {"init_process_pid", init.pid},
            {"init_process_start", init.start_time},
            {"config", {{"rootfs", "/r"}, {"labels", labels}}}};
  }
  static const char* pid_member() { return is_runc() ? "init_process_pid" : "pid"; }
  static const char* start_member() { return is_runc() ? "init_process_start" : "process-start-time"; }

  std::string state_file() const { return root_ + (is_runc() ? "/c/state.json" : "/c/status"); }
  void write(const std::string& text) const { write_file(state_file(), text); }
  void write(const ProcessIdentity& init, const std::string& bundle) const { write(document(init, bundle).dump()); }
  std::string seen() const { return sight(read_presence(state_, "c", bundle_)); }
  // Returns the user of container `c` with this state.
  GrantUser user(const ProcessIdentity& process, const std::string& key = "c") const {
    return {key, "c", process, bundle_, {}, {}, state_};
  }
  bool is_unknown() const { return !read_presence(state_, "c", bundle_); }

  std::string bundle_ = temp_ / "bundle";
  std::string root_ = temp_ / "root";
  RuntimeState state_;
};

TEST_P(RuntimeStates, DetectsLivingAndDeadInit) {
  Child init;
  write(init.identity(), bundle_);
  EXPECT_EQ(seen(), "present");
  init.kill();
  EXPECT_EQ(seen(), "gone");
  write({::getpid(), myself().start_time + 1}, bundle_);
  EXPECT_EQ(seen(), "gone") << "the pid belongs to another process";
}

TEST_P(RuntimeStates, ContainerOfAnotherBundleIsAbsent) {
  fs::create_directories(temp_ / "other");
  write(myself(), temp_ / "other");
  EXPECT_EQ(seen(), "gone");
  fs::create_directory_symlink(bundle_, temp_ / "link");
  write(myself(), temp_ / "link");
  EXPECT_EQ(seen(), "present") << "two paths of one directory";
  write(myself(), temp_ / "missing");
  EXPECT_EQ(seen(), "unknown: ENOENT") << "it may have been a link";
}

TEST_P(RuntimeStates, MissingStateIsAbsentOrUnknown) {
  EXPECT_EQ(seen(), "gone");
  fs::create_directory(root_ + "/c");
  const auto begun = read_presence(state_, "c", bundle_);
  EXPECT_EQ(error_code(begun), ENOENT);
  const std::string remedy = std::string(is_runc() ? "runc" : "crun") + " --root " + root_ + " delete --force c";
  EXPECT_TRUE(has_text(error_hint(begun), remedy));
}

TEST_P(RuntimeStates, AnotherRootIsUnknown) {
  const auto in_turn = [&](const char* there, const std::function<void()>& change) {
    change();
    EXPECT_EQ(seen(), there);
  };
  in_turn("unknown: ENOENT", [&] { fs::rename(root_, temp_ / "away"); });
  in_turn("unknown: ESTALE", [&] { fs::create_directory(root_); });
  in_turn("unknown: ESTALE", [&] { write(dead_process(), bundle_); });
  in_turn("unknown: ENOTDIR", [&] {
    fs::remove_all(root_);
    write_file(root_, "");
  });
  in_turn("gone", [&] {
    fs::remove(root_);
    fs::rename(temp_ / "away", root_);
  });
}

TEST_P(RuntimeStates, RecoverWarnsOfReplacedRoot) {
  Child requester;
  ASSERT_EQ(allocate(web_, {kAlone}, user(requester.identity())), "");
  fs::rename(root_, temp_ / "away");
  fs::create_directory(root_);
  EXPECT_EQ(ledger_.recover()->warnings, std::vector<std::string>{}) << "its `create` runs";
  requester.kill();
  const std::string file = grant_file(web_);
  EXPECT_EQ(ledger_.recover()->warnings,
            std::vector<std::string>{
                "the grant of container web is held for container `c`: cannot read the runtime's state `" + root_ +
                "`: Stale file handle: it is not the recorded directory; run this command in the node's mount "
                "namespace; or, if no container that uses it runs, remove `" +
                file + "` and call `rdma-hook recover` again"});
  fs::remove(file);
  ASSERT_TRUE(ledger_.recover());
  EXPECT_EQ(ledger_problems(path_), "");
  EXPECT_EQ(allocate(db_, {kAlone}, {db_.key, "db", myself()}), "");
}

TEST_P(RuntimeStates, UnreadableStateIsUnknown) {
  const std::string whole = document(dead_process(), bundle_).dump();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(whole.substr(0, length));
    ASSERT_TRUE(is_unknown()) << length;
  }
  write(whole);
  ASSERT_EQ(seen(), "gone");
  const Json whole_document = document(dead_process(), bundle_);
  for (const char* member : {pid_member(), start_member(), is_runc() ? "config" : "bundle"}) {
    for (const Json& wrong : {Json(), Json("1"), Json(-1), Json(0), Json(1.5), Json(Json::object())}) {
      Json damaged = whole_document;
      damaged[member] = wrong;
      write(damaged.dump());
      EXPECT_TRUE(is_unknown()) << damaged;
    }
  }
  fs::remove(state_file());
  fs::create_symlink("/dev/null", state_file());
  EXPECT_EQ(seen(), "unknown: ELOOP");
  fs::remove(state_file());
  fs::create_directory(state_file());
  EXPECT_EQ(seen(), "unknown: EISDIR");
  fs::remove_all(root_ + "/c");
  write_file(root_ + "/c", "");
  EXPECT_EQ(seen(), "unknown: ENOTDIR");
}

TEST_P(RuntimeStates, DeniedLookupIsUnknown) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, for another user";
  write(dead_process(), bundle_);
  const auto look = [&] {
    return read_presence(state_, "c", bundle_).has_value() ? 0 : read_presence(state_, "c", bundle_).error().code;
  };
  const auto look_as_nobody = [&] { return ::seteuid(65534) == 0 ? look() : -1; };
  ASSERT_EQ(::chmod(temp_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(root_.c_str(), 0700), 0);
  EXPECT_EQ(in_child(look_as_nobody), EACCES);
  const auto look_without_descriptors = [&] {
    const rlimit none{0, 0};
    return ::setrlimit(RLIMIT_NOFILE, &none) == 0 ? look() : -1;
  };
  EXPECT_EQ(in_child(look_without_descriptors), EMFILE);
}

// Each state of the files of a container from `create` to `delete`, and its living process. The grant is held as long
// as a process lives, and free at the end.
TEST_P(RuntimeStates, HcaStaysHeldFromCreateToEnd) {
  Child requester;
  Child init;
  ASSERT_EQ(allocate(web_, {kAlone}, user(requester.identity())), "");
  const std::string whole = document(init.identity(), bundle_).dump();
  const auto is_held = [&] { return !exclusive_owner(db_).empty() && ledger_.recover()->released.empty(); };
  const std::pair<const char*, std::function<void()>> steps[] = {
      {"booked", [] {}},
      {"begun", [&] { fs::create_directory(root_ + "/c"); }},
      {"half written", [&] { write(whole.substr(0, whole.size() / 2)); }},
      {"written", [&] { write(whole); }},
      {"created", [&] { requester.kill(); }},
      {"half written anew", [&] { write(whole.substr(0, whole.size() / 2)); }},
      {"updated", [&] { write(whole); }},
      {"another's in its place", [&] { write(document(myself(), bundle_).dump()); }},
      {"and back", [&] { write(whole); }}};
  for (const auto& [step, change] : steps) {
    change();
    EXPECT_TRUE(is_held()) << step;
  }
  init.kill();
  EXPECT_FALSE(is_held()) << "its init has ended";
}

// The poststop of a killed `delete`, after the next container of this id and bundle has started.
TEST_P(RuntimeStates, LatePoststopKeepsLivingContainer) {
  Child requester;
  Child init;
  ASSERT_EQ(allocate(web_, {kAlone}, user(requester.identity())), "");
  const auto leaves = [&] {
    EXPECT_TRUE(ledger_.leave(web_, "c"));
    return !find(web_);
  };
  EXPECT_FALSE(leaves()) << "its runtime is creating it";
  write(init.identity(), bundle_);
  requester.kill();
  EXPECT_FALSE(leaves()) << "it runs";
  write("{");
  EXPECT_FALSE(leaves()) << "the state is unknown";
  write(init.identity(), bundle_);
  init.kill();
  EXPECT_TRUE(leaves()) << "crun removes its state after poststop";
}

// The next container of the pod may start at any moment.
TEST_P(RuntimeStates, KeepsGrantOfPodAfterMissedPoststop) {
  const std::string netns = temp_ / "netns";
  write_file(netns, "");
  const Owner pod = pod_of(netns);
  Child requester;
  Child init;
  const auto returned = [&] { return ledger_.recover()->released.size(); };
  ASSERT_EQ(allocate(pod, {kAlone}, user(requester.identity())), "");
  EXPECT_EQ(returned(), 0U);
  write(init.identity(), bundle_);
  requester.kill();
  EXPECT_EQ(returned(), 0U);
  init.kill();
  EXPECT_EQ(returned(), 0U) << "not deleted yet";
  fs::remove_all(root_ + "/c");
  EXPECT_EQ(returned(), 0U) << "deleted, without poststop";
  ASSERT_EQ(allocate(pod, {kAlone}, {"next", "next", dead_process(), bundle_, {}, {}, state_}), "");
  EXPECT_EQ(returned(), 0U);
  ASSERT_TRUE(ledger_.leave(pod, "next"));
  EXPECT_EQ(returned(), 0U) << "without any user";
  fs::remove(netns);
  EXPECT_EQ(returned(), 1U);
}

// The next `create` of this id and bundle, in each state of its predecessor.
TEST_P(RuntimeStates, BookingDoesNotReplaceUserThatHasNotEnded) {
  Child first;
  Child init;
  const Child second;
  ASSERT_EQ(allocate(web_, {kAlone}, user(first.identity(), web_.key)), "");
  const std::string before = read_file(grant_file(web_));
  const auto expect_busy = [&](const std::string& words) {
    const auto booked = test_support::book(ledger_, web_, {kAlone}, user(second.identity(), web_.key));
    EXPECT_EQ(error_code(booked), EBUSY);
    EXPECT_TRUE(has_text((error_message(booked) + error_hint(booked)), words)) << error_message(booked);
    EXPECT_EQ(read_file(grant_file(web_)), before);
    EXPECT_EQ(ledger_problems(path_), "");
  };
  expect_busy(fmt::format("process {} of a container of this id and bundle", first.identity().pid));
  fs::create_directory(root_ + "/c");
  first.kill();
  expect_busy("delete --force c");
  write(init.identity(), bundle_);
  expect_busy("a container of this id and bundle exists below the runtime root `" + root_ + "`");
  init.kill();
  EXPECT_TRUE(test_support::book(ledger_, web_, {kAlone}, user(second.identity(), web_.key)));
}

// The two differ only in the runtime's root. A poststop names no root, and ends the users that are gone.
TEST_P(RuntimeStates, ContainersOfTwoRootsAreTwoOwners) {
  const std::string other = temp_ / "other";
  fs::create_directories(other);
  const auto owner_below = [&](const std::string& root) {
    return container_owner("c", root_name(identify_runtime_state(GetParam(), root).value()));
  };
  const Owner here = owner_below(root_);
  const Owner there = owner_below(other);
  EXPECT_NE(here.key, there.key);
  EXPECT_EQ(here.key, owner_below(root_ + "/.").key);
  EXPECT_NE(here.key, container_owner("c", bundle_).key);
  Child first;
  ASSERT_EQ(allocate(here, {kAlone}, {here.key, "c", first.identity(), bundle_, {}, {}, state_}), "");
  EXPECT_FALSE(test_support::book(ledger_, there, {kAlone}, {there.key, "c", myself(), bundle_}));
}

TEST_P(RuntimeStates, GrantRecordsStateAndIsReleasedAfterFailedStart) {
  const Json kept = to_record(state_);
  EXPECT_EQ(from_record<RuntimeState>(kept).value(), state_);
  EXPECT_FALSE(from_record<RuntimeState>(Json{{"runtime", "kata"}, {"root", kept["root"]}}));
  EXPECT_FALSE(from_record<RuntimeState>(Json::object()));
  ASSERT_EQ(allocate(web_, {kAlone}, user(myself())), "");
  EXPECT_EQ(find(web_)->users.at(0).state, state_);
  ASSERT_TRUE(ledger_.release_grant(web_.key));
  Child requester;
  ASSERT_EQ(allocate(web_, {kAlone}, user(requester.identity())), "");
  requester.kill();
  EXPECT_EQ(ledger_.recover()->released.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Of, RuntimeStates, testing::Values(Kind::kRunc, Kind::kCrun),
                         [](const auto& kind) { return kind.param == Kind::kRunc ? "runc" : "crun"; });

class RuntimeRecords : public testing::Test {
 protected:
  RuntimeRecords() { fs::create_directories(root_ + "/web"); }
  std::string recall(const std::string& key) {
    const auto record = recall_runtime(ledger_, key);
    if (!record) return record.error().message;
    return *record ? (*record)->runtime : "";
  }
  std::string sweep(SweptRuntimes which) {
    sweep_runtimes(ledger_, which);
    return entries(ledger_ + "/runtime/containers") + "|" + entries(ledger_ + "/runtime/ending");
  }

  TempDir temp_;
  std::string ledger_ = temp_ / "ledger";
  std::string root_ = temp_ / "root";
  RuntimeRecord web_{"/bin/a runtime", dead_process(), root_ + "/web"};
};

TEST_F(RuntimeRecords, KeepsRecordWhileContainerExists) {
  EXPECT_EQ(recall("web"), "");
  web_.container_path += "\nand more";
  ASSERT_TRUE(remember_runtime(ledger_, "web", web_));
  const auto record = must(must(recall_runtime(ledger_, "web")));
  EXPECT_EQ(record.runtime, web_.runtime);
  EXPECT_EQ(record.creator, web_.creator);
  EXPECT_EQ(record.container_path, web_.container_path);
  EXPECT_EQ(fs::status(ledger_).permissions(), fs::perms::owner_all);
  forget_runtime(ledger_, "web");
  EXPECT_EQ(recall("web"), "");
  web_.container_path = root_ + "/web";
  ASSERT_TRUE(remember_runtime(ledger_, "web", web_));
  ASSERT_TRUE(remember_runtime(ledger_, "web", web_)) << "the same again";
  RuntimeRecord other{"/bin/other", myself(), ""};
  EXPECT_EQ(error_code(remember_runtime(ledger_, "web", other)), EEXIST);
  EXPECT_EQ(recall("web"), web_.runtime);
  fs::remove(web_.container_path);
  ASSERT_TRUE(remember_runtime(ledger_, "web", other));
  EXPECT_EQ(recall("web"), "/bin/other");
}

TEST_F(RuntimeRecords, SweepsOnlyProvenAbsentContainers) {
  EXPECT_EQ(sweep(SweptRuntimes::kAll), "|");
  ASSERT_TRUE(remember_runtime(ledger_, "present", web_));
  ASSERT_TRUE(remember_runtime(ledger_, "being-made", {"/r", myself(), root_ + "/none"}));
  ASSERT_TRUE(remember_runtime(ledger_, "unknown", {"/r", dead_process(), ""}));
  ASSERT_TRUE(remember_runtime(ledger_, "elsewhere", {"/r", dead_process(), temp_ / "unseen/none"}));
  ASSERT_TRUE(remember_runtime(ledger_, "gone", {"/r", dead_process(), root_ + "/none"}));
  mark_ending(ledger_, "never-was");
  EXPECT_EQ(sweep(SweptRuntimes::kEnding), "being-made elsewhere gone present unknown|");
  for (const char* key : {"being-made", "elsewhere", "gone", "present", "unknown"})
    mark_ending(ledger_, key);
  EXPECT_EQ(sweep(SweptRuntimes::kEnding), "being-made elsewhere present unknown|being-made elsewhere present unknown");
  // A mark without a record.
  forget_runtime(ledger_, "unknown");
  EXPECT_EQ(sweep(SweptRuntimes::kEnding), "being-made elsewhere present|being-made elsewhere present");
}

TEST_F(RuntimeRecords, SweepOfAllNeedsNoMarks) {
  ASSERT_TRUE(remember_runtime(ledger_, "present", web_));
  ASSERT_TRUE(remember_runtime(ledger_, "gone", {"/r", dead_process(), root_ + "/none"}));
  EXPECT_EQ(sweep(SweptRuntimes::kEnding), "gone present|");
  EXPECT_EQ(sweep(SweptRuntimes::kAll), "present|");
}

TEST_F(RuntimeRecords, RefusesDamagedRecords) {
  ASSERT_TRUE(remember_runtime(ledger_, "web", web_));
  for (const char* target : {"x", "1.2", "1.2 /r", "1.2 r\n", "1 /r\n", "1.x /r\n", " /r\n", "1.2 \n/w"}) {
    forget_runtime(ledger_, "web");
    ASSERT_EQ(::symlink(target, (ledger_ + "/runtime/containers/web").c_str()), 0);
    EXPECT_TRUE(has_text(recall("web"), "cannot read")) << target;
    EXPECT_EQ(sweep(SweptRuntimes::kAll), "web|") << target;
  }
}

TEST_F(RuntimeRecords, WritesChangedChoiceOnce) {
  EXPECT_FALSE(*last_choice(ledger_));
  for (const RuntimeChoice& choice :
       {RuntimeChoice{std::nullopt, "/bin/a runtime"}, RuntimeChoice{Engine::kCrio, "/bin/crun"}}) {
    ASSERT_TRUE(keep_choice(ledger_, choice));
    EXPECT_EQ(*last_choice(ledger_), choice);
    struct stat before {};
    ASSERT_EQ(::lstat((ledger_ + "/runtime/settings").c_str(), &before), 0);
    ASSERT_TRUE(keep_choice(ledger_, choice));
    struct stat after {};
    ASSERT_EQ(::lstat((ledger_ + "/runtime/settings").c_str(), &after), 0);
    EXPECT_EQ(before.st_ino, after.st_ino);
  }
  write_file(temp_ / "file", "");
  EXPECT_FALSE(keep_choice(temp_ / "file", {std::nullopt, "/bin/a"}));
  EXPECT_FALSE(remember_runtime(temp_ / "file", "web", web_));
}

}  // namespace
}  // namespace hook
