#include "hook/apply/live/device_cgroup.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/apply/live/bpf_calls.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;
using fabric::wrap;

constexpr std::size_t kLongestList = std::size_t{1} << 20;

bool matches(std::string_view field, std::uint32_t number) {
  return field == "*" || field == std::to_string(number);
}

Result<std::string> read_list(int directory, const Cgroup& cgroup) {
  const UniqueFd fd(openat(directory, "devices.list", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok()) return sys_error(errno, "cannot open `{}/devices.list`", cgroup.directory());
  auto text = fabric::sysfs::read_all(fd.get(), kLongestList);
  if (const auto* failed = std::get_if<fabric::Unreadable>(&text)) {
    return sys_error(failed->code, "cannot read `{}/devices.list`", cgroup.directory());
  }
  return std::get<std::string>(std::move(text));
}

fabric::Error refused(int code, const Cgroup& cgroup, const DeviceNumber& device) {
  fabric::Error error = sys_error(code, "cannot write `{}` to `{}/devices.allow`", v1_rule(device), cgroup.directory());
  if (code == EPERM) {
    error.hint = fmt::format(
        "a group above it does not allow the device: allow it there too (of a unit of systemd: systemctl set-property "
        "UNIT \"DeviceAllow=/dev/char/{}:{} rw\")",
        device.major, device.minor);
  }
  return error;
}

// systemd or a runtime may swap a program between our query and our replacement.
constexpr int kSwapAttempts = 10;

// The first device that a program does not certainly allow.
struct Objection {
  DeviceNumber device;
  Verdict verdict = Verdict::kDeny;
};
std::optional<Objection> find_objection(const BpfProgram& program, std::span<const DeviceNumber> devices) {
  std::optional<Objection> unknown;
  for (const DeviceNumber& device : devices) {
    DeviceAccess access;
    access.major = device.major;
    access.minor = device.minor;
    const Verdict verdict = evaluate(program, access);
    if (verdict == Verdict::kDeny) return Objection{device, verdict};
    if (verdict == Verdict::kUnknown && !unknown) unknown = Objection{device, verdict};
  }
  return unknown;
}

Error not_readable(const Cgroup& cgroup) {
  return Error{
      fmt::format("cannot read the device program of the cgroup `{}`: the kernel does not show its instructions",
                  cgroup.directory()),
      EPERM, "use rdma-runtime, NRI or CDI, or set sysctl net.core.bpf_jit_harden=1"};
}

Error not_ours(const Cgroup& cgroup, const DeviceNumber& device) {
  const std::size_t slash = cgroup.path.rfind('/');
  return Error{
      fmt::format("cannot allow c {}:{} rw: the device program of the cgroup `{}`, above the container's, denies it",
                  device.major, device.minor, cgroup.directory()),
      EPERM,
      fmt::format("allow it there: systemctl set-property {} \"DeviceAllow=/dev/char/{}:{} rw\"",
                  cgroup.path.substr(slash + 1), device.major, device.minor)};
}

// Before Linux 5.11 programs are charged to this limit, and crun runs hooks under the container's. Best effort: loading
// says what is wrong.
void raise_own_memlock() {
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_MEMLOCK, &unlimited);
}

class Group {
 public:
  Group(const Cgroup& cgroup, std::span<const DeviceNumber> devices, bool ours)
      : cgroup_(cgroup), devices_(devices), ours_(ours) {}

  Result<DeviceChange> allow() {
    const UniqueFd directory = TRY(open_cgroup(cgroup_));
    for (int attempt = 0; attempt < kSwapAttempts; ++attempt) {
      auto done = allow_once(directory.get());
      if (done || done.error().code != ENOENT) return done;
    }
    return Error{fmt::format("cannot replace the device program of the cgroup `{}`: it changes all the time",
                             cgroup_.directory()),
                 EBUSY, "start the container again"};
  }

 private:
  // ENOENT: something changed meanwhile.
  Result<DeviceChange> allow_once(int directory) {
    auto attached = query_device_programs(directory);
    if (!attached) {
      // A kernel without device programs has none that deny.
      if (attached.error().code == EINVAL) return DeviceChange{};
      return wrap(std::move(attached).error(), fmt::format("cgroup `{}`", cgroup_.directory()));
    }
    DeviceChange change;
    for (const std::uint32_t id : attached->ids) {
      TRY_VOID(allow_in(directory, id, attached->attach_flags, change));
    }
    return change;
  }

  Result<void> allow_in(int directory, std::uint32_t id, std::uint32_t flags, DeviceChange& change) {
    const UniqueFd old = TRY(open_program(id));
    const BpfProgram program = TRY(read_program(old.get()));
    if (!is_readable(program)) return not_readable(cgroup_);
    const auto objection = find_objection(program, devices_);
    if (!objection) return {};
    if (!ours_) return object(*objection, change);
    raise_own_memlock();
    const auto loaded = load_device_program(with_allowed(program, devices_));
    if (!loaded) return wrap(loaded.error(), fmt::format("cgroup `{}`", cgroup_.directory()));
    TRY_VOID(replace_device_program(directory, loaded->get(), old.get(), flags));
    change.changed = true;
    return {};
  }

  Result<void> object(const Objection& objection, DeviceChange& change) const {
    if (objection.verdict == Verdict::kDeny) return not_ours(cgroup_, objection.device);
    change.warnings.push_back(fmt::format("cannot tell whether the device program of the cgroup `{}` allows c {}:{} rw",
                                          cgroup_.directory(), objection.device.major, objection.device.minor));
    return {};
  }

  const Cgroup& cgroup_;
  std::span<const DeviceNumber> devices_;
  bool ours_;
};

}  // namespace

V1Grant find_v1_grant(std::string_view devices_list, const DeviceNumber& device) {
  for (const std::string_view line : fabric::split(devices_list, '\n')) {
    const auto words = fabric::split(line, ' ');
    if (words.size() != 3) continue;
    if (words[0] == "a") return V1Grant::kAll;
    const std::size_t colon = words[1].find(':');
    if (words[0] != "c" || colon == std::string_view::npos) continue;
    if (!matches(words[1].substr(0, colon), device.major) || !matches(words[1].substr(colon + 1), device.minor)) {
      continue;
    }
    if (words[2].find('r') != std::string_view::npos && words[2].find('w') != std::string_view::npos) {
      return V1Grant::kYes;
    }
  }
  return V1Grant::kNo;
}

std::string v1_rule(const DeviceNumber& device) {
  return fmt::format("c {}:{} rw", device.major, device.minor);
}

Result<DeviceChange> allow_devices_v1(const Cgroup& cgroup, std::span<const DeviceNumber> devices) {
  DeviceChange change;
  const UniqueFd directory = TRY(open_cgroup(cgroup));
  const std::string list = TRY(read_list(directory.get(), cgroup));
  UniqueFd allow;
  for (const DeviceNumber& device : devices) {
    const V1Grant grant = find_v1_grant(list, device);
    if (grant == V1Grant::kYes || (grant == V1Grant::kAll && cgroup.path == "/")) continue;
    // kAll below the root: the exceptions are not shown, and allowing what is allowed does no harm.
    if (!allow.ok()) allow.reset(openat(directory.get(), "devices.allow", O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!allow.ok()) return sys_error(errno, "cannot open `{}/devices.allow`", cgroup.directory());
    // One rule per write: the kernel reads no more.
    const std::string rule = v1_rule(device);
    if (write(allow.get(), rule.data(), rule.size()) < 0) return refused(errno, cgroup, device);
    if (grant == V1Grant::kNo) change.changed = true;
  }
  change.undone_by_systemd = change.changed && is_systemds(cgroup);
  return change;
}

Result<DeviceChange> allow_devices_v2(const Cgroup& cgroup, std::span<const DeviceNumber> devices) {
  DeviceChange all;
  const std::vector<Cgroup> groups = with_ancestors(cgroup);
  // From above: when a slice denies, nothing has been changed yet.
  for (std::size_t above = groups.size(); above-- > 0;) {
    const bool own = above == 0 || (above == 1 && is_inside_scope(cgroup));
    DeviceChange change = TRY(Group(groups[above], devices, own && groups[above].path != "/").allow());
    all.changed = all.changed || change.changed;
    // A program of a group below the unit stays, and where the unit had none there was none to change (crun 1.8.1).
    all.undone_by_systemd = all.undone_by_systemd || (change.changed && is_unit(groups[above]));
    std::move(change.warnings.begin(), change.warnings.end(), std::back_inserter(all.warnings));
  }
  return all;
}

}  // namespace hook
