#include "hook/apply/live/device_cgroup.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/warnings.hpp"

namespace hook {
namespace {

static_assert(sizeof(bpf_attr) >= 64, "query.revision of Linux 6.17 lies at offset 56");

constexpr std::size_t kMostOfCgroup = 64;            // the kernel's limit BPF_CGROUP_MAX_PROGS
constexpr std::size_t kMostInstructions = 1U << 20;  // the kernel's limit BPF_COMPLEXITY_LIMIT_INSNS
constexpr char kLicense[] = "GPL";
constexpr char kName[] = "rdma_allow";

bpf_attr zeroed() {
  bpf_attr attr;
  std::memset(&attr, 0, sizeof attr);  // memset, because {} would not clear padding and unnamed members
  return attr;
}

int call_bpf(int command, bpf_attr& attr) {
  long result = 0;
  do {
    result = syscall(SYS_bpf, command, &attr, sizeof attr);
  } while (result < 0 && errno == EAGAIN);  // a signal interrupted the verifier
  return static_cast<int>(result);
}

std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

Result<void> read_info(int program, bpf_prog_info& info) {
  bpf_attr attr = zeroed();
  attr.info.bpf_fd = static_cast<std::uint32_t>(program);
  attr.info.info_len = sizeof info;
  attr.info.info = address_of(&info);
  if (call_bpf(BPF_OBJ_GET_INFO_BY_FD, attr) < 0) return sys_error(errno, "cannot read a BPF device program");
  return {};
}

// Attaches a program. flags: BPF_F_... for BPF_PROG_ATTACH. old_program: the program to replace, used only with
// BPF_F_REPLACE.
Result<void> attach(int cgroup, int program, std::uint32_t flags, int old_program) {
  bpf_attr attr = zeroed();
  attr.target_fd = static_cast<std::uint32_t>(cgroup);
  attr.attach_bpf_fd = static_cast<std::uint32_t>(program);
  attr.attach_type = BPF_CGROUP_DEVICE;
  attr.attach_flags = flags;
  if ((flags & BPF_F_REPLACE) != 0) attr.replace_bpf_fd = static_cast<std::uint32_t>(old_program);
  if (call_bpf(BPF_PROG_ATTACH, attr) < 0) return sys_error(errno, "cannot attach a BPF device program");
  return {};
}

Result<void> detach(int cgroup, int program) {
  bpf_attr attr = zeroed();
  attr.target_fd = static_cast<std::uint32_t>(cgroup);
  attr.attach_bpf_fd = static_cast<std::uint32_t>(program);
  attr.attach_type = BPF_CGROUP_DEVICE;
  if (call_bpf(BPF_PROG_DETACH, attr) < 0 && errno != ENOENT)
    return sys_error(errno, "cannot detach a BPF device program");
  return {};
}

constexpr std::size_t kLongestList = std::size_t{1} << 20;

// "*" in devices.list matches all numbers.
bool matches(std::string_view field, std::uint32_t number) {
  return field == "*" || field == std::to_string(number);
}

Result<std::string> read_list(int directory, const Cgroup& cgroup) {
  const UniqueFd fd(openat(directory, "devices.list", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok()) return sys_error(errno, "cannot open `{}/devices.list`", cgroup.directory());
  return read_text(fd.get(), kLongestList, cgroup.directory() + "/devices.list");
}

// Returns the error of devices.allow. EPERM: cgroup v1 allows only devices that the parent cgroup allows.
Error refused(int code, const Cgroup& cgroup, const DeviceNumber& device) {
  Error error = sys_error(code, "cannot write `{}` to `{}/devices.allow`", v1_rule(device), cgroup.directory());
  if (code == EPERM) {
    error.hint = fmt::format(
        "allow the device in the parent cgroups too; for a systemd unit run `systemctl set-property "
        "UNIT \"DeviceAllow=/dev/char/{}:{} rw\"`",
        device.major, device.minor);
  }
  return error;
}

// systemd or a runtime can replace a program between the query and the replacement, so the change is tried again.
constexpr int kSwapAttempts = 10;

// A device that a program denies or may deny, with the program's verdict.
using Objection = std::pair<DeviceNumber, Verdict>;
// Returns the first device that the program denies, otherwise the first one with an unknown verdict.
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
  return Error{fmt::format("cannot read the BPF device program of the cgroup `{}`: the kernel hides its instructions",
                           cgroup.directory()),
               EPERM, "use rdma-runtime, NRI or CDI, or set sysctl net.core.bpf_jit_harden=1"};
}

Error not_ours(const Cgroup& cgroup, const DeviceNumber& device) {
  return Error{fmt::format("cannot allow c {}:{} rw: the BPF device program of the parent cgroup `{}` denies it",
                           device.major, device.minor, cgroup.directory()),
               EPERM,
               fmt::format("run `systemctl set-property {} \"DeviceAllow=/dev/char/{}:{} rw\"`",
                           last_component(cgroup.path), device.major, device.minor)};
}

// Raises RLIMIT_MEMLOCK of this process. Before Linux 5.11, a loaded BPF program counts against this limit, and crun
// runs hooks under the container's limit. A failure is ignored: if the limit is too low, loading the program fails with
// an error.
void raise_own_memlock() {
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_MEMLOCK, &unlimited);
}

// Allows devices in one cgroup. ours: true for the container's own cgroup, whose programs may be replaced. In a parent
// cgroup, programs are only checked.
class Group {
 public:
  Group(const Cgroup& cgroup, std::span<const DeviceNumber> devices, bool ours)
      : cgroup_(cgroup), devices_(devices), ours_(ours) {}

  Result<DeviceChange> allow(int directory) {
    for (int attempt = 0; attempt < kSwapAttempts; ++attempt) {
      auto done = allow_once(directory);
      if (done || done.error().code != ENOENT) return done;
    }
    return Error{fmt::format("cannot replace the BPF device program of the cgroup `{}`: another process replaced it in "
                             "each of {} attempts",
                             cgroup_.directory(), kSwapAttempts),
                 EBUSY, "start the container again"};
  }

 private:
  // Errors: ENOENT, another process has replaced a program since it was queried.
  Result<DeviceChange> allow_once(int directory) {
    auto attached = query_device_programs(directory);
    if (!attached) {
      // A kernel that does not support device programs denies no device.
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
    const UniqueFd old = TRY(open_bpf_program(id));
    // The program is read and extended, not replaced by a new one, so that rules of systemd and the runtime stay.
    const BpfProgram program = TRY(read_program(old.get()));
    if (!is_readable(program)) return not_readable(cgroup_);
    const auto objection = find_objection(program, devices_);
    if (!objection) return {};
    // A program of a parent cgroup also applies to other containers, so it is not replaced.
    if (!ours_) return object(*objection, change);
    raise_own_memlock();
    const auto loaded = load_device_program(with_allowed(program, devices_));
    if (!loaded) return wrap(loaded.error(), fmt::format("cgroup `{}`", cgroup_.directory()));
    TRY_VOID(replace_device_program(directory, loaded->get(), old.get(), flags));
    change.changed = true;
    return {};
  }

  Result<void> object(const Objection& objection, DeviceChange& change) const {
    const auto& [device, verdict] = objection;
    if (verdict == Verdict::kDeny) return not_ours(cgroup_, device);
    change.warnings.push_back(
        fmt::format("cannot evaluate whether the BPF device program of the cgroup `{}` allows c {}:{} rw",
                    cgroup_.directory(), device.major, device.minor));
    return {};
  }

  const Cgroup& cgroup_;
  std::span<const DeviceNumber> devices_;
  bool ours_;
};

}  // namespace

Result<AttachedPrograms> query_device_programs(int cgroup) {
  std::array<std::uint32_t, kMostOfCgroup> ids{};
  bpf_attr attr = zeroed();
  attr.query.target_fd = static_cast<std::uint32_t>(cgroup);
  attr.query.attach_type = BPF_CGROUP_DEVICE;
  attr.query.prog_ids = address_of(ids.data());
  attr.query.prog_cnt = ids.size();
  if (call_bpf(BPF_PROG_QUERY, attr) < 0) return sys_error(errno, "cannot query the BPF device programs of a cgroup");
  // prog_cnt is the number of attached programs, which can be larger than the buffer.
  const std::size_t count = std::min<std::size_t>(attr.query.prog_cnt, ids.size());
  return AttachedPrograms{{ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)}, attr.query.attach_flags};
}

Result<UniqueFd> open_bpf_program(std::uint32_t id) {
  bpf_attr attr = zeroed();
  attr.prog_id = id;
  UniqueFd fd(call_bpf(BPF_PROG_GET_FD_BY_ID, attr));  // always close-on-exec
  if (!fd.ok()) return sys_error(errno, "cannot open the BPF program `{}`", id);
  return fd;
}

Result<BpfProgram> read_program(int program) {
  bpf_prog_info info{};
  TRY_VOID(read_info(program, info));
  const std::size_t count = info.xlated_prog_len / sizeof(bpf_insn);
  if (count > kMostInstructions) return sys_error(E2BIG, "cannot read a BPF device program of {} instructions", count);
  BpfProgram instructions(count);
  if (count == 0) return instructions;
  info = {};
  info.xlated_prog_len = static_cast<std::uint32_t>(count * sizeof(bpf_insn));
  info.xlated_prog_insns = address_of(instructions.data());
  TRY_VOID(read_info(program, info));
  // The kernel sets xlated_prog_insns to 0 if this process may not read the instructions (bpf_dump_raw_ok()).
  if (info.xlated_prog_insns == 0) instructions.clear();
  return instructions;
}

Result<UniqueFd> load_device_program(const BpfProgram& program) {
  bpf_attr attr = zeroed();
  attr.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  attr.insns = address_of(program.data());
  attr.insn_cnt = static_cast<std::uint32_t>(program.size());
  attr.license = address_of(kLicense);
  std::memcpy(attr.prog_name, kName, sizeof kName);
  UniqueFd fd(call_bpf(BPF_PROG_LOAD, attr));
  if (!fd.ok()) return sys_error(errno, "cannot load a BPF device program of {} instructions", program.size());
  return fd;
}

Result<void> replace_device_program(int cgroup, int program, int old_program, std::uint32_t attach_flags) {
  // Without BPF_F_ALLOW_MULTI a cgroup has at most one program, and attaching another replaces it.
  if ((attach_flags & BPF_F_ALLOW_MULTI) == 0) return attach(cgroup, program, attach_flags, -1);
  auto replaced = attach(cgroup, program, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, old_program);
  if (replaced || replaced.error().code != EINVAL) return replaced;
  // Linux before 5.6 has no BPF_F_REPLACE. So attach the new program, then detach the old one: both are attached for a
  // moment, which is stricter than one, and the cgroup is never without a program.
  TRY_VOID(attach_device_program(cgroup, program));
  return detach(cgroup, old_program);
}

Result<void> attach_device_program(int cgroup, int program) {
  return attach(cgroup, program, BPF_F_ALLOW_MULTI, -1);
}

V1Grant find_v1_grant(std::string_view devices_list, const DeviceNumber& device) {
  for (const std::string_view line : base::split(devices_list, '\n')) {
    const auto words = base::split(line, ' ');
    if (words.size() != 3) continue;
    if (words[0] == "a") return V1Grant::kAll;
    const std::size_t colon = words[1].find(':');
    if (words[0] != "c" || colon == std::string_view::npos) continue;
    if (!matches(words[1].substr(0, colon), device.major) || !matches(words[1].substr(colon + 1), device.minor))
      continue;
    if (words[2].find('r') != std::string_view::npos && words[2].find('w') != std::string_view::npos)
      return V1Grant::kYes;
  }
  return V1Grant::kNo;
}

std::string v1_rule(const DeviceNumber& device) {
  return fmt::format("c {}:{} rw", device.major, device.minor);
}

Result<DeviceChange> allow_devices_v1(const Cgroup& cgroup, int directory, std::span<const DeviceNumber> devices) {
  DeviceChange change;
  const std::string list = TRY(read_list(directory, cgroup));
  UniqueFd allow;
  for (const DeviceNumber& device : devices) {
    const V1Grant grant = find_v1_grant(list, device);
    if (grant == V1Grant::kYes || (grant == V1Grant::kAll && cgroup.path == "/")) continue;
    // Below the root cgroup, kAll does not show that the device is allowed, because the kernel does not list the
    // exceptions. So write the rule; this does no harm if the device is allowed already.
    if (!allow.ok()) allow.reset(openat(directory, "devices.allow", O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!allow.ok()) return sys_error(errno, "cannot open `{}/devices.allow`", cgroup.directory());
    // The kernel reads one rule per write.
    const std::string rule = v1_rule(device);
    if (write(allow.get(), rule.data(), rule.size()) < 0) return refused(errno, cgroup, device);
    if (grant == V1Grant::kNo) change.changed = true;
  }
  // At daemon-reload, systemd writes the device rules of its units again, and the added rule is lost.
  change.is_reset_by_systemd = change.changed && is_systemds(cgroup);
  return change;
}

Result<DeviceChange> allow_devices_v2(const Cgroup& cgroup, int directory, std::span<const DeviceNumber> devices) {
  DeviceChange all;
  const std::vector<Cgroup> groups = with_ancestors(cgroup);
  // The order is from the root down: if a parent cgroup denies a device, the call fails before it has changed a
  // program.
  for (std::size_t above = groups.size(); above-- > 0;) {
    const bool own = above == 0 || (above == 1 && is_inside_scope(cgroup));
    const UniqueFd ancestor = above == 0 ? UniqueFd() : TRY(open_cgroup(groups[above]));
    DeviceChange change = TRY(
        Group(groups[above], devices, own && groups[above].path != "/").allow(above == 0 ? directory : ancestor.get()));
    all.changed = all.changed || change.changed;
    // systemd replaces only programs of its units, not those of cgroups below a unit. If the unit itself has no program
    // (crun 1.8.1), this call did not change the unit, and systemd undoes nothing.
    all.is_reset_by_systemd = all.is_reset_by_systemd || (change.changed && is_unit(groups[above]));
    append(std::move(change.warnings), all.warnings);
  }
  return all;
}

}  // namespace hook
