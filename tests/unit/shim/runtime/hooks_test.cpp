// The reasons for rdma-hook at createRuntime, and the runtime state that replaces the hook.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "shim/runtime/state_directory.hpp"
#include "unit/shim/runtime/scene.hpp"

namespace {

using namespace hook;
using namespace shim;
using shim_scene::program;
using test_support::TempDir;

const shim::HookCommand kHook{"/usr/bin/rdma-hook", hook::Engine::kRunc, {}};

// A container with its own namespaces that requests HCAs.
hook::ContainerRequest requesting() {
  hook::ContainerRequest requesting;
  requesting.request.emplace();
  requesting.spec.has_netns = requesting.spec.has_own_pidns = true;
  requesting.document = std::make_shared<Json>(Json::object());
  return requesting;
}

TEST(HookNeed, RequiresHookForRailsAndSharedPids) {
  EXPECT_EQ(hook_need(requesting(), kHook, Dialect::kRunc), HookNeed::kNone);

  hook::ContainerRequest has = requesting();
  *has.document =
      Json::parse(R"({"hooks": {"prestart": [{"path": "/usr/bin/rdma-hook", "args": ["x", "prestart"]}]}})");
  EXPECT_EQ(hook_need(has, kHook, Dialect::kRunc), HookNeed::kThereAlready);
  *has.document =
      Json::parse(R"({"hooks": {"createRuntime": [{"path": "/bin/other", "args": ["x", "createRuntime"]}]}})");
  EXPECT_EQ(hook_need(has, kHook, Dialect::kRunc), HookNeed::kNone) << "a hook of another program";

  hook::ContainerRequest shares = requesting();
  shares.spec.has_own_pidns = false;
  EXPECT_EQ(hook_need(shares, kHook, Dialect::kRunc), HookNeed::kSharedPids);

  hook::ContainerRequest named = requesting();
  named.request->network = "rails";
  EXPECT_EQ(hook_need(named, kHook, Dialect::kRunc), HookNeed::kRails);
  named.spec.has_netns = false;
  EXPECT_EQ(hook_need(named, kHook, Dialect::kRunc), HookNeed::kNone) << "the node's network has no rails";

  hook::ContainerRequest pooled = requesting();
  pooled.admin.pools.resize(2);
  EXPECT_EQ(hook_need(pooled, kHook, Dialect::kRunc), HookNeed::kNone);
  pooled.admin.pools[1].network = "rails";
  EXPECT_EQ(hook_need(pooled, kHook, Dialect::kRunc), HookNeed::kRails);
}

TEST(HookNeed, RequiresHookForRdmaLimitsWithCrun) {
  hook::ContainerRequest limited = requesting();
  limited.admin.pools.resize(1);
  limited.admin.pools[0].rdma_limits.objects = 5;
  EXPECT_EQ(hook_need(limited, kHook, Dialect::kRunc), HookNeed::kNone);
  EXPECT_EQ(hook_need(limited, kHook, Dialect::kCrun), HookNeed::kRdmaLimits);
}

TEST(HookNeed, RequiresHookForViewInUserNamespace) {
  hook::ContainerRequest mapped = requesting();
  mapped.spec.has_userns = mapped.spec.may_remount = true;
  EXPECT_EQ(hook_need(mapped, kHook, Dialect::kRunc), HookNeed::kOwnView);
  mapped.spec.maps_node_root = true;
  EXPECT_EQ(hook_need(mapped, kHook, Dialect::kRunc), HookNeed::kOwnView);
  mapped.admin.sysfs_view = false;
  EXPECT_EQ(hook_need(mapped, kHook, Dialect::kRunc), HookNeed::kNone);
  mapped.admin.sysfs_view = true;
  mapped.spec.maps_node_root = false;
  EXPECT_EQ(hook_need(mapped, kHook, Dialect::kRunc), HookNeed::kNone);
}

class StateBehind : public testing::Test {
 protected:
  StateBehind() {
    ::unsetenv("XDG_RUNTIME_DIR");
    invocation_.id = "c";
    invocation_.root = directory_.path();
  }
  std::optional<RuntimeState> of(const std::string& runtime) {
    invocation_.runtime = runtime;
    invocation_.dialect = shim::dialect_of(runtime);
    return runtime_state_of(invocation_);
  }
  TempDir directory_;
  shim::Invocation invocation_;
};

TEST_F(StateBehind, IdentifiesRuncAndCrunByProgramName) {
  const auto runc = of("/usr/sbin/runc");
  ASSERT_TRUE(runc);
  EXPECT_EQ(runc, *hook::identify_runtime_state(RuntimeState::Kind::kRunc, directory_.path()));
  EXPECT_EQ(of("/usr/bin/crun")->kind, RuntimeState::Kind::kCrun);
  for (const char* other : {"/usr/bin/nvidia-container-runtime", "/usr/bin/crun-vm", "/usr/bin/krun", "/opt/runc.real"})
    EXPECT_FALSE(of(other)) << other;
}

TEST_F(StateBehind, UsesNameOfLinkTarget) {
  std::filesystem::create_symlink(program(directory_ / "bin/runc"), directory_ / "oci");
  std::filesystem::create_symlink(program(directory_ / "bin/wrapper"), directory_ / "runc");
  std::filesystem::create_symlink(program(directory_ / "bin/crun"), directory_ / "oci-crun");
  std::filesystem::create_symlink(directory_ / "missing", directory_ / "crun");
  EXPECT_TRUE(of(directory_ / "oci"));
  EXPECT_FALSE(of(directory_ / "runc"));
  EXPECT_FALSE(of(directory_ / "oci-crun")) << "its command line was parsed with runc's syntax";
  EXPECT_FALSE(of(directory_ / "crun"));
}

TEST_F(StateBehind, RequiresExistingKnownRoot) {
  invocation_.root = directory_ / "missing";
  EXPECT_FALSE(of("/usr/sbin/runc"));
  invocation_.root = ".";
  EXPECT_FALSE(of("/usr/sbin/runc")) << "a relative root";
  invocation_.root = "";
  ::setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);
  std::filesystem::create_directory(directory_ / "runc");
  EXPECT_FALSE(of("/usr/sbin/runc"));
  ::setenv("XDG_RUNTIME_DIR", "", 1);
  EXPECT_EQ(of("/usr/sbin/runc").has_value(), std::filesystem::exists("/run/runc")) << "as Podman sets it";
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(of("/usr/sbin/runc").has_value(), std::filesystem::exists("/run/runc"));
  invocation_.root = directory_.path();
  invocation_.id = "../c";
  EXPECT_FALSE(of("/usr/sbin/runc"));
}

}  // namespace
