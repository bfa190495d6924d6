#include "hook/rails/netlink/netdev_settings.hpp"

#include <fmt/core.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace hook {
namespace {

using Ids = std::vector<std::uint32_t>;

// The headers of Linux 6.1 do not have these constants.
constexpr std::uint32_t kTcxIngress = 46;
constexpr std::uint32_t kTcxEgress = 47;
constexpr std::size_t kMostPrograms = 64;  // the kernel's limit BPF_MPROG_MAX
// Without a limit, a container that keeps making BPF links could keep find_xdp_link() reading them.
constexpr int kMostLinks = 100000;

// The part of union bpf_attr for BPF_PROG_QUERY (Linux 6.6).
struct TcxQuery {
  std::uint32_t ifindex;
  std::uint32_t attach_type;
  std::uint32_t query_flags;
  std::uint32_t attach_flags;
  std::uint64_t programs;
  std::uint32_t count;
  std::uint32_t unused;
  std::uint64_t program_flags;
  std::uint64_t links;
};

int call(int command, auto& part) {
  // The kernel gets a zeroed union with at least its own size, because Linux 6.17 to 7.1 write after the end of a
  // shorter argument.
  union {
    bpf_attr known;
    std::array<char, 256> room;
  } attr{};
  attr.room = {};
  static_assert(sizeof part <= sizeof attr);
  std::memcpy(&attr, &part, sizeof part);
  const long result = ::syscall(SYS_bpf, command, &attr, sizeof attr);
  const int code = errno;
  std::memcpy(&part, &attr, sizeof part);
  errno = code;
  return static_cast<int>(result);
}

UniqueFd open_by_id(int command, std::uint32_t id) {
  return UniqueFd(call(command, id));
}

bool detach_link(std::uint32_t id) {
  const UniqueFd link = open_by_id(BPF_LINK_GET_FD_BY_ID, id);
  auto fd = static_cast<std::uint32_t>(link.get());
  return link.ok() && call(BPF_LINK_DETACH, fd) == 0;
}

bool detach_program(std::uint32_t ifindex, std::uint32_t attach_type, std::uint32_t id) {
  const UniqueFd program = open_by_id(BPF_PROG_GET_FD_BY_ID, id);
  std::array<std::uint32_t, 3> detach{ifindex, static_cast<std::uint32_t>(program.get()), attach_type};
  return program.ok() && call(BPF_PROG_DETACH, detach) == 0;
}

struct TcxProgram {
  std::uint32_t attach_type;
  std::uint32_t program;
  std::uint32_t link;  // ID of the BPF link that attaches the program; 0: there is none
};

Result<void> query_tcx(int ifindex, const std::string& name, std::uint32_t attach_type,
                       std::vector<TcxProgram>& found) {
  std::array<std::uint32_t, kMostPrograms> programs{};
  std::array<std::uint32_t, kMostPrograms> links{};
  TcxQuery query{};
  query.ifindex = static_cast<std::uint32_t>(ifindex);
  query.attach_type = attach_type;
  query.programs = reinterpret_cast<std::uint64_t>(programs.data());
  query.links = reinterpret_cast<std::uint64_t>(links.data());
  query.count = kMostPrograms;
  // After three errors there are no programs. EINVAL: the kernel has no tcx. ENOENT: the netdev never had a program.
  // ENODEV: the netdev is gone, and its programs with it.
  if (call(BPF_PROG_QUERY, query) != 0) {
    if (errno == EINVAL || errno == ENOENT || errno == ENODEV) return {};
    return sys_error(errno, "cannot read the tcx programs of `{}`", name);
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(query.count, kMostPrograms); ++i)
    found.push_back({attach_type, programs[i], links[i]});
  return {};
}

Result<std::vector<TcxProgram>> all_tcx(int ifindex, const std::string& name) {
  std::vector<TcxProgram> found;
  TRY_VOID(query_tcx(ifindex, name, kTcxIngress, found));
  TRY_VOID(query_tcx(ifindex, name, kTcxEgress, found));
  return found;
}

bool is_new_xdp(const LinkSettings& before, const LinkSettings& now, std::size_t mode) {
  return now.xdp[mode] != 0 && now.xdp[mode] != before.xdp[mode];
}

// Returns the ID of an XDP link with this ifindex and program; 0 if there is none. The kernel has no lookup by netdev,
// so this function reads all BPF links of the node.
std::uint32_t find_xdp_link(int ifindex, std::uint32_t program) {
  std::array<std::uint32_t, 2> next{};  // start_id, next_id
  for (int i = 0; i < kMostLinks && call(BPF_LINK_GET_NEXT_ID, next) == 0; ++i) {
    next[0] = next[1];
    const UniqueFd link = open_by_id(BPF_LINK_GET_FD_BY_ID, next[1]);
    bpf_link_info info{};
    bpf_attr attr{};
    attr.info.bpf_fd = static_cast<std::uint32_t>(link.get());
    attr.info.info_len = sizeof info;
    attr.info.info = reinterpret_cast<std::uint64_t>(&info);
    if (!link.ok() || call(BPF_OBJ_GET_INFO_BY_FD, attr) != 0) continue;
    if (info.type == BPF_LINK_TYPE_XDP && info.prog_id == program && info.xdp.ifindex == static_cast<unsigned>(ifindex))
      return next[1];
  }
  return 0;
}

}  // namespace

Result<Ids> tcx_programs(int ifindex, const std::string& name) {
  Ids ids;
  for (const TcxProgram& one : TRY(all_tcx(ifindex, name)))
    ids.push_back(one.program);
  return ids;
}

std::vector<std::string> restore_tcx(int ifindex, const std::string& name, const Ids& before) {
  const auto found = all_tcx(ifindex, name);
  if (!found) return {fmt::format("{}; remedy: run `bpftool net show dev {}`", found.error().message, name)};
  std::vector<std::string> warnings;
  // A program can be attached more than once, so each attachment removes only one entry of `lost`.
  Ids lost = before;
  for (const TcxProgram& one : *found) {
    const auto own = std::ranges::find(lost, one.program);
    if (own != lost.end()) {
      lost.erase(own);
      continue;
    }
    // The kernel refuses BPF_PROG_DETACH for a program that a BPF link attaches.
    const bool done = one.link != 0 ? detach_link(one.link)
                                    : detach_program(static_cast<std::uint32_t>(ifindex), one.attach_type, one.program);
    if (done || errno == ENOENT) continue;
    warnings.push_back(
        fmt::format("cannot detach a container's tcx program from `{0}`: {1}; remedy: run "
                    "`bpftool net show dev {0}`",
                    name, std::strerror(errno)));
  }
  if (!lost.empty()) warnings.push_back(fmt::format("`{}` has lost its tcx programs; remedy: attach them again", name));
  return warnings;
}

bool has_new_xdp(const LinkSettings& before, const LinkSettings& now) {
  bool found = false;
  for (std::size_t mode = 0; mode < kXdpModes.size(); ++mode)
    found = found || is_new_xdp(before, now, mode);
  return found;
}

bool detach_xdp_link(int ifindex, const LinkSettings& before, const LinkSettings& now) {
  for (std::size_t mode = 0; mode < kXdpModes.size(); ++mode) {
    if (!is_new_xdp(before, now, mode)) continue;
    const std::uint32_t link = find_xdp_link(ifindex, now.xdp[mode]);
    if (link != 0 && detach_link(link)) return true;
  }
  return false;
}

}  // namespace hook
