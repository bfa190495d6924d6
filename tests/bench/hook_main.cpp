// bench_hook: what rdma-hook adds to `runc run`, beside no hook and a C program that only drains its standard input.
// docs: tests/bench/README.md
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "contest.hpp"
#include "fabric/text.hpp"
#include "hook/ledger/ledger.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace {

using fabric::make_error;
using fabric::Result;
using nlohmann::json;
using test_support::TempDir;

constexpr int kSkip = 77;
constexpr unsigned kRails = 8;

// What may make a difference, and must not.
struct Scene {
  unsigned asked = 1;   // HCAs that the container names
  unsigned vfs = 1;     // on the node, beside the rails
  unsigned grants = 0;  // in the ledger, of other containers
};
constexpr Scene kScenes[] = {{1, 1, 0}, {8, 1, 0}, {1, 512, 0}, {8, 512, 0}, {1, 1, 1000}, {8, 512, 1000}};

struct Programs {
  std::string hook;
  std::string drain;
  std::string runc;
  std::string busybox;
};

struct Settings {
  Programs programs;
  unsigned runs = 60;
  std::size_t scenes = std::size(kScenes);
};

fabric::Inventory node_of(const Scene& scene) {
  auto node = test_support::rails(kRails, 4);
  for (unsigned i = 0; i < scene.vfs; ++i) {
    const unsigned number = kRails + i;
    auto port = test_support::ethernet_port({});
    port.gid_tbl_len = 1;
    fabric::Hca vf = test_support::hca(fmt::format("mlx5_{}", number), number, {std::move(port)});
    vf.pci = fmt::format("0000:{:02x}:{:02x}.{}", 0xc0 + i / 256, i / 8 % 32, i % 8);
    vf.physfn = node.hcas[0].pci;
    node.hcas.push_back(std::move(vf));
  }
  // Opens, and is in every runtime's list.
  for (fabric::Hca& hca : node.hcas)
    hca.uverbs_dev = "1:3";
  return node;
}

json base_config() {
  json config;
  config["ociVersion"] = "1.0.2";
  config["root"] = {{"path", "rootfs"}, {"readonly", true}};
  config["process"] = {{"args", {"/bin/busybox", "true"}},
                       {"cwd", "/"},
                       {"user", {{"uid", 0}, {"gid", 0}}},
                       {"env", {"PATH=/bin"}},
                       {"noNewPrivileges", true}};
  config["mounts"] = {
      {{"destination", "/proc"}, {"type", "proc"}, {"source", "proc"}},
      {{"destination", "/dev"}, {"type", "tmpfs"}, {"source", "tmpfs"}, {"options", {"nosuid", "mode=755"}}}};
  for (const char* type : {"pid", "ipc", "uts", "mount", "network"})
    config["linux"]["namespaces"].push_back({{"type", type}});
  config["linux"]["resources"]["devices"] = {{{"allow", false}, {"access", "rwm"}}};
  return config;
}

void make_bundle(const Programs& programs, const std::string& directory, const json& config) {
  std::filesystem::create_directories(directory + "/rootfs/bin");
  for (const char* mount_point : {"proc", "dev"})
    std::filesystem::create_directories(directory + "/rootfs/" + mount_point);
  std::filesystem::copy_file(programs.busybox, directory + "/rootfs/bin/busybox");
  test_support::write_file(directory + "/config.json", config.dump());
}

json hook_entry(const std::vector<std::string>& argv) {
  return {{"path", argv.front()}, {"args", argv}, {"env", json::array()}};
}

// The three bundles of a scene: no hook, the C hook, rdma-hook.
void make_bundles(const Programs& programs, const Scene& scene, const TempDir& work) {
  make_bundle(programs, work / "none", base_config());
  json drained = base_config();
  for (const char* stage : {"createRuntime", "poststop"})
    drained["hooks"][stage] = {hook_entry({programs.drain})};
  make_bundle(programs, work / "drain", drained);

  json asking = base_config();
  std::string names;
  for (unsigned i = 0; i < scene.asked; ++i)
    names += fmt::format("{}mlx5_{}", i == 0 ? "" : ",", i);
  asking["annotations"]["rdma-init.io/devices"] = names;
  for (const char* stage : {"createRuntime", "poststop"}) {
    asking["hooks"][stage] = {hook_entry({programs.hook, stage, "--engine", "runc", "--root", work / "node", "--ledger",
                                          work / "ledger", "--config", work / "config.json"})};
  }
  make_bundle(programs, work / "hook", asking);
}

// Grants of a process that lives as long as the benchmark, on HCAs that nobody else asks for and on those that are.
Result<void> fill_ledger(const std::string& path, unsigned grants) {
  auto ledger = TRY(hook::Ledger::open(path));
  const auto process = hook::identify(::getpid());
  for (unsigned i = 0; i < grants; ++i) {
    const std::string name = fmt::format("mlx5_{}", i % kRails);
    const auto owner = hook::container_owner(fmt::format("other-{}", i), "/run/other");
    auto locked = TRY(ledger.lock({name}));
    TRY_VOID(locked.book(owner, {{name, hook::Mode::kHca, 1, std::nullopt}}, {owner.key, owner.label, process}));
    TRY_VOID(ledger.settle(owner.key));
  }
  return {};
}

Result<std::vector<bench::Contestant>> measure(const Settings& settings, const Scene& scene) {
  const TempDir work;
  test_support::lay_out(node_of(scene), work / "node");
  // No memlock: a machine without CAP_SYS_RESOURCE would have a warning to print, others would not.
  test_support::write_file(work / "config.json", R"({"memlock": null})");
  ::chmod((work / "config.json").c_str(), 0644);
  TRY_VOID(fill_ledger(work / "ledger", scene.grants));
  make_bundles(settings.programs, scene, work);
  std::vector<bench::Contestant> all;
  for (const char* bundle : {"none", "drain", "hook"}) {
    all.push_back({{settings.programs.runc, "--root", work / "runc", "run", "--bundle", work / bundle,
                    fmt::format("bench-hook-{}-{}", bundle, ::getpid())},
                   settings.runs});
  }
  TRY_VOID(bench::run_contest(all, {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}));
  return all;
}

std::string milliseconds(const bench::Figure& figure) {
  return fmt::format("{:.2f} ({:.2f})", figure.median * 1e3, figure.minimum * 1e3);
}

void print_line(std::string_view scene, std::string_view none, std::string_view drain, std::string_view hook,
                std::string_view over, std::string_view ratio) {
  fmt::print("{:<38}  {:>15}  {:>15}  {:>15}  {:>12}  {:>7}\n", scene, none, drain, hook, over, ratio);
  std::fflush(stdout);
}

Result<void> run(const Settings& settings) {
  fmt::print("milliseconds of `runc run` to its end: median (minimum) of {} interleaved runs\n", settings.runs);
  print_line("", "", "C hook that", "", "rdma-hook -", "hook/");
  print_line("HCAs asked, VFs, grants", "no hook", "drains stdin", "rdma-hook", "C hook", "C hook");
  for (std::size_t i = 0; i < settings.scenes; ++i) {
    const Scene& scene = kScenes[i];
    const auto all = TRY(measure(settings, scene));
    const auto none = bench::figure_of(all[0].seconds);
    const auto drain = bench::figure_of(all[1].seconds);
    const auto hook = bench::figure_of(all[2].seconds);
    if (!none || !drain || !hook) return make_error("--runs must be at least 1");
    print_line(fmt::format("{} asked, {} VFs, {} grants", scene.asked, scene.vfs, scene.grants), milliseconds(*none),
               milliseconds(*drain), milliseconds(*hook), fmt::format("{:+.2f}", (hook->median - drain->median) * 1e3),
               fmt::format("{:.2f}", hook->median / drain->median));
  }
  fmt::print("aims: rdma-hook at most 2 ms over the C hook, whatever VFs and grants there are\n");
  return {};
}

std::string first_existing(std::initializer_list<const char*> paths) {
  for (const char* path : paths) {
    if (::access(path, X_OK) == 0) return path;
  }
  return "";
}

Result<Settings> parse(int argc, char** argv) {
  if (argc < 3) return make_error("usage: bench_hook RDMA_HOOK DRAIN_STDIN [--runs N] [--scenes N]");
  Settings settings;
  settings.programs = {argv[1], argv[2], first_existing({"/usr/sbin/runc", "/usr/bin/runc"}),
                       first_existing({"/bin/busybox", "/usr/bin/busybox"})};
  for (int i = 3; i < argc; i += 2) {
    const std::string_view option = argv[i];
    const auto number = i + 1 < argc ? fabric::parse_number<unsigned>(argv[i + 1]) : std::nullopt;
    if (!number) return make_error("{}: expected a number", option);
    if (option == "--runs") {
      settings.runs = *number;
    } else if (option == "--scenes") {
      settings.scenes = std::min<std::size_t>(*number, std::size(kScenes));
    } else {
      return make_error("unknown option `{}`", option);
    }
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  const auto settings = parse(argc, argv);
  if (!settings) {
    fmt::print(stderr, "bench_hook: {}\n", settings.error().message);
    return 2;
  }
  if (::geteuid() != 0 || settings->programs.runc.empty() || settings->programs.busybox.empty()) {
    fmt::print("needs root, runc and a static busybox (Debian packages runc, busybox-static): nothing measured\n");
    return kSkip;
  }
  if (const auto done = run(*settings); !done) {
    fmt::print(stderr, "bench_hook: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
