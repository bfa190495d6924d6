// ping_schedule MILLISECONDS [RAILS [CPUS [SEED]]]: runs rdma-ping's schedule for up to 16,384 ranks against a model of
// ranks with a fake clock. A test of one rail takes MILLISECONDS, 20 % more or less, and a rank tests as many rails at
// once as it has CPUS. Rank 0 handles one message after the other; the constants below are the measured times of
// ping_ranks. Prints a table in Markdown: rounds, peers of a rank, the time from the first round to the last result and
// from the first connection to the verdict, the messages of rank 0, its heap with its connections, and the probability
// that one bad pair is found.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <new>

#include "init/ping/causes.hpp"
#include "init/ping/report.hpp"
#include "init/ping/totals.hpp"
#include "unit/init/ping/fabric_model.hpp"

namespace {

// Bytes that rank 0 has allocated, with the 16 bytes of malloc for each object.
struct Heap {
  bool is_rank0 = false;
  std::size_t bytes = 0;
  std::size_t most = 0;
};
Heap heap;

struct alignas(16) Header {
  std::size_t size = 0;
  bool is_rank0 = false;
};

}  // namespace

void* operator new(std::size_t size) {
  auto* const header = static_cast<Header*>(std::malloc(size + sizeof(Header)));
  if (header == nullptr) throw std::bad_alloc();
  *header = {size + sizeof(Header), heap.is_rank0};
  if (heap.is_rank0) heap.most = std::max(heap.most, heap.bytes += header->size);
  return header + 1;
}
void operator delete(void* object) noexcept {
  if (object == nullptr) return;
  auto* const header = static_cast<Header*>(object) - 1;
  if (header->is_rank0) heap.bytes -= header->size;
  std::free(header);
}
void operator delete(void* object, std::size_t) noexcept {
  operator delete(object);
}

namespace {

using namespace ping_test;

constexpr std::size_t kConnectionBytes = 1536;  // limit of MeetingPoint.KeepsLittleMemoryFor8192Strangers

struct Wanted {
  double seconds = 0;
  unsigned rails = 8;
  unsigned cpus = 8;
  unsigned seed = 1;
};

// Prints the row of one size.
int simulate(unsigned size, const Wanted& wanted) {
  Rules rules;
  rules.size = size;
  rules.seed = wanted.seed;
  Faults faults;
  faults.test_seconds = wanted.seconds;
  faults.jitter = 0.2;
  faults.cpus = wanted.cpus;
  Machine machine;
  machine.frame = 20e-6;
  machine.carried = 2e-6;
  machine.byte = 5e-9;
  machine.hop = 50e-6;
  double cpu = 0;
  machine.meter = [&cpu](bool is_rank0) {
    heap.is_rank0 = is_rank0;
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    cpu += (is_rank0 ? -1 : 1) * (static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9);
  };
  machine.connect = [](bool begins) {
    heap.bytes += begins ? kConnectionBytes : -kConnectionBytes;
    heap.most = std::max(heap.most, heap.bytes);
  };
  heap.is_rank0 = true;
  FabricModel model(rules, wanted.rails, faults, std::move(machine));
  heap.is_rank0 = false;
  const double meeting = model.run();
  const Outcome& outcome = model.outcome();
  heap.is_rank0 = true;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Cause> causes = find_causes(outcome);
  const std::string report = text_report(outcome, causes);
  const std::chrono::duration<double> reporting = std::chrono::steady_clock::now() - start;
  heap.is_rank0 = false;
  fmt::print("| {} | {} | {} | {:.0f} | {:.2f} | {:.2f} | {} | {:.2f} | {:.1f} | {:.2f} |\n", size, wanted.rails,
             Schedule(size, size < kSparseFrom, 0).rounds(),
             share_of_pairs(outcome) * static_cast<double>(outcome.members.size() - 1), outcome.seconds,
             meeting + reporting.count(), model.messages(), cpu, static_cast<double>(heap.most) / 1e6,
             share_of_pairs(outcome) * 100);
  return causes.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
  Wanted wanted;
  wanted.seconds = argc > 1 ? std::atof(argv[1]) / 1000 : 0;
  wanted.rails = static_cast<unsigned>(number(2, 8));
  wanted.cpus = static_cast<unsigned>(number(3, 8));
  wanted.seed = static_cast<unsigned>(number(4, 1));
  if (wanted.seconds <= 0 || wanted.rails < 1 || wanted.rails > 32) {
    fmt::print(stderr, "usage: ping_schedule MILLISECONDS [RAILS [CPUS [SEED]]]\n");
    return 2;
  }
  fmt::print(
      "seed {}\n\n| ranks | rails | rounds | peers | tests, s | with the meeting and the report, s | messages of rank "
      "0 | CPU of the referee, s | memory of rank 0, MB | one bad pair is found, % |\n| --: | --: | --: | --: | --: | "
      "--: | --: | --: | --: | --: |\n",
      wanted.seed);
  for (const unsigned size : {2U, 16U, 127U, 128U, 512U, 1024U, 4096U, 16384U}) {
    std::fflush(stdout);
    // A process of its own, for its own heap.
    const pid_t child = ::fork();
    if (child == 0) std::exit(simulate(size, wanted));
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  return 0;
}
