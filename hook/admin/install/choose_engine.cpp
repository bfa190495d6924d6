#include "hook/admin/install/choose_engine.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "hook/admin/install/engine_processes.hpp"
#include "hook/admin/install/node_files.hpp"

namespace hook {
namespace {

bool exists(const std::string& root, const char* path) {
  return node_has(root, path, F_OK);
}

bool is_link(const std::string& root, const char* path) {
  struct stat seen {};
  return ::lstat((root + path).c_str(), &seen) == 0 && S_ISLNK(seen.st_mode);
}

// Returns the engines with their versions, for a message that explains the choice. Engines whose version is unknown are
// in the text too.
std::string names_of(const std::vector<FoundEngine>& engines) {
  std::string names;
  for (const FoundEngine& one : engines)
    names += fmt::format("{}{}{}", names.empty() ? "" : ", ", to_string(one.engine),
                         one.trouble.empty() ? fmt::format(" {}.{}", one.major, one.minor) : " (version unknown)");
  return names;
}

bool has_engine(const std::vector<FoundEngine>& engines, Engine engine) {
  return std::ranges::any_of(engines, [&](const FoundEngine& one) { return one.engine == engine; });
}

// Docker starts its own containerd, so a node with Docker has both engines. If the node has a kubelet, the kubelet uses
// containerd, and Docker is removed from the list; without a kubelet, containerd is removed.
void exclude_by_other_layer(const std::string& root, std::vector<FoundEngine>& engines) {
  if (!has_engine(engines, Engine::kContainerd) || !has_engine(engines, Engine::kDocker)) return;
  const bool kubelet = find_program(root, "kubelet") || exists(root, "/var/lib/kubelet");
  const Engine other = kubelet ? Engine::kDocker : Engine::kContainerd;
  std::erase_if(engines, [&](const FoundEngine& one) { return one.engine == other; });
}

Result<FoundEngine> pick(const std::string& root, std::vector<FoundEngine> engines, std::optional<Engine> named) {
  if (named) {
    for (const FoundEngine& one : engines)
      if (one.engine == *named) return one;
    return Error{fmt::format("`{}` is not installed on this node", to_string(*named)), EOPNOTSUPP,
                 "install it, or select another engine with --engine"};
  }
  exclude_by_other_layer(root, engines);
  if (engines.size() == 1) return engines.front();
  if (engines.empty()) {
    const bool has_slurm = find_engine_program(root, "slurmd").has_value();
    return Error{"no container engine is installed on this node", EOPNOTSUPP,
                 has_slurm ? "for Slurm, add `--engine slurm`" : "install containerd, CRI-O, Docker or Podman"};
  }
  return Error{fmt::format("several container engines are installed on this node: {}", names_of(engines)), EINVAL,
               "select one with --engine"};
}

// Returns the way without --way, and the reason for it.
std::pair<InstallWay, const char*> usual_way(const std::string& root, Engine engine, bool has_nri) {
  if (has_nri)
    return {InstallWay::kNri, "pods need no RuntimeClass, and `verify` refuses containers that rdma-nri did not check"};
  if (engine == Engine::kContainerd)
    return {InstallWay::kRuntime, "containerd before 1.7 has no NRI; set RuntimeClass `rdma` in pods"};
  if (engine == Engine::kDocker) return {InstallWay::kRuntime, "Docker has no hooks; use `docker run --runtime rdma`"};
  if (is_link(root, "/etc/containers/containers.conf") || is_link(root, "/etc/containers/containers.conf.d"))
    return {InstallWay::kHook, "containers.conf is a link, so another program manages it"};
  return {InstallWay::kRuntime,
          "rdma-runtime can add CAP_IPC_LOCK and reports why a container is refused; use `podman run --runtime rdma`"};
}

}  // namespace

Result<Choice> choose_engine(const std::string& root, std::optional<Engine> engine, std::optional<InstallWay> way) {
  const auto found = TRY(find_engines(root));
  Choice choice{TRY(pick(root, found, engine)), InstallWay::kRuntime, {}};
  if (!choice.engine.trouble.empty())
    return Error{fmt::format("cannot read the version of `{}`: {}", choice.engine.program, choice.engine.trouble),
                 EINVAL,
                 choice.engine.remedy.empty() ? "correct the cause and run install again; nothing was changed"
                                              : choice.engine.remedy};
  choice.messages.push_back(fmt::format("found engines: {}", names_of(found)));
  const FoundEngine& one = choice.engine;
  const bool has_nri = one.engine == Engine::kCrio ||
                       (one.engine == Engine::kContainerd && (one.major > 1 || (one.major == 1 && one.minor >= 7)));
  if (way == InstallWay::kNri && one.engine == Engine::kContainerd && !has_nri)
    return Error{fmt::format("containerd {}.{} has no NRI", one.major, one.minor), EOPNOTSUPP, "use `--way runtime`"};
  const auto [chosen, why] = way ? std::pair(*way, "set by --way") : usual_way(root, one.engine, has_nri);
  choice.way = chosen;
  choice.messages.push_back(
      fmt::format("{}, way {}: {}", to_string(one.engine), to_word(kInstallWays, choice.way), why));
  // CRI-O and Podman read the same hook directory by default, so each of them would also execute the hook files of the
  // other engine.
  const bool has_hooks = one.engine == Engine::kCrio ? choice.way == InstallWay::kNri || choice.way == InstallWay::kHook
                                                     : choice.way == InstallWay::kHook;
  const Engine other = one.engine == Engine::kCrio ? Engine::kPodman : Engine::kCrio;
  if (has_hooks && one.engine != Engine::kContainerd && has_engine(found, other))
    choice.messages.push_back(
        fmt::format("{} reads the same hooks.d: set a separate `hooks_dir` for each engine", to_string(other)));
  return choice;
}

std::vector<std::string> restart_command(Engine engine, InstallWay way) {
  switch (engine) {
    case Engine::kContainerd:
      return {"systemctl", "restart", "containerd"};
    case Engine::kCrio:  // it reads new files of hooks.d without a restart
      if (way == InstallWay::kHook || way == InstallWay::kCdi) return {};
      return {"systemctl", "restart", "crio"};
    case Engine::kDocker:  // SIGHUP makes dockerd read `runtimes`; no container is restarted
      return {"systemctl", way == InstallWay::kRuntime ? "reload" : "restart", "docker"};
    default:
      return {};
  }
}

}  // namespace hook
