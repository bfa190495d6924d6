// DIR/views: views that are made, kept, replaced, and removed by recover().
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/fanotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <thread>

#include "hook/ledger/views.hpp"
#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using namespace test_support;

const std::vector<ViewEntry> kTwoEntries = {{"infiniband", "", ""},
                                            {"infiniband", "mlx5_0", "../../a"},
                                            {"infiniband_verbs", "uverbs0", "../../b"},
                                            {"infiniband_verbs", "abi_version", "", "6\n"}};

class LedgerViews : public ConsistentLedger {
 protected:
  std::string views() const { return entries(path_ + "/views"); }
  std::string directory(const std::vector<ViewEntry>& entries) const {
    return ledger_.view_directory() + "/" + view_name(entries);
  }
  // Returns the first warning, or the error.
  std::string make(const std::vector<ViewEntry>& view) const {
    const auto made = ledger_.make_view(view_name(view), view);
    if (!made) return made.error().message;
    return made->empty() ? "" : made->front();
  }
  std::string book_view(const Owner& owner, const std::vector<ViewEntry>& view,
                        const ProcessIdentity& process = myself()) {
    GrantUser user{owner.key, "c", process};
    user.view = view_name(view);
    const std::string booked = allocate(owner, {{"mlx5_0", Mode::kShared, 1, std::nullopt}}, user);
    return booked + make(view);
  }
  std::string record_of(const std::vector<ViewEntry>& view) const { return path_ + "/checked/" + view_name(view); }
  // Makes the view until the change times of its directories and files are on record.
  void check(const std::vector<ViewEntry>& view) const {
    const std::string record = record_of(view);
    fs::remove(record);
    for (int round = 0; round < 5000 && !fs::is_symlink(record); ++round) {
      ASSERT_EQ(make(view), "");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(fs::is_symlink(record));
  }
  static mode_t mode(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
  }
};

TEST_F(LedgerViews, SharesViewOfSameEntries) {
  EXPECT_EQ(make(kTwoEntries), "");
  const ino_t made = inode(directory(kTwoEntries));
  EXPECT_EQ(make({kTwoEntries.rbegin(), kTwoEntries.rend()}), "") << "in any order";
  EXPECT_EQ(inode(directory(kTwoEntries)), made) << "containers have it mounted";
  EXPECT_EQ(make(kView), "");
  EXPECT_EQ(make({}), "");
  EXPECT_EQ(entries(directory({})), "");
  const std::string made_now = views();
  EXPECT_EQ(std::count(made_now.begin(), made_now.end(), ' '), 2) << made_now;
}

TEST_F(LedgerViews, ReplacesChangedViewAndKeepsMountedOne) {
  const std::string view = directory(kTwoEntries);
  const std::string verbs = view + "/infiniband_verbs";
  const std::function<void()> changes[] = {
      [&] { write_file(view + "/infiniband/extra", "x"); },
      [&] { write_file(view + "/infiniband/full/of/files", "x"); },
      [&] { fs::create_directory(view + "/infiniband_mad"); },
      [&] { fs::remove(view + "/infiniband/mlx5_0"); },
      [&] { fs::remove_all(verbs); },
      [&] {
        fs::remove(verbs + "/uverbs0");
        fs::create_symlink("../../c", verbs + "/uverbs0");
      },
      [&] {
        fs::remove(verbs + "/uverbs0");
        write_file(verbs + "/uverbs0", "../../b");
      },
      [&] { chmod(view.c_str(), 0755); },
      [&] { chmod((view + "/infiniband").c_str(), 0777); },
      [&] { chmod((verbs + "/abi_version").c_str(), 0644); },
      [&] {
        chmod((verbs + "/abi_version").c_str(), 0644);
        write_file(verbs + "/abi_version", "6\n7");
        chmod((verbs + "/abi_version").c_str(), 0444);
      },
      [&] {
        fs::remove_all(view + "x");
        fs::rename(view, view + "x");
        fs::create_symlink(view + "x", view);
      },
      [&] {
        fs::remove_all(view + "y");
        fs::rename(view, view + "y");
        write_file(view, "");
      },
  };
  for (std::size_t number = 0; number < 2 * std::size(changes); ++number) {
    const auto& change = changes[number / 2];
    EXPECT_EQ(make(kTwoEntries), "");
    if (number % 2 == 1) check(kTwoEntries);
    const std::string before = views();
    const int mounted = open(view.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    change();
    EXPECT_EQ(make(kTwoEntries), "`" + view + "` was changed by another process; rdma-hook has made it again");
    struct stat old {};
    EXPECT_EQ(fstat(mounted, &old), 0);
    EXPECT_GT(old.st_nlink, 0U) << "containers keep the mounted view";
    close(mounted);
    const ino_t made = inode(view);
    EXPECT_EQ(make(kTwoEntries), "");
    EXPECT_EQ(inode(view), made);
    EXPECT_NE(views(), before) << "the old view stays";
  }
}

TEST_F(LedgerViews, RecordsChangeTimesAgainIfTheyDiffer) {
  const std::string record = record_of(kTwoEntries);
  check(kTwoEntries);
  const auto times = fs::read_symlink(record);
  EXPECT_EQ(make(kTwoEntries), "");
  EXPECT_EQ(fs::read_symlink(record), times);
  fs::remove(record);
  fs::create_symlink("1.1.1.1 ", record);
  EXPECT_EQ(make(kTwoEntries), "") << "the view itself is unchanged";
  EXPECT_EQ(fs::read_symlink(record), times);
  const std::string verbs = directory(kTwoEntries) + "/infiniband_verbs";
  chmod(verbs.c_str(), 0755);
  chmod(verbs.c_str(), 0555);
  fs::remove(record);
  check(kTwoEntries);
  EXPECT_NE(fs::read_symlink(record), times);
}

TEST_F(LedgerViews, HoldsItsEntriesAndIsClosedToWriting) {
  EXPECT_EQ(make({{"infiniband", "../x", "y"}}),
            "cannot make a view of `infiniband/../x`: that is no name of a device");
  EXPECT_EQ(make({{"..", "x", "y"}}), "cannot make a view of `../x`: that is no name of a device");
  EXPECT_EQ(views(), "");
  const mode_t before = umask(0077);
  EXPECT_EQ(make(kTwoEntries), "");
  umask(before);
  const std::string view = directory(kTwoEntries);
  EXPECT_EQ(entries(view), "infiniband infiniband_verbs");
  EXPECT_EQ(entries(view + "/infiniband"), "mlx5_0");
  EXPECT_EQ(fs::read_symlink(view + "/infiniband_verbs/uverbs0"), "../../b");
  EXPECT_EQ(read_file(view + "/infiniband_verbs/abi_version"), "6\n");
  EXPECT_EQ(mode(view), 0555U) << "any user of a container can read it";
  EXPECT_EQ(mode(view + "/infiniband"), 0555U);
  EXPECT_EQ(mode(view + "/infiniband_verbs/abi_version"), 0444U);
  EXPECT_EQ(views(), view_name(kTwoEntries)) << "no other view";
  EXPECT_EQ(entries(path_ + "/pending"), "");
}

TEST_F(LedgerViews, ConcurrentMakersFindCompleteView) {
  GrantUser user{web_.key, "c", myself()};
  user.view = view_name(kTwoEntries);
  ASSERT_EQ(allocate(web_, {kAlone}, user), "") << "recover() removes views that no grant names";
  std::vector<std::thread> makers;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 8; ++i) {
    makers.emplace_back([&] {
      const auto own = Ledger::open(path_);
      for (int round = 0; round < 20; ++round) {
        const auto made = own ? own->make_view(view_name(kTwoEntries), kTwoEntries) : own.error();
        if (!made || !made->empty() || !entries(directory(kTwoEntries)).ends_with("infiniband infiniband_verbs"))
          ++wrong;
        if (round % 4 == 3 && (!own->recover() || !own->recover()->warnings.empty())) ++wrong;
      }
    });
  }
  for (std::thread& maker : makers)
    maker.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(views(), view_name(kTwoEntries));
}

TEST_F(LedgerViews, RecoverKeepsViewsThatGrantsName) {
  ASSERT_EQ(book_view(web_, kTwoEntries), "");
  ASSERT_EQ(book_view(db_, kView, dead_process()), "");
  write_file(directory(kTwoEntries) + "/infiniband/full/of/files", "x");
  EXPECT_NE(make(kTwoEntries), "");
  ASSERT_EQ(make({}), "");
  const auto me = myself();
  const std::string living = fmt::format("@{}.{}.9", me.pid, me.start_time);
  fs::create_directory(path_ + "/views/" + living);
  fs::create_directories(path_ + "/views/@1.1.7/infiniband");
  fs::create_directories(path_ + "/views/container-gone/infiniband");
  ASSERT_TRUE(ledger_.recover()->warnings.empty());
  const std::string kept = views();
  for (const std::string& name : {view_name(kTwoEntries), view_name(kTwoEntries) + "@", living, std::string("none")})
    EXPECT_TRUE(has_text(kept, name)) << name;
  EXPECT_EQ(std::count(kept.begin(), kept.end(), ' '), 3) << kept;
  EXPECT_TRUE(fs::is_symlink(directory(kTwoEntries) + "/infiniband/mlx5_0"));

  ASSERT_TRUE(ledger_.leave(web_, web_.key));
  EXPECT_EQ(views(), kept) << "leave() does not read all grants";
  ASSERT_TRUE(ledger_.recover()->warnings.empty());
  EXPECT_EQ(views(), living + " none");
}

// A program of an earlier version removes a view without its entry in DIR/checked.
TEST_F(LedgerViews, RecoverRemovesCheckOfMissingView) {
  ASSERT_EQ(book_view(web_, kTwoEntries), "");
  check(kTwoEntries);
  const std::string missing = path_ + "/checked/container-gone";
  fs::create_symlink("1.2.3.4", missing);
  ASSERT_TRUE(ledger_.recover()->warnings.empty());
  EXPECT_FALSE(fs::is_symlink(missing));
  EXPECT_TRUE(fs::is_symlink(record_of(kTwoEntries)));
}

TEST_F(LedgerViews, RecoverWarnsOfViewThatCannotBeRemoved) {
  ASSERT_EQ(make(kTwoEntries), "");
  std::string deep = path_ + "/views/container-gone";
  for (int i = 0; i < 40; ++i)
    deep += "/d";
  fs::create_directories(deep);
  ASSERT_EQ(book_view(web_, kView, dead_process()), "");
  const auto recovered = must(ledger_.recover());
  EXPECT_EQ(recovered.released, std::vector<std::string>{"container web"});
  ASSERT_EQ(recovered.warnings.size(), 1U);
  EXPECT_TRUE(has_text(recovered.warnings[0], "/views/container-gone/d"));
  EXPECT_EQ(views(), "container-gone");
}

// The grant may name any of the views.
TEST_F(LedgerViews, UnreadableGrantKeepsAllViews) {
  is_damaged_ = true;
  ASSERT_EQ(make(kTwoEntries), "");
  write_file(path_ + "/grants/bad.json", "{");
  EXPECT_FALSE(ledger_.recover());
  EXPECT_EQ(views(), view_name(kTwoEntries));
}

TEST_F(LedgerViews, JoinWithoutViewKeepsEarlierView) {
  ASSERT_EQ(book_view(web_, kTwoEntries), "");
  ASSERT_EQ(allocate(web_, {kAlone}, {web_.key, "c", myself()}), "");
  EXPECT_EQ(find(web_)->users.at(0).view, view_name(kTwoEntries));
}

// The container was restored from a checkpoint: its config.json mounts one view, and createRuntime another.
TEST_F(LedgerViews, RecoverKeepsAllViewsOfOneUser) {
  GrantUser user{web_.key, "c", myself()};
  set_views(user, {view_name(kTwoEntries), "", view_name(kView), view_name(kTwoEntries)});
  EXPECT_EQ(user.more_views, std::vector<std::string>{view_name(kView)});
  ASSERT_EQ(allocate(web_, {kAlone}, user), "");
  ASSERT_EQ(make(kTwoEntries) + make(kView), "");
  ASSERT_TRUE(ledger_.recover()->warnings.empty());
  EXPECT_TRUE(fs::exists(directory(kTwoEntries)) && fs::exists(directory(kView)));
  // A later call for this process mounts a third view.
  const std::vector<ViewEntry> third = {{"infiniband", "mlx5_1", "../y"}};
  user.more_views.clear();
  user.view = view_name(third);
  ASSERT_EQ(allocate(web_, {kAlone}, user), "");
  EXPECT_EQ(find(web_)->users.at(0).view, view_name(third));
  EXPECT_EQ(find(web_)->users.at(0).more_views, (std::vector<std::string>{view_name(kTwoEntries), view_name(kView)}));
  ASSERT_TRUE(ledger_.leave(web_, web_.key) && ledger_.recover()->warnings.empty());
  EXPECT_EQ(views(), "");
}

// A node with many VFs never has the same set of HCAs twice.
TEST_F(LedgerViews, NewViewRemovesManyThatNoUserNames) {
  const auto of = [](int number) {
    return std::vector<ViewEntry>{{"infiniband", fmt::format("mlx5_{}", number), "../../a"}};
  };
  ASSERT_EQ(book_view(web_, of(0)), "");
  std::size_t most = 0;
  for (int number = 1; number <= 200; ++number) {
    ASSERT_EQ(make(of(number)), "");
    const std::string now = views();
    most = std::max<std::size_t>(most, static_cast<std::size_t>(std::count(now.begin(), now.end(), ' ')) + 1);
  }
  EXPECT_LT(most, 70U);
  EXPECT_TRUE(fs::exists(directory(of(0)))) << "a user names it";
}

// Views with copies of a library of the node.
class LentLibraries : public LedgerViews {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make files of root";
  }
  // Returns a view with the library as it is now. hca: the HCA of a set of its own.
  std::vector<ViewEntry> lent(const std::string& hca = "") const { return lent_from(library_, hca); }
  static std::vector<ViewEntry> lent_from(const std::string& path, const std::string& hca = "") {
    const base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::vector<ViewEntry> view;
    if (!hca.empty()) view.push_back({"infiniband", hca, "../../" + hca});
    view.push_back({"lib", "libx.so", "", *fabric::file_identity(file.get(), path), path});
    return view;
  }
  std::string copies() const { return entries(path_ + "/copies"); }
  void leave(const Owner& owner) const {
    ASSERT_OK(ledger_.leave(owner, owner.key));
    ledger_.remove_left_views();
  }
  std::string content(const std::vector<ViewEntry>& view) const { return read_file(directory(view) + "/lib/libx.so"); }
  static ino_t inode_of_copy(const std::string& view) { return inode(view + "/lib/libx.so"); }

  const std::string library_ = temp_ / "libx.so";
};

TEST_F(LentLibraries, CopiesLentLibraries) {
  write_file(library_, std::string(100000, 'x'));
  const auto first = lent();
  EXPECT_EQ(make(first), "");
  EXPECT_EQ(fs::file_size(directory(first) + "/lib/libx.so"), 100000U);
  EXPECT_EQ(mode(directory(first) + "/lib/libx.so"), 0444U);
  EXPECT_EQ(mode(directory(first) + "/lib"), 0555U);
  // A newer library of the node gets its own directory; containers keep the former.
  fs::remove(library_);
  write_file(library_, "newer");
  EXPECT_EQ(make(first), "") << "it is made already";
  EXPECT_NE(view_name(lent()), view_name(first));
  EXPECT_EQ(make(lent()), "");
  EXPECT_EQ(fs::file_size(directory(first) + "/lib/libx.so"), 100000U);
  // A file that was replaced since it was found is not copied.
  const auto stale = lent();
  fs::remove_all(directory(stale));
  fs::remove(library_);
  write_file(library_, "newest");
  const std::string replaced =
      "cannot lend `" + library_ + "`: it was replaced just now: Stale file handle; remedy: start the container again";
  EXPECT_EQ(make(stale), replaced);
  EXPECT_TRUE(fs::is_empty(directory(stale) + "/lib")) << "the container starts without the library";
  const auto made = fs::last_write_time(directory(stale));
  EXPECT_EQ(make(stale), replaced);
  EXPECT_EQ(fs::last_write_time(directory(stale)), made) << "still lacks the library, and is not made again";
  EXPECT_EQ(make(lent()), "");
}

TEST_F(LentLibraries, CopiesLentLibrariesLaterIfThereWasNoSpace) {
  write_file(library_, std::string(100000, 'x'));
  const auto lent = this->lent();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto former = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string warning = make(lent);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, former);
  EXPECT_NE(warning.find("cannot copy `" + library_ + "` to `"), std::string::npos) << warning;
  EXPECT_TRUE(fs::is_empty(directory(lent) + "/lib"));
  EXPECT_EQ(make(lent), "") << "no other process has changed it";
  EXPECT_EQ(fs::file_size(directory(lent) + "/lib/libx.so"), 100000U);
  EXPECT_EQ(make(lent), "");
}

TEST_F(LentLibraries, ViewsShareCopyOfSameContent) {
  write_file(library_, std::string(200000, 'x'));
  const auto one = lent("mlx5_0");
  const auto two = lent("mlx5_1");
  EXPECT_EQ(make(one) + make(two), "");
  EXPECT_EQ(inode_of_copy(directory(one)), inode_of_copy(directory(two)));
  // An update that installs the same library again needs no second copy, and another content has its own.
  fs::remove(library_);
  write_file(library_, std::string(200000, 'x'));
  const auto again = lent("mlx5_0");
  EXPECT_NE(view_name(again), view_name(one));
  EXPECT_EQ(make(again), "");
  EXPECT_EQ(inode_of_copy(directory(again)), inode_of_copy(directory(one)));
  EXPECT_EQ(fs::hard_link_count(directory(one) + "/lib/libx.so"), 4U);
  fs::remove(library_);
  write_file(library_, std::string(200000, 'y'));
  EXPECT_EQ(make(lent("mlx5_0")), "");
  EXPECT_EQ(content(lent("mlx5_0")), std::string(200000, 'y'));
  const std::string now = copies();
  EXPECT_EQ(std::count(now.begin(), now.end(), ' '), 1) << now;
}

// A process of root wrote to the copy, or another file has the same size and checksum.
TEST_F(LentLibraries, NewViewGetsNoCopyWithAnotherContent) {
  write_file(library_, "library");
  EXPECT_EQ(make(lent("mlx5_0")), "");
  const std::string copy = path_ + "/copies/" + copies();
  const std::function<void()> changes[] = {
      [&] {
        chmod(copy.c_str(), 0644);
        write_file(copy, "Library");
        chmod(copy.c_str(), 0444);
      },
      [&] { chmod(copy.c_str(), 0666); },
      [&] {
        fs::remove(copy);
        fs::create_symlink("/dev/zero", copy);
      },
      [&] {
        fs::remove(copy);
        fs::create_directories(copy + "/full");
      },
      [&] { fs::remove(copy); },
  };
  int number = 1;
  for (const auto& change : changes) {
    change();
    const auto view = lent(fmt::format("mlx5_{}", number++));
    EXPECT_EQ(make(view), "");
    EXPECT_EQ(content(view), "library") << number;
    EXPECT_EQ(mode(directory(view) + "/lib/libx.so"), 0444U);
    const auto next = lent(fmt::format("mlx5_{}", number++));
    EXPECT_EQ(make(next), "");
    EXPECT_EQ(inode_of_copy(directory(next)), inode_of_copy(directory(view))) << number;
  }
}

TEST_F(LentLibraries, ReleaseRemovesViewAndCopyWithoutUser) {
  write_file(library_, "library");
  const auto view = lent("mlx5_0");
  const auto other = lent("mlx5_1");
  ASSERT_EQ(book_view(web_, view) + book_view(db_, view) + book_view(pod_, other), "");
  fs::remove_all(directory(view) + "/infiniband");
  EXPECT_NE(make(view), "") << "a changed view, which containers may have mounted";
  leave(web_);
  EXPECT_TRUE(has_text(views(), view_name(view) + " " + view_name(view) + "@")) << "db has it";
  leave(db_);
  EXPECT_EQ(views(), view_name(other));
  EXPECT_EQ(content(other), "library");
  ASSERT_OK(ledger_.release_grant(pod_.key));
  ledger_.remove_left_views();
  EXPECT_EQ(views() + copies(), "");
  EXPECT_EQ(entries(path_ + "/lent"), "");
}

// A program of an older version booked for it, or the index was removed: only the grant names the view.
TEST_F(LentLibraries, ReleaseKeepsViewThatIndexLacks) {
  write_file(library_, "library");
  const auto view = lent();
  ASSERT_EQ(book_view(web_, view) + book_view(db_, view), "");
  fs::remove_all(path_ + "/lent");
  leave(web_);
  EXPECT_EQ(content(view), "library");
  ASSERT_TRUE(ledger_.recover()->warnings.empty());
  EXPECT_EQ(entries(path_ + "/lent/" + view_name(view)), db_.key);
  leave(db_);
  EXPECT_EQ(views() + copies(), "");
}

// A program of an older version has bound the token, and has left its entry in the index.
TEST_F(LentLibraries, RecoverRemovesViewThatOnlyIndexNames) {
  write_file(library_, "library");
  const auto view = lent();
  ASSERT_EQ(book_view(web_, view), "");
  fs::create_symlink("token-gone", path_ + "/lent/" + view_name(view) + "/token-gone");
  leave(web_);
  EXPECT_EQ(views(), view_name(view));
  ASSERT_TRUE(ledger_.recover()->warnings.empty());
  EXPECT_EQ(views() + copies(), "");
  EXPECT_EQ(entries(path_ + "/lent"), "");
}

// An older version made it, with copies of its own.
TEST_F(LentLibraries, ViewOfOlderVersionStaysUntilItsContainerHasEnded) {
  const std::string old = "set-0123456789abcdef0123456789abcdef";
  ASSERT_EQ(make({}), "");
  write_file(path_ + "/views/" + old + "/lib/libx.so", "library");
  GrantUser user{web_.key, "web", myself()};
  user.view = old;
  ASSERT_EQ(allocate(web_, {{"mlx5_0", Mode::kShared, 1, std::nullopt}}, user), "");
  write_file(library_, "library");
  ASSERT_EQ(book_view(db_, lent()), "");
  leave(db_);
  ASSERT_TRUE(ledger_.recover()->warnings.empty());
  EXPECT_EQ(views(), "none " + old);
  EXPECT_EQ(read_file(path_ + "/views/" + old + "/lib/libx.so"), "library");
  leave(web_);
  ASSERT_TRUE(ledger_.recover()->warnings.empty());
  EXPECT_EQ(views(), "none");
}

TEST_F(LentLibraries, NewViewRemovesWhatDeadMakersLeft) {
  write_file(library_, "library");
  const auto me = myself();
  const std::string living = fmt::format("@{}.{}.9", me.pid, me.start_time);
  ASSERT_EQ(make({}), "");
  fs::create_directory(path_ + "/views/" + living);
  write_file(path_ + "/views/@1.1.7/lib/libx.so", "half");
  ASSERT_EQ(make(lent("mlx5_0")), "");
  EXPECT_EQ(views(), living + " " + view_name(lent("mlx5_0")) + " none");
  // A maker was killed after it had added its copy, and recover() has removed its view.
  fs::remove_all(directory(lent("mlx5_0")));
  fs::remove(library_);
  write_file(library_, "newer");
  ASSERT_EQ(make(lent("mlx5_0")), "");
  EXPECT_EQ(copies().substr(0, 2), "5-");
}

// A file of /proc has the length 0, and more to read.
TEST_F(LentLibraries, DoesNotLendMoreThanTheLengthOfTheFile) {
  const auto view = lent_from("/proc/version");
  EXPECT_EQ(make(view),
            "cannot lend `/proc/version`: it was changed while it was copied: Stale file handle; remedy: start the "
            "container again");
  EXPECT_TRUE(fs::is_empty(directory(view) + "/lib"));
}

// The first read of the file is held until it was written in place.
TEST_F(LentLibraries, DoesNotLendFileThatIsWrittenWhileItIsCopied) {
  write_file(library_, std::string(300000, 'x'));
  const auto view = lent();
  const base::UniqueFd events(::fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC | FAN_NONBLOCK, O_RDONLY | O_CLOEXEC));
  if (!events.ok() || ::fanotify_mark(events.get(), FAN_MARK_ADD, FAN_ACCESS_PERM, AT_FDCWD, library_.c_str()) != 0)
    GTEST_SKIP() << "the kernel has no permission events";
  std::atomic<bool> is_made{false};
  std::thread writer([&] {
    bool is_written = false;
    while (!is_made) {
      pollfd ready{events.get(), POLLIN, 0};
      fanotify_event_metadata event{};
      if (::poll(&ready, 1, 10) <= 0 || ::read(events.get(), &event, sizeof event) != sizeof event) continue;
      if (!is_written) write_file(library_, std::string(1000, 'y'));
      is_written = true;
      const fanotify_response answer{event.fd, FAN_ALLOW};
      EXPECT_EQ(::write(events.get(), &answer, sizeof answer), static_cast<ssize_t>(sizeof answer));
      ::close(event.fd);
    }
  });
  const std::string warning = make(view);
  is_made = true;
  writer.join();
  EXPECT_EQ(warning, "cannot lend `" + library_ +
                         "`: it was changed while it was copied: Stale file handle; remedy: start the container again");
  EXPECT_TRUE(fs::is_empty(directory(view) + "/lib"));
  EXPECT_EQ(copies(), "");
}

TEST_F(LentLibraries, ConcurrentMakersShareOneCopy) {
  write_file(library_, std::string(500000, 'x'));
  std::vector<std::thread> makers;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 8; ++i) {
    makers.emplace_back([&, i] {
      const auto own = Ledger::open(path_);
      const auto view = lent(fmt::format("mlx5_{}", i));
      const auto made = own ? own->make_view(view_name(view), view) : own.error();
      if (!made || !made->empty()) ++wrong;
    });
  }
  for (std::thread& maker : makers)
    maker.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(fs::hard_link_count(directory(lent("mlx5_0")) + "/lib/libx.so"), 9U);
}

}  // namespace
}  // namespace hook
