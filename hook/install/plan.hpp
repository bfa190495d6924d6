// Plans the files of `rdma-hook install`: turns facts about the engine into complete files. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/base/words.hpp"
#include "hook/install/engine_settings.hpp"
#include "hook/install/query_engine.hpp"
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
  std::string programs;                  // directory of rdma-runtime and rdma-hook
  EngineSettings settings;               // settings that containerd or CRI-O prints before the change
  std::string base_spec;                 // containerd: the specification with rdma-hook; empty: it cannot be made
  bool are_runtimes_configured = false;  // whether rdma-init's configuration has `runtimes`
  std::vector<std::string> hooks_dirs;   // directories that CRI-O or Podman reads
  std::string hooks_dir;                 // the first of hooks_dirs that can be written; empty: none
  // containerd 2: the drop-in's `version`. It must equal that of config.toml, because containerd does not merge
  // drop-ins of another version.
  unsigned drop_in_version = 3;
  // containerd 1.7: whether the first table of handlers replaces the built-in default handler.
  bool replaces_default = false;
  // The files of plan_files(); nullopt: no such file. An error counts only if the plan needs the file.
  std::map<std::string, Result<std::optional<std::string>>> files = {};
};

struct InstallPlan {
  std::vector<FileEdit> edits;    // in the order of writing; each changes a file
  std::vector<std::string> said;  // messages for the administrator
  // Settings that containerd must print after the change. CRI-O omits some defaults, so it may omit these settings, but
  // it must not print other values for them.
  EngineSettings meant;
  std::string drop_in;  // path of the drop-in of containerd 2; empty: none
};

// Returns the paths that a plan may depend on; the caller reads them into facts.files.
std::vector<std::string> plan_files(const EngineFacts& facts);

// Makes the plan. Pure. Errors: a file could not be read; a setting is not UTF-8; Docker's file is not a JSON object; a
// file, `imports` or a runtime `rdma` that install did not write is in the way, and the remedy has the lines to merge
// by hand; the engine does not support facts.way.
Result<InstallPlan> plan_install(const EngineFacts& facts);

// Sets drop_in_version or replaces_default to the form that probably fits this config.toml. The engine's check decides
// whether it does.
void guess_form(EngineFacts& facts, std::string_view config);
// Switches to the other form, if the engine refuses the first one.
void change_form(EngineFacts& facts);

// Functions that the plans for the single engines use.

inline constexpr const char* kContainerdConfig = "/etc/containerd/config.toml";
// The file of rdma-init's configuration that names the runtime which rdma-runtime executes.
inline constexpr const char* kOwnConfig = "/etc/rdma-init/conf.d/90-engine.json";
// The first line of each file or block that install writes.
inline constexpr const char* kOurs = "# Written by `rdma-hook install`; `rdma-hook install --uninstall` removes it.\n";

// The last line of a block that install adds to an existing file; kOurs is the first one. Uninstall removes both lines
// and all lines between them.
inline constexpr const char* kOursEnd = "# End of the lines of `rdma-hook install`.\n";

// Returns the text of a file in facts.files; nullopt if there is no such file. Errors: it could not be read.
Result<std::optional<std::string>> file_of(const EngineFacts& facts, const std::string& path);
// Adds a file that install alone writes. Errors: EEXIST, a file with another text exists.
Result<void> add_own_file(InstallPlan& plan, const EngineFacts& facts, const std::string& path,
                          const std::string& text);

// Returns whether the program's name begins with "nvidia-container-runtime".
bool is_nvidia_runtime(std::string_view program);

// Makes rdma-runtime execute `program` instead of runc. Without this, containers that use NVIDIA's runtime would lose
// their GPUs. If rdma-init's configuration already names runtimes, only adds a message.
Result<void> put_behind(InstallPlan& plan, const EngineFacts& facts, const std::string& program);

// Returns the paths that plan_containerd() reads.
std::vector<std::string> containerd_files(const EngineFacts& facts);
// Adds the edits and settings for containerd to the plan.
Result<void> plan_containerd(InstallPlan& plan, const EngineFacts& facts);

// Returns the settings for containerd as TOML tables.
std::string containerd_tables(const EngineFacts& facts);

}  // namespace hook
