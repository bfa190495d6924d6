// What `rdma-hook install` would write: facts of the node's engine in, whole files out. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/base/words.hpp"
#include "hook/install/ask_engine.hpp"
#include "hook/install/engine_settings.hpp"
#include "hook/install/record.hpp"

namespace hook {

enum class InstallWay { kNri, kRuntime, kHook, kCdi };

inline constexpr Word<InstallWay> kInstallWays[] = {{"nri", InstallWay::kNri},
                                                    {"runtime", InstallWay::kRuntime},
                                                    {"hook", InstallWay::kHook},
                                                    {"cdi", InstallWay::kCdi}};

struct EngineFacts {
  FoundEngine engine;
  InstallWay way = InstallWay::kRuntime;
  std::string programs;                 // directory of rdma-runtime and rdma-hook
  EngineSettings settings;              // as they are, of containerd and CRI-O
  std::string base_spec;                // containerd: with our hook; empty: none can be made
  bool runtimes_are_said = false;       // the configuration of rdma-init names runtimes
  std::vector<std::string> hooks_dirs;  // that CRI-O or Podman reads
  std::string hooks_dir;                // the first of them that can be written; empty: none
  unsigned drop_in_version = 3;         // containerd 2: as config.toml, because it does not merge 2 and 3
  bool replaces_default = false;        // containerd 1.7: a first table of handlers replaces the default one
  // Those of plan_files(); nullopt: there is no such file. An error counts once the plan depends on the file.
  std::map<std::string, Result<std::optional<std::string>>> files = {};
};

struct InstallPlan {
  std::vector<FileEdit> edits;    // in the order of writing; none that changes nothing
  std::vector<std::string> said;  // what the administrator should know
  EngineSettings meant;           // what the engine must print then; CRI-O: what it may not print otherwise
  std::string drop_in;            // of containerd 2
};

// The files that a plan may depend on: facts.files.
std::vector<std::string> plan_files(const EngineFacts& facts);

// Errors: a file that could not be read; a setting that is no UTF-8; a file that is no JSON object (Docker); a file, an
// `imports` or a runtime `rdma` that somebody else wrote, with what to merge by hand; a way that the engine does not
// have.
Result<InstallPlan> plan_install(const EngineFacts& facts);

// Sets the form that fits this config.toml at first sight; the engine has the last word.
void guess_form(EngineFacts& facts, std::string_view config);
// The other form.
void change_form(EngineFacts& facts);

// For the engines' parts of a plan:

inline constexpr const char* kContainerdConfig = "/etc/containerd/config.toml";
// The runtime that rdma-runtime is put in front of, as our configuration names it.
inline constexpr const char* kOwnConfig = "/etc/rdma-init/conf.d/90-engine.json";
// The first line of a file or block of ours.
inline constexpr const char* kOurs =
    "# Written by `rdma-hook install`; `rdma-hook install --uninstall` takes it away.\n";

// The text of a file of facts.files; nullopt: there is none. Errors: it could not be read.
Result<std::optional<std::string>> file_of(const EngineFacts& facts, const std::string& path);
// Adds a file that is all ours. Errors: another one is there.
Result<void> add_own_file(InstallPlan& plan, const EngineFacts& facts, const std::string& path,
                          const std::string& text);

bool is_nvidia_runtime(std::string_view program);

// A node whose pods have their GPUs by another runtime than runc: rdma-runtime becomes that one, or they lose them.
Result<void> put_behind(InstallPlan& plan, const EngineFacts& facts, const std::string& program);

// What plan_containerd() reads.
std::vector<std::string> containerd_files(const EngineFacts& facts);
// Adds what containerd needs.
Result<void> plan_containerd(InstallPlan& plan, const EngineFacts& facts);

// What containerd's configuration needs, as tables.
std::string containerd_tables(const EngineFacts& facts);

}  // namespace hook
