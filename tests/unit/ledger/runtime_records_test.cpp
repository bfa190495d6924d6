#include "hook/ledger/runtime_records.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "support/temp_dir.hpp"
#include "unit/ledger/scene.hpp"

namespace {

using hook::RuntimeRecord;
using hook::SweptRuntimes;
using test_support::dead_process;
using test_support::entries;
using test_support::myself;

class RuntimeRecords : public testing::Test {
 protected:
  RuntimeRecords() { std::filesystem::create_directories(root_ + "/web"); }
  std::string recall(const std::string& key) {
    const auto record = hook::recall_runtime(ledger_, key);
    if (!record) return record.error().message;
    return *record ? (*record)->runtime : "";
  }
  std::string sweep(SweptRuntimes which) {
    hook::sweep_runtimes(ledger_, which);
    return entries(ledger_ + "/runtime/containers") + "|" + entries(ledger_ + "/runtime/ending");
  }

  test_support::TempDir temp_;
  std::string ledger_ = temp_ / "ledger";
  std::string root_ = temp_ / "root";
  RuntimeRecord web_{"/bin/a runtime", dead_process(), root_ + "/web"};
};

TEST_F(RuntimeRecords, AreRecalledAsTheyWereMade) {
  EXPECT_EQ(recall("web"), "");
  web_.witness += "\nand more";
  ASSERT_TRUE(hook::remember_runtime(ledger_, "web", web_));
  const auto record = hook::recall_runtime(ledger_, "web");
  ASSERT_TRUE(record && *record);
  EXPECT_EQ((*record)->runtime, web_.runtime);
  EXPECT_EQ((*record)->creator, web_.creator);
  EXPECT_EQ((*record)->witness, web_.witness);
  EXPECT_EQ(std::filesystem::status(ledger_).permissions(), std::filesystem::perms::owner_all);
  hook::forget_runtime(ledger_, "web");
  EXPECT_EQ(recall("web"), "");
}

TEST_F(RuntimeRecords, AContainerThatIsThereKeepsItsRuntime) {
  ASSERT_TRUE(hook::remember_runtime(ledger_, "web", web_));
  ASSERT_TRUE(hook::remember_runtime(ledger_, "web", web_)) << "the same again";
  RuntimeRecord other{"/bin/other", myself(), ""};
  const auto refused = hook::remember_runtime(ledger_, "web", other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EEXIST);
  EXPECT_EQ(recall("web"), web_.runtime);
  std::filesystem::remove(web_.witness);
  ASSERT_TRUE(hook::remember_runtime(ledger_, "web", other));
  EXPECT_EQ(recall("web"), "/bin/other");
}

TEST_F(RuntimeRecords, OnlyWhatIsProvenToBeGoneIsSwept) {
  EXPECT_EQ(sweep(SweptRuntimes::kAll), "|");
  ASSERT_TRUE(hook::remember_runtime(ledger_, "present", web_));
  ASSERT_TRUE(hook::remember_runtime(ledger_, "being-made", {"/r", myself(), root_ + "/none"}));
  ASSERT_TRUE(hook::remember_runtime(ledger_, "unknown", {"/r", dead_process(), ""}));
  ASSERT_TRUE(hook::remember_runtime(ledger_, "elsewhere", {"/r", dead_process(), temp_ / "unseen/none"}));
  ASSERT_TRUE(hook::remember_runtime(ledger_, "gone", {"/r", dead_process(), root_ + "/none"}));
  hook::mark_ending(ledger_, "never-was");
  EXPECT_EQ(sweep(SweptRuntimes::kEnding), "being-made elsewhere gone present unknown|");
  for (const char* key : {"being-made", "elsewhere", "gone", "present", "unknown"})
    hook::mark_ending(ledger_, key);
  EXPECT_EQ(sweep(SweptRuntimes::kEnding), "being-made elsewhere present unknown|being-made elsewhere present unknown");
  // A mark whose record is gone.
  hook::forget_runtime(ledger_, "unknown");
  EXPECT_EQ(sweep(SweptRuntimes::kEnding), "being-made elsewhere present|being-made elsewhere present");
}

TEST_F(RuntimeRecords, RecoverSweepsThemAll) {
  ASSERT_TRUE(hook::remember_runtime(ledger_, "present", web_));
  ASSERT_TRUE(hook::remember_runtime(ledger_, "gone", {"/r", dead_process(), root_ + "/none"}));
  EXPECT_EQ(sweep(SweptRuntimes::kEnding), "gone present|");
  EXPECT_EQ(sweep(SweptRuntimes::kAll), "present|");
}

TEST_F(RuntimeRecords, WhatSomebodyElseWroteIsNoRecord) {
  ASSERT_TRUE(hook::remember_runtime(ledger_, "web", web_));
  for (const char* target : {"x", "1.2", "1.2 /r", "1.2 r\n", "1 /r\n", "1.x /r\n", " /r\n", "1.2 \n/w"}) {
    hook::forget_runtime(ledger_, "web");
    ASSERT_EQ(::symlink(target, (ledger_ + "/runtime/containers/web").c_str()), 0);
    EXPECT_NE(recall("web").find("cannot read"), std::string::npos) << target;
    EXPECT_EQ(sweep(SweptRuntimes::kAll), "web|") << target;
  }
}

TEST_F(RuntimeRecords, TheLastChoiceIsWrittenOnceEach) {
  EXPECT_FALSE(*hook::last_choice(ledger_));
  for (const hook::RuntimeChoice& choice :
       {hook::RuntimeChoice{std::nullopt, "/bin/a runtime"}, hook::RuntimeChoice{hook::Engine::kCrio, "/bin/crun"}}) {
    ASSERT_TRUE(hook::keep_choice(ledger_, choice));
    EXPECT_EQ(*hook::last_choice(ledger_), choice);
    struct stat before {};
    ASSERT_EQ(::lstat((ledger_ + "/runtime/settings").c_str(), &before), 0);
    ASSERT_TRUE(hook::keep_choice(ledger_, choice));
    struct stat after {};
    ASSERT_EQ(::lstat((ledger_ + "/runtime/settings").c_str(), &after), 0);
    EXPECT_EQ(before.st_ino, after.st_ino);
  }
  test_support::write_file(temp_ / "file", "");
  EXPECT_FALSE(hook::keep_choice(temp_ / "file", {std::nullopt, "/bin/a"}));
  EXPECT_FALSE(hook::remember_runtime(temp_ / "file", "web", web_));
}

}  // namespace
