#include "hook/install/choose_engine.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fabric/text.hpp"
#include "hook/install/node_files.hpp"

namespace hook {
namespace {

bool exists(const std::string& root, const char* path) {
  return node_has(root, path, F_OK);
}

bool is_link(const std::string& root, const char* path) {
  struct stat seen {};
  return ::lstat((root + path).c_str(), &seen) == 0 && S_ISLNK(seen.st_mode);
}

std::string names_of(const std::vector<FoundEngine>& engines) {
  std::string names;
  for (const FoundEngine& one : engines)
    names += fmt::format("{}{}{}", names.empty() ? "" : ", ", to_string(one.engine),
                         one.trouble.empty() ? fmt::format(" {}.{}", one.major, one.minor) : " (tells no version)");
  return names;
}

bool has_engine(const std::vector<FoundEngine>& engines, Engine engine) {
  return std::any_of(engines.begin(), engines.end(), [&](const FoundEngine& one) { return one.engine == engine; });
}

// Docker runs a containerd of its own: only a kubelet asks one itself.
void leave_out_who_serves_the_other(const std::string& root, std::vector<FoundEngine>& engines) {
  if (!has_engine(engines, Engine::kContainerd) || !has_engine(engines, Engine::kDocker)) return;
  const bool kubelet = find_program(root, "kubelet") || exists(root, "/var/lib/kubelet");
  const Engine other = kubelet ? Engine::kDocker : Engine::kContainerd;
  std::erase_if(engines, [&](const FoundEngine& one) { return one.engine == other; });
}

Result<FoundEngine> pick(const std::string& root, std::vector<FoundEngine> engines, std::optional<Engine> named) {
  if (named) {
    for (const FoundEngine& one : engines)
      if (one.engine == *named) return one;
    return make_error("`{}` is not on this node", to_string(*named));
  }
  leave_out_who_serves_the_other(root, engines);
  if (engines.size() == 1) return engines.front();
  if (engines.empty()) return Error{"no engine is on this node", ENOENT, "install containerd, CRI-O, Docker or Podman"};
  return Error{fmt::format("several engines are on this node: {}", names_of(engines)), EINVAL, "name one by --engine"};
}

}  // namespace

Result<Choice> choose_engine(const std::string& root, std::optional<Engine> engine, std::optional<InstallWay> way) {
  const auto found = TRY(find_engines(root));
  Choice choice{TRY(pick(root, found, engine)), InstallWay::kRuntime, {}};
  if (!choice.engine.trouble.empty())
    return Error{fmt::format("`{}` does not tell its version: {}", choice.engine.program, choice.engine.trouble),
                 EINVAL, choice.engine.remedy.empty() ? "mend that first; nothing was changed" : choice.engine.remedy};
  choice.said.push_back(fmt::format("found: {}", names_of(found)));
  const FoundEngine& one = choice.engine;
  const char* why = "as --way says";
  const bool has_nri = one.engine == Engine::kCrio ||
                       (one.engine == Engine::kContainerd && (one.major > 1 || (one.major == 1 && one.minor >= 7)));
  if (way == InstallWay::kNri && one.engine == Engine::kContainerd && !has_nri)
    return make_error("containerd {}.{} has no NRI: take `--way runtime`", one.major, one.minor);
  if (way) {
    choice.way = *way;
  } else if (has_nri) {
    choice.way = InstallWay::kNri;
    why = "pods need no RuntimeClass, and `verify` refuses those that were not asked about";
  } else if (one.engine == Engine::kContainerd) {
    why = "containerd before 1.7 has no NRI; pods take the RuntimeClass `rdma`";
  } else if (one.engine == Engine::kDocker) {
    why = "Docker has no hooks; `docker run --runtime rdma`";
  } else if (is_link(root, "/etc/containers/containers.conf") || is_link(root, "/etc/containers/containers.conf.d")) {
    choice.way = InstallWay::kHook;
    why = "/etc/containers/containers.conf is somebody else's";
  } else {
    why = "it adds CAP_IPC_LOCK and says why a container is refused; `podman run --runtime rdma`";
  }
  choice.said.push_back(fmt::format("{}, way {}: {}", to_string(one.engine), to_word(kInstallWays, choice.way), why));
  // Of hooks.d, where both look.
  const bool has_hooks = one.engine == Engine::kCrio ? choice.way == InstallWay::kNri || choice.way == InstallWay::kHook
                                                     : choice.way == InstallWay::kHook;
  const Engine other = one.engine == Engine::kCrio ? Engine::kPodman : Engine::kCrio;
  if (has_hooks && one.engine != Engine::kContainerd && has_engine(found, other))
    choice.said.push_back(
        fmt::format("{} reads the same hooks.d: give each a directory of its own by `hooks_dir`", to_string(other)));
  return choice;
}

std::optional<std::string> template_of_distribution(const std::string& root, const std::string& programs) {
  struct Distribution {
    const char* name;
    const char* directory;
    const char* file;
  };
  constexpr Distribution kDistributions[] = {
      {"k3s", "/var/lib/rancher/k3s", "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl"},
      {"RKE2", "/var/lib/rancher/rke2", "/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.tmpl"},
      {"microk8s", "/var/snap/microk8s", "/var/snap/microk8s/current/args/containerd-template.toml"}};
  for (const auto& [name, directory, file] : kDistributions) {
    if (!exists(root, directory)) continue;
    EngineFacts facts;
    facts.programs = programs;
    facts.engine.major = 2;
    for (const char* plugin : {"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"})
      facts.settings[{fmt::format("plugins.'{}'.containerd.runtimes.runc.options", plugin), "SystemdCgroup"}] = "true";
    std::string text = fmt::format(
        "{} makes its containerd's configuration itself: nothing was changed. Put this into `{}`{}, and restart {}:\n",
        name, file, std::string_view(name) == "microk8s" ? "" : ", behind the line {{ template \"base\" . }}", name);
    text += "\n" + containerd_tables(facts);
    facts.engine.major = 1;
    return text + "\nor, if its containerd is of version 1 (and the file config.toml.tmpl):\n\n" +
           containerd_tables(facts);
  }
  return std::nullopt;
}

std::vector<std::string> restart_command(Engine engine, InstallWay way) {
  switch (engine) {
    case Engine::kContainerd:
      return {"systemctl", "restart", "containerd"};
    case Engine::kCrio:  // reads new files of hooks.d by itself
      if (way == InstallWay::kHook || way == InstallWay::kCdi) return {};
      return {"systemctl", "restart", "crio"};
    case Engine::kDocker:  // takes runtimes by SIGHUP, and restarts no container then
      return {"systemctl", way == InstallWay::kRuntime ? "reload" : "restart", "docker"};
    default:
      return {};
  }
}

}  // namespace hook
