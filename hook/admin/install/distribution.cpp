#include "hook/admin/install/distribution.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/result.hpp"
#include "hook/admin/install/engine_processes.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/admin/install/plan.hpp"

namespace hook {
namespace {

struct KnownDistribution {
  const char* name;
  const char* directory;   // this directory exists if the distribution is installed
  const char* containerd;  // directory of containerd's configuration and its template
  const char* agent_unit;
  const char* server_unit;
};
constexpr KnownDistribution kKnown[] = {
    {"k3s", "/var/lib/rancher/k3s", "/var/lib/rancher/k3s/agent/etc/containerd", "k3s-agent", "k3s"},
    {"rke2", "/var/lib/rancher/rke2", "/var/lib/rancher/rke2/agent/etc/containerd", "rke2-agent", "rke2-server"},
    {"microk8s", "/var/snap/microk8s", "/var/snap/microk8s/current/args", "", ""}};

std::string text_of_file(const std::string& root, const std::string& path) {
  const auto text = read_node_file(root, path);
  return text ? text->value_or("") : "";
}

// RKE2's archive has both units, and rke2-agent.service has Conflicts=rke2-server.service: a restart of the wrong one
// stops the other. So the unit that the administrator enabled is preferred.
std::string unit_of_distribution(const std::string& root, const KnownDistribution& known) {
  const auto enabled = names_in(root, "/etc/systemd/system/multi-user.target.wants");
  for (const char* unit : {known.agent_unit, known.server_unit})
    if (std::ranges::find(enabled, fmt::format("{}.service", unit)) != enabled.end()) return unit;
  const bool is_agent = !read_unit(root, fmt::format("{}.service", known.agent_unit)).empty();
  return is_agent ? known.agent_unit : known.server_unit;
}

// Returns the lines of a handler `rdma` that starts rdma-runtime.
// generated: the text of containerd's configuration, which the distribution generated. The handler gets runc's cgroup
// driver from it.
std::string handler_lines(const std::string& generated, const std::string& programs, int major) {
  EngineFacts facts;
  facts.programs = programs;
  facts.engine.major = major;
  facts.settings = parse_engine_settings(generated);
  const char* plugin = major == 1 ? "io.containerd.grpc.v1.cri" : "io.containerd.cri.v1.runtime";
  // Before the first start of the distribution `generated` is empty. Then the systemd cgroup driver is assumed, which
  // the kubelets of all three distributions use by default.
  facts.settings.try_emplace({fmt::format("plugins.'{}'.containerd.runtimes.runc.options", plugin), "SystemdCgroup"},
                             "true");
  return containerd_tables(facts);
}

// Sets found.file and found.lines: a drop-in if possible, and otherwise a template. A drop-in needs containerd 2, which
// merges drop-ins key by key, and a generated configuration that imports drop-ins; k3s generates such imports since
// February 2026 (pkg/agent/templates of k3s). The base template exists since v1.24.17, v1.25.13, v1.26.8, v1.27.5 and
// v1.28.1 of k3s.
void find_file(const std::string& root, const KnownDistribution& known, const std::string& generated,
               const std::string& programs, Distribution& found) {
  const std::string directory = known.containerd;
  if (known.server_unit[0] == '\0') {
    found.file = directory + "/containerd-template.toml";
    found.lines = handler_lines(generated, programs, generated.find("version = 3") != std::string::npos ? 2 : 1);
    return;
  }
  if (generated.find(directory + "/config-v3.toml.d/*.toml") != std::string::npos) {
    found.file = directory + "/config-v3.toml.d/rdma-init.toml";
    found.lines = "version = 3\n\n" + handler_lines(generated, programs, 2);
    return;
  }
  const int major = generated.find("version = 2") != std::string::npos ? 1 : 2;
  found.file = directory + (major == 1 ? "/config.toml.tmpl" : "/config-v3.toml.tmpl");
  found.lines = handler_lines(generated, programs, major);
  // The administrator's template replaces the distribution's template, which has the name `base`, and must therefore
  // include it.
  if (!node_has(root, found.file, F_OK)) found.lines = "{{ template \"base\" . }}\n\n" + found.lines;
}

}  // namespace

std::vector<std::string_view> distribution_names() {
  std::vector<std::string_view> names;
  for (const KnownDistribution& known : kKnown)
    names.emplace_back(known.name);
  return names;
}

bool is_distribution(std::string_view name) {
  return std::ranges::any_of(kKnown, [&](const KnownDistribution& known) { return name == known.name; });
}

std::optional<Distribution> find_distribution(const std::string& root, const std::optional<std::string>& name,
                                              const std::string& programs) {
  for (const KnownDistribution& known : kKnown) {
    if ((name && *name != known.name) || !node_has(root, known.directory, F_OK)) continue;
    Distribution found;
    found.name = known.name;
    found.unit = unit_of_distribution(root, known);
    found.restart = found.unit.empty() ? fmt::format("snap restart {}", found.name) : "systemctl restart " + found.unit;
    const char* config = known.server_unit[0] == '\0' ? "/containerd.toml" : "/config.toml";
    const std::string generated = text_of_file(root, known.containerd + std::string(config));
    find_file(root, known, generated, programs, found);
    const std::string program = programs + "/rdma-runtime";
    found.is_added = text_of_file(root, found.file).find(program) != std::string::npos;
    found.is_in_use =
        generated.find(program) != std::string::npos || (found.is_added && found.file.ends_with("/rdma-init.toml"));
    return found;
  }
  return std::nullopt;
}

}  // namespace hook
