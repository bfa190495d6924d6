// Any instructions as the device program of a cgroup.
#include <algorithm>
#include <cstring>

#include "hook/apply/live/bpf_program.hpp"
#include "require.hpp"

namespace {

using fuzz::require;
using namespace hook;

bool same(const BpfProgram& left, const BpfProgram& right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof left[0]) == 0);
}

BpfProgram arbitrary_program(FuzzedDataProvider& data) {
  constexpr int kCodes[] = {BPF_LDX | BPF_MEM | BPF_W, BPF_LDX | BPF_MEM | BPF_H, BPF_ALU64 | BPF_MOV | BPF_K,
                            BPF_ALU | BPF_AND | BPF_K, BPF_ALU | BPF_MOV | BPF_X, BPF_ALU64 | BPF_LSH | BPF_X,
                            BPF_JMP | BPF_JNE | BPF_K, BPF_JMP | BPF_JNE | BPF_X, BPF_JMP32 | BPF_JSET | BPF_K,
                            BPF_JMP | BPF_JA,          BPF_JMP | BPF_EXIT};
  BpfProgram program;
  for (auto left = data.ConsumeIntegralInRange(0, 40); left > 0; --left) {
    const int code = data.ConsumeBool() ? data.PickValueInArray(kCodes) : data.ConsumeIntegral<std::uint8_t>();
    const int off = data.ConsumeBool() ? data.ConsumeIntegralInRange(0, 12) : data.ConsumeIntegral<std::int16_t>();
    program.push_back(hook::instruction(code, data.ConsumeIntegralInRange(0, 11), data.ConsumeIntegralInRange(0, 11),
                                        off, data.ConsumeIntegral<std::int32_t>()));
  }
  return program;
}

std::vector<DeviceNumber> arbitrary_devices(FuzzedDataProvider& data) {
  std::vector<DeviceNumber> devices;
  for (auto left = data.ConsumeIntegralInRange(0, 4); left > 0; --left)
    devices.push_back({data.ConsumeIntegral<std::uint32_t>(), data.ConsumeIntegral<std::uint32_t>()});
  return devices;
}

// Returns true if the prologue leaves this access to the program behind it.
bool is_left(const DeviceAccess& access, const std::vector<DeviceNumber>& allowed) {
  const DeviceNumber device{access.major, access.minor};
  return access.type != BPF_DEVCG_DEV_CHAR || (access.access & BPF_DEVCG_ACC_MKNOD) != 0 ||
         std::find(allowed.begin(), allowed.end(), device) == allowed.end();
}

void check_answers(const BpfProgram& before, const BpfProgram& after, const std::vector<DeviceNumber>& allowed,
                   FuzzedDataProvider& data) {
  std::vector<DeviceNumber> asked = allowed;
  asked.push_back({data.ConsumeIntegral<std::uint32_t>(), data.ConsumeIntegral<std::uint32_t>()});
  // The kernel's numbers have 12 and 20 bits. The program compares larger numbers with their sign.
  std::erase_if(asked, [](const DeviceNumber& device) { return device.major > INT32_MAX || device.minor > INT32_MAX; });
  for (const DeviceNumber& device : asked) {
    for (const unsigned type : {BPF_DEVCG_DEV_CHAR, BPF_DEVCG_DEV_BLOCK}) {
      for (unsigned access = 1; access < 8; ++access) {
        const DeviceAccess question{type, access, device.major, device.minor};
        const Verdict answer = hook::evaluate(after, question);
        const Verdict own = hook::evaluate(before, question);
        if (!is_left(question, allowed)) {
          require(answer == Verdict::kAllow, "an allowed device can be opened");
        } else if (own != Verdict::kUnknown) {
          require(answer == own, "another access has the previous answer");
        }
      }
    }
  }
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  BpfProgram program = arbitrary_program(data);
  if (data.ConsumeBool()) program = hook::with_allowed(program, arbitrary_devices(data));
  // Sometimes damages one instruction of a prologue.
  if (!program.empty() && data.ConsumeBool())
    program[data.ConsumeIntegralInRange<std::size_t>(0, program.size() - 1)].imm = data.ConsumeIntegral<std::int32_t>();
  program.shrink_to_fit();
  (void)hook::is_readable(program);

  const auto old = hook::find_prologue(program);
  require(!old || old->length <= program.size(), "a prologue lies in its program");
  const std::vector<DeviceNumber> devices = arbitrary_devices(data);
  const BpfProgram after = hook::with_allowed(program, devices);
  const auto now = hook::find_prologue(after);
  require(now.has_value(), "the prologue is found again");
  for (const DeviceNumber& device : devices)
    require(std::find(now->devices.begin(), now->devices.end(), device) != now->devices.end(), "it has each device");
  if (old)
    for (const DeviceNumber& device : old->devices)
      require(std::find(now->devices.begin(), now->devices.end(), device) != now->devices.end(), "none is lost");
  require(same(hook::with_allowed(after, devices), after), "the same devices a second time change nothing");
  const auto skipped = static_cast<std::ptrdiff_t>(old ? old->length : 0);
  const BpfProgram behind(program.begin() + skipped, program.end());
  require(same(BpfProgram(after.begin() + static_cast<std::ptrdiff_t>(now->length), after.end()), behind),
          "the program behind the prologue stays");
  check_answers(behind, after, now->devices, data);
}
