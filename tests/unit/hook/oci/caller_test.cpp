// Detection of the engine that calls, and the effect of annotations that pretend another engine.
#include "hook/oci/caller.hpp"

#include <gtest/gtest.h>

#include "base/json/json.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/program/commands.hpp"
#include "support/arguments.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

using test_support::must;

const std::string kId = "5694a587a2df7e4289a0e902d46de297b807effa92f14d90d66560cdc0d94198";  // crio-annotation.*
const std::string kCrios = "/run/containers/storage/overlay-containers/" + kId + "/userdata";
const std::string kPodmans = "/var/lib/containers/storage/vfs-containers/" + kId + "/userdata";
const std::string kKubernetes = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/" + kId;
const std::string kDockers = "/var/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/" + kId;

TEST(Caller, DetectsEngineFromBundleAndCgroupsPath) {
  const std::tuple<std::string, std::string, std::string_view> rows[] = {
      {kCrios, "/kubepods/besteffort/pod3b8f2c62/crio-" + kId, "crio"},
      {kCrios + "/", "kubepods-besteffort-pod3b8f2c62.slice:crio:" + kId, "crio"},
      {"/run/user/1000/containers/vfs-containers/" + kId + "//userdata", "/crio/crio-" + kId, "crio"},
      {kPodmans, "/libpod_parent/libpod-" + kId, "podman"},
      {kPodmans, "machine.slice:libpod:" + kId, "podman"},
      {kPodmans, "", "podman"},
      {kPodmans, "/user.slice/libpod-payload-" + kId, "podman"},
      // CRI-O's storage, or a parent of that name, but not a cgroup of CRI-O.
      {kCrios, "/kubepods/besteffort/pod3b8f2c62/" + kId, "podman"},
      {kPodmans, "/crio-" + kId + "/libpod-" + kId, "podman"},
      {kPodmans, "a:crio:b.slice:libpod:" + kId, "podman"},
      {kPodmans, "/x/crio-another", "podman"},
      {kPodmans, "/x/not-crio-" + kId, "podman"},
      {kKubernetes, "/kubepods/besteffort/pod3b8f2c62/" + kId, "containerd"},
      {kKubernetes, "kubepods-pod3b8f2c62.slice:cri-containerd:" + kId, "containerd"},
      {"/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/" + kId, "", "containerd"},
      {"/run/containerd/io.containerd.runtime.v1.linux/k8s.io/" + kId, "", "containerd"},
      {kKubernetes, "/x/crio-" + kId, "containerd"},
      {kDockers, "/docker/" + kId, "docker"},
      {"/run/containerd/io.containerd.runtime.v2.task/moby/" + kId, "system.slice:docker:" + kId, "docker"},
      // Bundles of other engines, and similar paths: they count as Podman, the least trusted engine.
      {"/run/containerd/io.containerd.runtime.v2.task/default/" + kId, "/default/" + kId, "podman"},
      {"/run/containerd/io.containerd.runtime.v2.task/moby", "", "podman"},
      {"/moby/k8s.io/" + kId, "/docker/" + kId, "podman"},
      {"/srv/web", "/x/crio-web", "podman"},
      {"/userdata", "/x/crio-" + kId, "podman"},
      {"", "", "podman"}};
  for (const auto& [bundle, cgroups_path, engine] : rows) {
    const auto detected = recognise({.bundle = bundle}, cgroups_path);
    EXPECT_EQ(to_string(detected.engine), engine) << bundle << " " << cgroups_path;
    EXPECT_FALSE(detected.is_doubted);
  }
  EXPECT_EQ(recognise({.bundle = kCrios}, "a:crio:" + kId).by, "detected from its bundle and cgroupsPath");
  EXPECT_EQ(recognise({.bundle = kDockers}, "").by, "detected from its bundle");
  EXPECT_EQ(recognise({.engine = Engine::kRunc, .bundle = "/srv/web"}, "").by, "no engine detected");
  EXPECT_EQ(recognise({.engine = Engine::kRunc, .bundle = "/srv/web"}, "").engine, Engine::kRunc);
}

TEST(Caller, DetectsEngineFromRuntimeRoot) {
  const std::pair<const char*, Engine> rows[] = {{"/run/containerd/runc/k8s.io", Engine::kContainerd},
                                                 {"/var/run/docker/runtime-runc/moby", Engine::kDocker},
                                                 {"/run/user/1000/docker/runtime-rdma/moby", Engine::kDocker},
                                                 {"/run/containerd/runc/moby", Engine::kDocker},
                                                 {"/run/containerd/runc/default", Engine::kPodman},
                                                 {"/run/runc", Engine::kPodman},
                                                 {"", Engine::kPodman}};
  for (const auto& [root, engine] : rows)
    EXPECT_EQ(recognise({.runtime_root = root}, "").engine, engine) << root;
  EXPECT_EQ(recognise({.runtime_root = "/run/containerd/runc/moby"}, "").by, "detected from the runtime's root");
  // The runtimes of CRI-O and Podman share one root.
  EXPECT_EQ(recognise({.bundle = kCrios, .runtime_root = "/run/runc"}, "/x/crio-" + kId).engine, Engine::kCrio);
  const auto both = recognise({.bundle = kKubernetes, .runtime_root = "/run/docker/runtime-runc/moby"}, "");
  EXPECT_EQ(both.engine, Engine::kPodman);
  EXPECT_EQ(both.by, "the runtime's root names docker, but the bundle is containerd's");
}

TEST(Caller, NamedEngineCountsUnlessBundleContradicts) {
  const auto named = [](Engine engine, const std::string& bundle) {
    return recognise({.engine = engine, .is_named = true, .bundle = bundle}, "/libpod_parent/libpod-" + kId);
  };
  for (const Engine engine : {Engine::kCrio, Engine::kContainerd, Engine::kDocker}) {
    EXPECT_EQ(named(engine, "/srv/web").engine, engine);
    EXPECT_EQ(named(engine, "/run/containerd/io.containerd.runtime.v2.task/mine/" + kId).engine, engine);
    const auto doubted = named(engine, kPodmans);
    EXPECT_EQ(doubted.engine, Engine::kPodman);
    EXPECT_TRUE(doubted.is_doubted);
  }
  EXPECT_EQ(named(Engine::kCrio, kPodmans).by, "the administrator names crio, but the bundle is podman's");
  EXPECT_EQ(named(Engine::kCrio, kKubernetes).engine, Engine::kPodman);
  EXPECT_EQ(named(Engine::kContainerd, kKubernetes).engine, Engine::kContainerd);
  EXPECT_EQ(named(Engine::kDocker, kKubernetes).engine, Engine::kPodman);
  EXPECT_EQ(named(Engine::kRunc, kPodmans).engine, Engine::kPodman) << "an image wrote its annotations";
  EXPECT_EQ(named(Engine::kRunc, "/srv/web").engine, Engine::kRunc);
  EXPECT_EQ(named(Engine::kPodman, kDockers).engine, Engine::kPodman);
  EXPECT_EQ(
      recognise({.engine = Engine::kCrio, .is_named = true, .runtime_root = "/run/containerd/runc/k8s.io"}, "").engine,
      Engine::kCrio);
}

// --- Requests of containers, by engine

Json recorded(const std::string& name) {
  return Json::parse(test_support::read_file(std::string(RECORDED) + "/" + name));
}

ContainerRequest requesting(const Json& config, const Caller& caller) {
  Config trusting;
  trusting.annotations_may_request = {"team-a"};
  return must(understand(config.dump(), trusting, caller));
}

// rdma-runtime and hook, on a node with a configuration that names no engine.
TEST(Caller, CrioPodOfTrustedNamespaceMayRequest) {
  Json config = recorded("crio-annotation.config.json");
  const Caller caller{.bundle = kCrios, .runtime_root = "/run/runc"};
  const ContainerRequest parsed = requesting(config, caller);
  EXPECT_EQ(parsed.caller.engine, Engine::kCrio);
  ASSERT_TRUE(parsed.request);
  EXPECT_EQ(parsed.request->selection.count, 2U);
  config["linux"]["cgroupsPath"] = "kubepods-besteffort-pod3b8f2c62.slice:crio:" + kId;
  EXPECT_TRUE(requesting(config, caller).request);
  // Its namespace is another one, which the pod's author cannot choose. Annotations that other engines would write have
  // no effect.
  Json& annotations = config["annotations"];
  annotations["io.kubernetes.pod.namespace"] = "team-b";
  annotations["io.kubernetes.cri-o.SandboxName"] = "k8s_train-1_team-b_uid_0";
  annotations["io.kubernetes.cri.sandbox-namespace"] = "team-a";
  EXPECT_FALSE(requesting(config, caller).request);
  for (const Engine other : {Engine::kContainerd, Engine::kDocker}) {
    const ContainerRequest forged = requesting(config, {.engine = other, .is_named = true, .bundle = kCrios});
    EXPECT_FALSE(forged.request) << to_string(other);
    EXPECT_TRUE(forged.caller.is_doubted);
  }
}

// A privileged pod has all device nodes of the node. Its annotation counts only if it may request.
TEST(Caller, PrivilegedCrioPodRequestsByAnnotationOnly) {
  Json config = recorded("crio-privileged.config.json");
  ASSERT_EQ(config["annotations"]["io.kubernetes.pod.namespace"], "kube-system");
  const auto id = config["annotations"]["io.kubernetes.cri-o.ContainerID"].get<std::string>();
  const Caller caller{.bundle = "/run/containers/storage/overlay-containers/" + id + "/userdata",
                      .runtime_root = "/run/runc"};
  const ContainerRequest silent = requesting(config, caller);
  EXPECT_EQ(silent.caller.engine, Engine::kCrio);
  EXPECT_FALSE(silent.request);
  EXPECT_TRUE(silent.warnings.empty());
  EXPECT_EQ(silent.note.text, "the container may use all devices: its 10 uverbs nodes are no request");
  config["annotations"]["rdma-init.io/devices"] = "2";
  EXPECT_FALSE(requesting(config, caller).request);
  config["annotations"]["io.kubernetes.pod.namespace"] = "team-a";
  config["annotations"]["io.kubernetes.cri-o.SandboxName"] = "k8s_node-agent_team-a_uid_0";
  const ContainerRequest parsed = requesting(config, caller);
  ASSERT_TRUE(parsed.request);
  EXPECT_EQ(parsed.request->selection.count, 2U);
  EXPECT_TRUE(parsed.request->granted_nodes.empty());
}

// The image's manifest has all annotations that CRI-O and containerd write.
TEST(Caller, ForgedAnnotationsOfPodmanImageAreIgnored) {
  Json config = recorded("crio-annotation.config.json");
  config["annotations"]["io.kubernetes.cri.sandbox-namespace"] = "team-a";
  for (const std::string& path : {"/libpod_parent/libpod-" + kId, "machine.slice:libpod:" + kId,
                                  "/user.slice/libpod-payload-" + kId, std::string()}) {
    config["linux"]["cgroupsPath"] = path;
    const ContainerRequest parsed = requesting(config, {.bundle = kPodmans, .runtime_root = "/run/runc"});
    EXPECT_FALSE(parsed.request) << path;
    ASSERT_EQ(parsed.warnings.size(), 1U);
    // The hook runs by CRI-O's files of hooks.d in a directory that both engines read, or by a CDI file.
    for (const Engine named : {Engine::kCrio, Engine::kContainerd, Engine::kDocker}) {
      const ContainerRequest doubted = requesting(config, {.engine = named, .is_named = true, .bundle = kPodmans});
      EXPECT_FALSE(doubted.request) << path << " " << to_string(named);
      ASSERT_EQ(doubted.warnings.size(), 2U);
      EXPECT_EQ(doubted.warnings[0], fmt::format("treating the annotations as those of a Podman container, which its "
                                                 "image may have set: the administrator names {}, but the "
                                                 "bundle is podman's",
                                                 to_string(named)));
    }
  }
}

TEST(Caller, CrioAnnotationsOfContainerdPodAreIgnored) {
  Json config = recorded("crio-annotation.config.json");
  config["annotations"]["io.kubernetes.cri.sandbox-namespace"] = "team-b";
  EXPECT_FALSE(requesting(config, {.bundle = kKubernetes, .runtime_root = "/run/containerd/runc/k8s.io"}).request);
  EXPECT_FALSE(requesting(config, {.engine = Engine::kCrio, .is_named = true, .bundle = kKubernetes}).request);
  config["annotations"].erase("rdma-init.io/devices");
  EXPECT_TRUE(requesting(config, {.engine = Engine::kCrio, .is_named = true, .bundle = kPodmans}).warnings.empty());
}

TEST(Caller, PlanShowsEngine) {
  const test_support::TempDir directory;
  Json config = recorded("crio-annotation.config.json");
  config["annotations"].erase("rdma-init.io/devices");
  const std::string bundle = directory / "overlay-containers" + ("/" + kId) + "/userdata";
  test_support::write_file(bundle + "/config.json", config.dump());
  test_support::write_file(directory / "admin.json", "{}");
  const auto shown = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--config", directory / "admin.json", "--ledger", directory / "ledger"});
    testing::internal::CaptureStdout();
    EXPECT_EQ(run_command(must(parse_options(test_support::pointers_to(arguments)))), 0);
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(shown({"plan", "--bundle", bundle}),
            "engine      crio  detected from its bundle and cgroupsPath\nHCAs        none\n");
  EXPECT_EQ(Json::parse(shown({"plan", "--json", "--bundle", bundle + "/../userdata/"}))["engine"]["name"], "crio");
  EXPECT_EQ(Json::parse(shown({"plan", "--json", "--bundle", bundle, "--engine", "docker"}))["engine"],
            (Json{{"name", "podman"}, {"by", "the administrator names docker, but the bundle is crio's"}}));
  EXPECT_EQ(shown({"plan", "--bundle", bundle, "--engine", "podman"}),
            "engine      podman  named by the administrator\nHCAs        none\n");
}

}  // namespace
}  // namespace hook
