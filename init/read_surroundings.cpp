// The one place that looks at the container's limits beyond fabric::Limits.
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <limits>

#include "fabric/text.hpp"
#include "init/rooted.hpp"
#include "init/surroundings.hpp"

namespace init {
namespace {

constexpr unsigned kDeepestCgroup = 32;

std::string read_text(const Rooted& files, const std::string& path) {
  auto text = files.read(path, kMostText);
  return std::holds_alternative<std::string>(text) ? std::get<std::string>(std::move(text)) : "";
}

// Of the container's own cgroup and those above it: on cgroup v2 one tree, on v1 that of the controller.
void read_rdma_limits(const Rooted& files, Surroundings& around) {
  const std::string cgroups = read_text(files, "/proc/self/cgroup");
  for (const std::string_view line : fabric::split(cgroups, '\n')) {
    const bool v2 = line.starts_with("0::/");
    const std::size_t v1 = line.find(":rdma:/");
    if (!v2 && v1 == std::string_view::npos) continue;
    const std::string top = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/rdma";
    std::string path(line.substr(v2 ? 3 : v1 + 6));
    for (unsigned depth = 0; depth < kDeepestCgroup; ++depth) {
      if (path == "/") path.clear();
      add_rdma_max(read_text(files, top + path + "/rdma.max"), around.rdma_limits);
      if (path.empty()) break;
      path.erase(path.rfind('/'));
    }
  }
}

std::uint64_t limit_of(rlim_t limit) {
  return limit == RLIM_INFINITY ? std::numeric_limits<std::uint64_t>::max() : limit;
}

// In a child, because a profile may kill for a call: an ioctl of verbs on no file, whose answer is EBADF where it is
// let through, and the advice that ibv_fork_init() gives.
std::vector<std::string> refused_calls() {
  std::vector<std::string> refused;
  using Probe = bool (*)();
  constexpr std::array<std::pair<const char*, Probe>, 2> kProbes = {
      {{"ioctl", [] { return ::ioctl(-1, RDMA_VERBS_IOCTL, nullptr) == -1 && errno != EBADF; }},
       {"madvise", [] {
          void* page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          return page != MAP_FAILED && ::madvise(page, 4096, MADV_DONTFORK) != 0;
        }}}};
  for (const auto& [name, probe] : kProbes) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(probe() ? 1 : 0);
    int status = 0;
    pid_t ended = -1;
    while (child > 0 && (ended = ::waitpid(child, &status, 0)) == -1 && errno == EINTR) {
    }
    if (ended != child || child <= 0) continue;
    if ((WIFEXITED(status) && WEXITSTATUS(status) == 1) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS))
      refused.emplace_back(name);
  }
  return refused;
}

void read_gpudirect(const Rooted& files, Surroundings& around) {
  const std::string version = read_text(files, "/proc/driver/nvidia/version");
  around.nvidia = !version.empty();
  around.open_module = version.find("Open Kernel Module") != std::string::npos;
  for (const char* path : {"/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem",
                           "/sys/kernel/mm/memory_peers/nv_mem", "/sys/kernel/mm/memory_peers/nv_mem_nc"}) {
    around.peer_memory |= files.each_name(path, [](std::string_view) {}) == 0;
  }
  around.kernel = fabric::trim(read_text(files, "/proc/sys/kernel/osrelease"));
}

bool has_seccomp_filter(const Rooted& files) {
  return read_text(files, "/proc/self/status").find("\nSeccomp:\t2") != std::string::npos;
}

}  // namespace

Surroundings read_surroundings(const std::string& root) {
  Surroundings around;
  const Rooted files(root);
  read_rdma_limits(files, around);
  read_gpudirect(files, around);
  if (!root.empty()) return around;
  struct statvfs memory {};
  if (::statvfs("/dev/shm", &memory) == 0) around.shared_memory = std::uint64_t{memory.f_blocks} * memory.f_frsize;
  rlimit open{};
  if (::getrlimit(RLIMIT_NOFILE, &open) == 0) {
    around.open_files = limit_of(open.rlim_cur);
    around.open_files_hard = limit_of(open.rlim_max);
  }
  if (has_seccomp_filter(files)) around.refused = refused_calls();
  return around;
}

}  // namespace init
