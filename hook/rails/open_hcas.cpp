#include "hook/rails/open_hcas.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/failure.hpp"
#include "base/file.hpp"
#include "base/proc.hpp"
#include "base/text.hpp"
#include "fabric/inventory.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"

namespace hook {
namespace {

bool is_ended(int code) {
  return code == ENOENT || code == ESRCH;
}

Error cannot_read_descriptors(int code, std::string_view process) {
  Error error = sys_error(code, "cannot read the descriptors of process `{}`", process);
  if (code == EACCES || code == EPERM) error.hint = "run this command as root of the node, with CAP_SYS_PTRACE";
  return error;
}

class DescriptorSearch {
 public:
  DescriptorSearch(const std::vector<DeviceNumber>& devices, const Directory& proc) : devices_(devices), proc_(proc) {}

  void read_process_facts(std::string_view name, pid_t pid) {
    if (auto seen = check_tables(name, pid); !seen) found_.unseen.emplace(pid, std::move(seen).error());
  }
  FoundDescriptors take() && { return std::move(found_); }

 private:
  // Checks the descriptor tables of a process. /proc/PID/fd is empty after the first thread of the process has ended,
  // but the other threads still have the table. Then the tables of the threads are checked, until one has a descriptor.
  Result<void> check_tables(std::string_view name, pid_t pid) {
    if (TRY(check_table(pid, fmt::format("{}/fd", name)))) return {};
    const auto tasks = proc_.open_at(fmt::format("{}/task", name).c_str());
    if (!tasks) return is_ended(errno) ? Result<void>() : cannot_read_descriptors(errno, name);
    int error = 0;
    const auto threads = tasks->list(&error);
    if (error != 0 && !is_ended(error)) return cannot_read_descriptors(error, name);
    for (const std::string& thread : threads)
      if (thread != name && TRY(check_table(pid, fmt::format("{}/task/{}/fd", name, thread)))) break;
    return {};
  }

  // Checks one descriptor table. Returns false if the table has no descriptor.
  Result<bool> check_table(pid_t pid, const std::string& path) {
    const auto table = proc_.open_at(path.c_str());
    if (!table) return is_ended(errno) ? Result<bool>(false) : cannot_read_descriptors(errno, std::to_string(pid));
    bool any = false;
    int denied = 0;
    const bool whole = base::next_names(table->fd(), [&](std::string_view name) {
      any = true;
      denied = check_descriptor(table->fd(), name.data(), pid);
      return denied == 0;
    });
    if (!whole && !is_ended(errno)) denied = errno;
    if (denied != 0) return cannot_read_descriptors(denied, std::to_string(pid));
    return any;
  }

  // Checks one descriptor. Returns 0, or an errno if the kernel does not show the file. AT_STATX_DONT_SYNC with an
  // empty mask of attributes makes the kernel send no request to the server of a FUSE or network file system. Such a
  // request can block: a container can run the FUSE server, and a network server can be unreachable. If the server does
  // not know the file any more (ESTALE, ENOTCONN), the file is no device.
  int check_descriptor(int table, const char* name, pid_t pid) {
    struct statx status {};
    if (::statx(table, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, 0, &status) != 0)
      return is_ended(errno) || errno == ESTALE || errno == ENOTCONN ? 0 : errno;
    const OpenDescriptor opened{pid, {status.stx_rdev_major, status.stx_rdev_minor}};
    const bool is_sought = S_ISCHR(status.stx_mode) && std::ranges::find(devices_, opened.device) != devices_.end();
    if (is_sought && std::ranges::find(found_.descriptors, opened) == found_.descriptors.end())
      found_.descriptors.push_back(opened);
    return 0;
  }

  const std::vector<DeviceNumber>& devices_;
  const Directory& proc_;
  FoundDescriptors found_;
};

void add_process(const OpenProcess& process, std::vector<OpenProcess>& to) {
  if (std::ranges::find(to, process) == to.end()) to.push_back(process);
}

bool has_process(const std::vector<OpenProcess>& processes, pid_t pid) {
  return std::ranges::any_of(processes, [&](const OpenProcess& one) { return one.pid == pid; });
}

// Returns the process; nullopt if it has ended. If its cgroup cannot be read, it counts as a process of a container.
// proc: the node's /proc.
std::optional<OpenProcess> read_process_facts(const std::string& proc, pid_t pid) {
  OpenProcess process{pid, {}, true};
  const auto cgroup = base::read_proc_cgroup(proc, std::to_string(pid));
  if (!cgroup) {
    if (cgroup.error().code == ENOENT || cgroup.error().code == ESRCH) return std::nullopt;
  } else {
    const CgroupPaths paths = parse_proc_cgroup(*cgroup);
    const auto is_outside = [](const std::optional<std::string>& path) { return !path || !is_container_cgroup(*path); };
    process.of_container = !is_outside(paths.v1_devices) || !is_outside(paths.v2);
  }
  const auto name = base::read_attribute(fmt::format("{}/{}/comm", proc, pid));
  process.name = base::printable(base::value_or(name, std::string("?")));
  return process;
}

// Returns a text for messages that names the first processes: "process 4711 (`python3`), process 12 (`sh`)".
std::string shown(const std::vector<OpenProcess>& processes) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> texts;
  for (const OpenProcess& process : processes) {
    if (texts.size() == kShown) {
      texts.push_back(fmt::format("{} more", processes.size() - kShown));
      break;
    }
    texts.push_back(fmt::format("process {} (`{}`)", process.pid, process.name));
  }
  return base::join(texts, ", ");
}

Error left_open(const std::string& hca, const LeftOpen& left, const std::optional<DeviceNumber>& node) {
  constexpr const char* kThen = "then run `rdma-hook recover`";
  Error error{.message = {}, .code = EBUSY, .hint = {}, .reason = FailureReason::kBusy};
  if (!left.of_containers.empty()) {
    error.message = fmt::format("cannot release `{}`: its former owner is gone, but {} has it open", hca,
                                shown(left.of_containers));
    error.hint = fmt::format("end that process or its container, {}", kThen);
    return error;
  }
  const std::string number = node ? fmt::format(" ({}:{})", node->major, node->minor) : "";
  error.message = fmt::format(
      "cannot release `{}`: its former owner is gone, but it is open in a process that the "
      "kernel does not name ({} contexts)",
      hca, left.unknown);
  error.hint = fmt::format(
      "find the process with `lsof` of the uverbs node{}, or end the containers that ran at the same time as that "
      "owner, {}",
      number, kThen);
  return error;
}

std::vector<OpenProcess> check_processes(const std::string& proc, const std::vector<pid_t>& pids) {
  std::vector<OpenProcess> processes;
  for (const pid_t pid : pids)
    if (auto process = read_process_facts(proc, pid)) processes.push_back(std::move(*process));
  return processes;
}

// Returns true if the RDMA device stays on the node. A rail moves the device if the RDMA subsystem is in exclusive
// mode, and makes a software device again in the container. Moving the device and making it again both end all its
// contexts.
bool stays_on_node(const fabric::Inventory& inventory, const Plan& plan, const fabric::Hca& hca) {
  const bool has_rail =
      std::ranges::any_of(plan.netdevs, [&](const PlannedNetdev& netdev) { return netdev.hca == hca.name; });
  return !has_rail || (inventory.netns_mode != fabric::NetnsMode::kExclusive && !hca.is_software());
}

std::optional<DeviceNumber> uverbs_number(const Plan& plan, const fabric::Hca& hca) {
  const std::string path = fmt::format("/dev/infiniband/uverbs{}", hca.uverbs.value_or(0));
  const auto node =
      std::ranges::find_if(plan.nodes, [&](const PlannedNode& one) { return hca.uverbs && one.path == path; });
  if (node == plan.nodes.end() || !node->major || !node->minor) return std::nullopt;
  return DeviceNumber{*node->major, *node->minor};
}

// Returns the entry of a device in `uses`; nullptr if the device is gone (its contexts have ended with it), or if the
// kernel does not report uses.
const RdmaUse* find_use(const std::optional<std::vector<RdmaUse>>& uses, const auto& is_it) {
  if (!uses) return nullptr;
  const auto found = std::ranges::find_if(*uses, is_it);
  return found == uses->end() ? nullptr : &*found;
}

Result<std::vector<OpenContext>> read_contexts(const RdmaUse& use) {
  std::vector<OpenContext> contexts;
  for (const RdmaContext& context : TRY(rdma_contexts(use)))
    contexts.push_back({context.id, check_processes("/proc", context.processes)});
  return contexts;
}

Result<void> note_contexts(const RdmaUse& use, OpenState& open, std::vector<std::string>& warnings) {
  if (use.contexts == 0) return {};
  std::vector<OpenProcess> users;
  for (const OpenContext& context : TRY(read_contexts(use))) {
    if (!open.contexts.add(context.id)) return make_error("internal error: contexts are not in order of their ids");
    for (const OpenProcess& process : context.processes)
      add_process(process, users);
  }
  if (open.contexts.empty()) return {};
  warnings.push_back(fmt::format("`{}` is allocated exclusively, but was open before in {}", use.name,
                                 users.empty() ? "a process that the kernel does not name" : shown(users)));
  return {};
}

// Finds the descriptors of all device nodes with one pass over all processes. A process of a container that cannot be
// read is an error. A process of the node that cannot be read is no error, because open descriptors of such a process
// do not delay the release of an HCA.
Result<std::vector<OpenDescriptor>> open_descriptors_of(const std::vector<const PlannedHca*>& hcas,
                                                        const std::string& root) {
  std::vector<DeviceNumber> numbers;
  for (const PlannedHca* hca : hcas)
    if (hca->open->node) numbers.push_back(*hca->open->node);
  const std::string proc = root + "/proc";
  const bool is_missing = !root.empty() && ::access(proc.c_str(), F_OK) != 0 && errno == ENOENT;
  if (numbers.empty() || is_missing) return std::vector<OpenDescriptor>();
  auto found = TRY(find_descriptors(numbers, proc));
  for (const auto& [pid, error] : found.unseen) {
    const auto process = read_process_facts(proc, pid);
    if (process && process->of_container) return error;
  }
  return std::move(found.descriptors);
}

Result<void> check_hca(const PlannedHca& hca, const OpenHca& now, std::vector<std::string>& warnings) {
  const LeftOpen left = find_left_open(*hca.open, now);
  if (!left.of_containers.empty() || left.unknown > 0) return left_open(hca.name, left, hca.open->node);
  if (!left.of_node.empty())
    warnings.push_back(
        fmt::format("`{}` is released, but is open in {}, which runs on the node", hca.name, shown(left.of_node)));
  return {};
}

}  // namespace

Result<FoundDescriptors> find_descriptors(const std::vector<DeviceNumber>& devices, const std::string& proc) {
  const auto directory = Directory::open(proc);
  if (!directory) return sys_error(errno, "cannot read the processes in `{}`", proc);
  int error = 0;
  const auto names = directory->list(&error);
  if (error != 0) return sys_error(error, "cannot read the processes in `{}`", proc);
  DescriptorSearch search(devices, *directory);
  for (const std::string& name : names) {
    const auto pid = base::parse_number<pid_t>(name);
    if (pid && *pid > 0) search.read_process_facts(name, *pid);
  }
  return std::move(search).take();
}

bool is_container_cgroup(std::string_view cgroup) {
  // If a cgroup is outside of the reader's cgroup namespace, its path begins with "/..", which is removed.
  while (cgroup.starts_with("/.."))
    cgroup.remove_prefix(3);
  while (cgroup.starts_with('/'))
    cgroup.remove_prefix(1);
  if (cgroup.empty()) return false;
  const std::string_view first = cgroup.substr(0, cgroup.find('/'));
  if (first != "init.scope" && first != "system.slice" && first != "user.slice") return true;
  // A systemd scope with cgroups below it belongs to a container: the container can make these cgroups and choose their
  // names, also a name that ends with ".service".
  for (const std::string_view part : base::split(cgroup.substr(0, std::min(cgroup.rfind('/'), cgroup.size())), '/'))
    if (part.ends_with(".scope") && part != "init.scope" && !part.starts_with("session-")) return true;
  const std::string_view last = cgroup.substr(cgroup.rfind('/') + 1);
  constexpr std::string_view kUnits[] = {".service", ".slice", ".socket", ".mount", ".swap"};
  const bool is_unit = std::ranges::any_of(kUnits, [&](std::string_view ending) { return last.ends_with(ending); });
  return !is_unit && last != "init.scope" && !(last.starts_with("session-") && last.ends_with(".scope"));
}

LeftOpen find_left_open(const OpenState& before, const OpenHca& now) {
  LeftOpen left;
  std::vector<OpenProcess> earlier;
  const auto add = [&](const OpenProcess& process) {
    add_process(process, process.of_container ? left.of_containers : left.of_node);
  };
  for (const OpenContext& context : now.contexts) {
    // This context was opened before the grant, so it is not a context of the owner whose grant ends.
    if (before.contexts.contains(context.id)) {
      for (const OpenProcess& process : context.processes)
        add_process(process, earlier);
      continue;
    }
    // If the context has no known process, the process that opened the context has ended. Another process has the
    // descriptor of the context, but the kernel does not report which process.
    if (context.processes.empty()) ++left.unknown;
    std::ranges::for_each(context.processes, add);
  }
  for (const OpenProcess& process : now.descriptors) {
    // A process that has a context from before the grant is skipped, because its descriptor is as old as the context.
    if (!has_process(earlier, process.pid)) add(process);
  }
  return left;
}

void note_open(const fabric::Inventory& inventory, const std::vector<std::string>& own, const std::string& root,
               Plan& plan) {
  std::vector<PlannedHca*> hcas;
  for (PlannedHca& hca : plan.hcas) {
    const fabric::Hca* found = find_hca(inventory, hca.name);
    if (hca.mode != Mode::kExclusive || hca.held_only || !found || !stays_on_node(inventory, plan, *found)) continue;
    hca.open = OpenState{.index = {}, .contexts = {}, .node = uverbs_number(plan, *found)};
    hcas.push_back(&hca);
  }
  if (hcas.empty() || !root.empty()) return;
  const auto uses = rdma_use();
  for (PlannedHca* hca : hcas) {
    const bool is_own = std::ranges::find(own, hca->name) != own.end();
    const RdmaUse* use = uses ? find_use(*uses, [&](const RdmaUse& one) { return one.name == hca->name; }) : nullptr;
    if (use) hca->open->index = use->index;
    auto noted = use && !is_own ? note_contexts(*use, *hca->open, plan.warnings) : Result<void>();
    if (!uses) noted = uses.error();
    if (noted) continue;
    // The incomplete list of contexts is dropped. An old context that is missing in the list would later look like a
    // context of the new owner.
    hca->open.reset();
    plan.warnings.push_back(
        fmt::format("cannot check whether `{}` is open in another process, now and at its release: {}", hca->name,
                    noted.error().message));
  }
}

Result<void> check_closed(const std::vector<PlannedHca>& hcas, const std::string& root, bool descriptors,
                          std::vector<std::string>& warnings) {
  std::vector<const PlannedHca*> left;
  for (const PlannedHca& hca : hcas)
    if (hca.open) left.push_back(&hca);
  const bool asks = std::ranges::any_of(left, [](const auto* hca) { return hca->open->index.has_value(); });
  const auto uses = asks ? TRY(rdma_use()) : std::nullopt;
  const auto use_of = [&](const PlannedHca& hca) {
    return find_use(uses, [&](const RdmaUse& use) { return use.index == hca.open->index; });
  };
  // If no device has the recorded index, the device is gone, or its driver was bound again, which gave it another
  // index. Both ended all contexts and made the descriptors useless, so the HCA is skipped.
  std::erase_if(left, [&](const auto* hca) { return hca->open->index && !use_of(*hca); });
  const auto open_descriptors =
      descriptors && !left.empty() ? TRY(open_descriptors_of(left, root)) : std::vector<OpenDescriptor>();
  for (const PlannedHca* hca : left) {
    OpenHca now;
    const RdmaUse* use = use_of(*hca);
    if (use && use->contexts > 0) now.contexts = TRY(read_contexts(*use));
    std::vector<pid_t> pids;
    for (const OpenDescriptor& opened : open_descriptors)
      if (opened.device == hca->open->node) pids.push_back(opened.pid);
    now.descriptors = check_processes(root + "/proc", pids);
    TRY_VOID(check_hca(*hca, now, warnings));
  }
  return {};
}

}  // namespace hook
