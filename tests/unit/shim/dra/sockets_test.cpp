// Names of the driver's sockets, and the removal of those that killed drivers have left.
#include "shim/dra/sockets.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>

#include "base/unique_fd.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace shim {
namespace {

// Shorter than a UID: the path of a socket has at most 107 bytes.
constexpr const char* kPod = "7b1c6f0e-0000";

class DraSockets : public testing::Test {
 protected:
  DraSockets() { std::filesystem::create_directory(sockets_.registry); }

  // Makes a socket at which a process listens until the descriptor is closed. The file stays.
  static base::UniqueFd listen_at(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << path;
    EXPECT_EQ(::listen(socket.get(), 1), 0);
    return socket;
  }
  bool take() { return take_sockets(sockets_, log_).has_value(); }

  test_support::TempDir temp_;
  base::Log log_ = base::Log::to_stderr("rdma-dra");
  Sockets sockets_ = sockets_in(temp_ / ".", "");
};

TEST_F(DraSockets, HaveTheUidOfThePod) {
  const Sockets sockets = sockets_in("/k", kPod);
  EXPECT_EQ(sockets.registration, std::string("/k/plugins_registry/rdma-init.io-") + kPod + "-reg.sock");
  EXPECT_EQ(sockets.service, std::string("/k/plugins/rdma-init.io/dra-") + kPod + ".sock");
  EXPECT_EQ(sockets_in("/k", "").service, "/k/plugins/rdma-init.io/dra.sock");
  EXPECT_EQ(sockets_in("/k", "../x").service, "/k/plugins/rdma-init.io/dra.sock");
}

TEST_F(DraSockets, AreRecognisedByName) {
  for (const char* own : {"rdma-init.io-reg.sock", "rdma-init.io-1111-2222-reg.sock"})
    EXPECT_TRUE(is_registration_name(own)) << own;
  for (const char* other : {"rdma-init.io", "rdma-init.io.example-reg.sock", "gpu.nvidia.com-reg.sock", "-reg.sock",
                            "rdma-init.io-reg.sock.old", ".rdma-init.io-reg.sock", "rdma-init.io-A-reg.sock"})
    EXPECT_FALSE(is_registration_name(other)) << other;
  EXPECT_TRUE(is_service_name("dra.sock"));
  EXPECT_TRUE(is_service_name("dra-1111.sock"));
  EXPECT_FALSE(is_service_name("dra1111.sock"));
  EXPECT_FALSE(is_service_name("drb.sock"));
}

TEST_F(DraSockets, ThatNoProcessListensAtAreRemoved) {
  ASSERT_TRUE(take());
  const Sockets killed = sockets_in(temp_ / ".", kPod);
  const std::string foreign = sockets_.registry + "/gpu.nvidia.com-reg.sock";
  for (const std::string& path : {killed.registration, killed.service, sockets_.registration, foreign})
    static_cast<void>(listen_at(path));
  test_support::write_file(sockets_.registry + "/rdma-init.io-file-reg.sock", "no socket");
  ASSERT_TRUE(take());
  EXPECT_FALSE(std::filesystem::exists(killed.registration));
  EXPECT_FALSE(std::filesystem::exists(killed.service));
  EXPECT_FALSE(std::filesystem::exists(sockets_.registration));
  EXPECT_TRUE(std::filesystem::exists(foreign));
  EXPECT_TRUE(std::filesystem::exists(sockets_.registry + "/rdma-init.io-file-reg.sock"));
}

TEST_F(DraSockets, OfAnotherInstanceStay) {
  ASSERT_TRUE(take());
  const Sockets other = sockets_in(temp_ / ".", kPod);
  const base::UniqueFd first = listen_at(other.registration);
  const base::UniqueFd second = listen_at(other.service);
  EXPECT_TRUE(take());
  EXPECT_TRUE(std::filesystem::exists(other.registration));
  EXPECT_TRUE(std::filesystem::exists(other.service));
}

TEST_F(DraSockets, OfTheSameNameAreNotTaken) {
  ASSERT_TRUE(take());
  const base::UniqueFd other = listen_at(sockets_.service);
  const auto taken = take_sockets(sockets_, log_);
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code, EADDRINUSE);
  EXPECT_TRUE(std::filesystem::exists(sockets_.service));
}

TEST_F(DraSockets, NeedTheDirectoryOfTheKubelet) {
  std::filesystem::remove(sockets_.registry);
  EXPECT_FALSE(take());
}

}  // namespace
}  // namespace shim
