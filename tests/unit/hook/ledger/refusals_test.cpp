// The file of the last refusals: its bounds, fairness between namespaces, hostile texts, damage and concurrent writers.
#include "hook/ledger/refusals.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/grant/refused.hpp"
#include "hook/program/refusal_list.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace hook;
using namespace test_support;

Refusal refusal(RefusedContainer container, std::string message = "no HCA is free") {
  return {.time = 1,
          .stage = "createRuntime",
          .container = std::move(container),
          .reason = "busy",
          .message = std::move(message),
          .remedy = "request fewer"};
}

std::vector<std::string> ids(const std::vector<Refusal>& refusals) {
  std::vector<std::string> ids;
  for (const Refusal& one : refusals)
    ids.push_back(one.container.id);
  return ids;
}

class Refusals : public testing::Test {
 protected:
  TempDir dir_;
  std::string ledger_ = dir_ / "ledger";
  std::string file_ = ledger_ + "/refusals";
  std::size_t size() const {
    struct stat info {};
    return ::stat(file_.c_str(), &info) == 0 ? static_cast<std::size_t>(info.st_size) : 0;
  }
};

TEST_F(Refusals, KeepsNewestEntryOfContainer) {
  EXPECT_TRUE(must(read_refusals(ledger_)).empty());
  note_refusal(ledger_, refusal({"a"}, "first"));
  note_refusal(ledger_, refusal({"b"}));
  note_refusal(ledger_, refusal({"a"}, "second"));
  const auto kept = must(read_refusals(ledger_));
  EXPECT_EQ(ids(kept), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(kept.front().message, "second");
  struct stat info {};
  ASSERT_EQ(::stat(file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  // Neither the lock nor the new file stays.
  EXPECT_NE(::access((file_ + ".lock").c_str(), F_OK), 0);
  EXPECT_NE(::access((file_ + ".new").c_str(), F_OK), 0);
}

TEST_F(Refusals, IdentifiesContainerOfPodByNames) {
  note_refusal(ledger_, refusal({"id-1", "team-a", "web", "main"}));
  note_refusal(ledger_, refusal({"id-2", "team-a", "web", "main"}));
  note_refusal(ledger_, refusal({"id-3", "team-a", "web", "side"}));
  note_refusal(ledger_, refusal({"id-4", "team-b", "web", "main"}));
  EXPECT_EQ(ids(must(read_refusals(ledger_))), (std::vector<std::string>{"id-4", "id-3", "id-2"}));
}

TEST_F(Refusals, NamespaceWithMostEntriesLosesItsOldest) {
  note_refusal(ledger_, refusal({"victim", "team-a", "web", "main"}));
  note_refusal(ledger_, refusal({"alone"}));
  for (int i = 0; i < 100; ++i)
    note_refusal(ledger_, refusal({fmt::format("noise-{}", i), "team-b", fmt::format("job-{}", i), "main"}));
  const auto kept = ids(must(read_refusals(ledger_)));
  ASSERT_EQ(kept.size(), kMostRefusals);
  EXPECT_EQ(kept.front(), "noise-99");
  EXPECT_EQ(kept[61], "noise-38");
  EXPECT_EQ(kept[62], "alone");
  EXPECT_EQ(kept[63], "victim");
}

TEST_F(Refusals, RetriesWithoutPodKeepOtherEntries) {
  note_refusal(ledger_, refusal({"victim"}, "`mlx5_9` does not exist"));
  note_refusal(ledger_, refusal({"in a pod", "team-a", "web", "main"}));
  for (int i = 0; i < 100; ++i)
    note_refusal(ledger_, refusal({fmt::format("retry-{}", i)}));
  EXPECT_EQ(ids(must(read_refusals(ledger_))), (std::vector<std::string>{"retry-99", "in a pod", "victim"}));
}

TEST_F(Refusals, ManyMessagesWithoutPodKeepOtherReasonsAndNamespaces) {
  Refusal victim = refusal({"victim"});
  victim.reason = "refused";
  note_refusal(ledger_, victim);
  note_refusal(ledger_, refusal({"in a pod", "busy", "web", "main"}));
  for (int i = 0; i < 100; ++i)
    note_refusal(ledger_, refusal({fmt::format("retry-{}", i)}, fmt::format("message {}", i)));
  const auto kept = ids(must(read_refusals(ledger_)));
  ASSERT_EQ(kept.size(), kMostRefusals);
  EXPECT_EQ(kept[61], "retry-38");
  EXPECT_EQ(kept[62], "in a pod");
  EXPECT_EQ(kept[63], "victim");
}

TEST_F(Refusals, BoundsFileOfLongHostileTexts) {
  const std::string hostile = "\x1b[2J\n\xff" + std::string(5000, '\x01');
  std::string wide;
  for (int i = 0; i < 2000; ++i)
    wide += "\u00e9";
  note_refusal(ledger_, refusal({"victim", "team-a", "web", "main"}));
  for (int i = 0; i < 70; ++i)
    note_refusal(ledger_, refusal({std::to_string(i) + hostile, "team-b", std::to_string(i) + wide, hostile}, wide));
  EXPECT_GT(size(), kLargestRefusals / 2);
  EXPECT_LE(size(), kLargestRefusals);
  const auto kept = must(read_refusals(ledger_));
  EXPECT_EQ(kept.back().container.id, "victim");
  EXPECT_EQ(kept.front().container.id.substr(0, 9), "69?[2J??" + std::string("?"));
  const std::string text = refusals_text(kept);
  for (const char c : text)
    EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

TEST_F(Refusals, ReportsDamageAndReplacesIt) {
  note_refusal(ledger_, refusal({"old"}));
  const std::string good = must(read_text_file(file_));
  const std::pair<const char*, std::string> rows[] = {{"empty", ""},
                                                      {"cut", good.substr(0, good.size() / 2)},
                                                      {"format", "{\"format\":2,\"refusals\":[]}"},
                                                      {"too large", std::string(kLargestRefusals + 1, ' ')},
                                                      {"other member", "{\"format\":1,\"refusals\":[],\"more\":1}"}};
  for (const auto& [name, content] : rows) {
    SCOPED_TRACE(name);
    write_file(file_, content);
    const auto read = read_refusals(ledger_);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message, fmt::format("`{}` is damaged", file_));
    EXPECT_EQ(read.error().code, EBADMSG);
    note_refusal(ledger_, refusal({"new"}));
    EXPECT_EQ(ids(must(read_refusals(ledger_))), std::vector<std::string>{"new"});
  }
}

TEST_F(Refusals, WritesThroughNoLinkAndIgnoresFailure) {
  note_refusal(ledger_, refusal({"a"}));
  write_file(dir_ / "other", "other");
  ASSERT_EQ(::unlink(file_.c_str()), 0);
  ASSERT_EQ(::symlink((dir_ / "other").c_str(), file_.c_str()), 0);
  ASSERT_EQ(::symlink((dir_ / "other").c_str(), (file_ + ".new").c_str()), 0);
  note_refusal(ledger_, refusal({"b"}));
  EXPECT_EQ(must(read_text_file(dir_ / "other")), "other");
  EXPECT_EQ(ids(must(read_refusals(ledger_))), std::vector<std::string>{"b"});
  // A file is in the place of the directory.
  note_refusal(dir_ / "other", refusal({"c"}));
  EXPECT_EQ(must(read_text_file(dir_ / "other")), "other");
}

TEST_F(Refusals, ConcurrentWritersLeaveWholeFile) {
  note_refusal(ledger_, refusal({"first"}));
  std::vector<pid_t> writers;
  for (const char* name : {"left", "right"}) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      for (int i = 0; i < 30; ++i)
        note_refusal(ledger_, refusal({fmt::format("{}-{}", name, i), name, std::to_string(i), "main"}));
      ::_exit(0);
    }
    writers.push_back(pid);
  }
  for (int reads = 0; reads < 200; ++reads)
    ASSERT_TRUE(read_refusals(ledger_).has_value());
  for (const pid_t pid : writers)
    ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  std::set<std::string> namespaces;
  const auto kept = must(read_refusals(ledger_));
  for (const Refusal& one : kept)
    namespaces.insert(one.container.pod_namespace);
  // An entry is dropped if the lock is not free in time, so their number is not fixed.
  EXPECT_EQ(namespaces, (std::set<std::string>{"", "left", "right"}));
}

TEST(RefusedContainer, TrustsPodNamesOfKubernetesEnginesOnly) {
  const std::string config = R"({"ociVersion": "1.0.2", "annotations": {"io.kubernetes.cri.sandbox-namespace": "team-a",
      "io.kubernetes.cri.sandbox-name": "web", "io.kubernetes.cri.container-name": "main"}})";
  EXPECT_EQ(refused_container("id", config, {.engine = Engine::kContainerd, .is_named = true}),
            (RefusedContainer{"id", "team-a", "web", "main"}));
  EXPECT_EQ(refused_container("id", config, {.engine = Engine::kPodman, .is_named = true}), (RefusedContainer{"id"}));
  EXPECT_EQ(refused_container("id", "{", {.engine = Engine::kContainerd, .is_named = true}), (RefusedContainer{"id"}));
}

TEST(RefusalsOutput, PrintsTextAndJson) {
  EXPECT_EQ(refusals_text({}), "no container was refused on this node since it started\n");
  Refusal of_pod = refusal({"4f2c", "team-a", "web", "main"});
  of_pod.remedy.clear();
  const std::vector<Refusal> both = {refusal({"web-1"}), of_pod};
  EXPECT_EQ(refusals_text(both),
            "1970-01-01T00:00:01Z  container web-1\n"
            "  no HCA is free\n"
            "  remedy: request fewer\n"
            "1970-01-01T00:00:01Z  pod team-a/web, container main\n"
            "  no HCA is free\n");
  EXPECT_EQ(refusals_json(both).dump(),
            R"({"refusals":[{"time":"1970-01-01T00:00:01Z","container":"web-1","pod":null,"stage":"createRuntime",)"
            R"("reason":"busy","message":"no HCA is free","remedy":"request fewer"},)"
            R"({"time":"1970-01-01T00:00:01Z","container":"4f2c",)"
            R"("pod":{"namespace":"team-a","name":"web","container":"main"},"stage":"createRuntime",)"
            R"("reason":"busy","message":"no HCA is free","remedy":""}]})");
}

}  // namespace
