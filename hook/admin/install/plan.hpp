// Plans the files of `rdma-hook install`: turns facts about the engine into complete files. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_fwd.hpp"
#include "base/result.hpp"
#include "base/words.hpp"
#include "hook/admin/install/engine_processes.hpp"
#include "hook/admin/install/engine_settings.hpp"
#include "hook/admin/install/query_engine.hpp"
#include "hook/admin/install/record.hpp"
#include "hook/admin/install/slurm_conf.hpp"

namespace hook {

enum class InstallWay { kNri, kRuntime, kHook, kCdi };

inline constexpr Word<InstallWay> kInstallWays[] = {{"nri", InstallWay::kNri},
                                                    {"runtime", InstallWay::kRuntime},
                                                    {"hook", InstallWay::kHook},
                                                    {"cdi", InstallWay::kCdi}};

// The word for Slurm in --engine and in the record. Slurm is no OCI engine: it has no `Engine`.
inline constexpr const char* kSlurm = "slurm";

struct SlurmNode {
  SlurmConf conf;           // on a node without slurm.conf: the path that the administrator's file has, and no settings
  bool has_enroot = false;  // enroot reads its hooks in /etc/enroot/hooks.d
  // LimitMEMLOCK of slurmd.service in bytes; UINT64_MAX: unlimited, or the node has no such unit.
  std::uint64_t memlock = UINT64_MAX;
};

struct EngineFacts {
  FoundEngine engine;              // Engine::kRunc with `slurm`
  std::optional<SlurmNode> slurm;  // nullopt: the plan is for `engine`
  InstallWay way = InstallWay::kRuntime;
  std::string programs;                   // directory of rdma-runtime and rdma-hook
  EngineSettings settings;                // settings that containerd or CRI-O prints before install
  std::string base_spec;                  // containerd: text of the base specification with rdma-hook; empty: none
  bool are_runtimes_configured = false;   // whether rdma-init's configuration sets `runtimes`
  std::vector<std::string> config_files;  // files that the engine reads, in their order (config_files())
  std::vector<std::string> hooks_dirs;    // directories that CRI-O or Podman reads
  std::string hooks_dir;                  // the first writable directory of hooks_dirs; empty: none
  EngineStart start;                      // how the node's unit starts the engine
  // containerd 2: the `version` of config.toml; 0: config.toml has none. A file that imports config.toml must have this
  // version: containerd refuses an imported file with a higher one.
  unsigned config_version = 0;
  // containerd 2: the `version` of the drop-in, 2 or 3. containerd before 2.3 does not merge drop-ins of another
  // version than that of config.toml; later releases merge a lower version.
  unsigned drop_in_version = 3;
  // containerd 1.7: whether install writes the first table of a handler into config.toml. Such a table makes containerd
  // drop its built-in default handler, so install then writes that handler too.
  bool replaces_default = false;
  // The texts of the files that plan_files() returns; nullopt: the file does not exist. An error in reading a file
  // counts only if the plan needs the file.
  std::map<std::string, Result<std::optional<std::string>>> files = {};
};

struct InstallPlan {
  std::vector<FileEdit> edits;        // edits in the order of writing; each changes the text of its file
  std::vector<std::string> messages;  // messages for the administrator
  // The settings that install adds. containerd must print all of them after the change. CRI-O omits some defaults, so
  // it may omit some of these settings, but it must not print other values for them.
  EngineSettings meant;
  std::string drop_in;  // path of the drop-in of containerd 2; empty: none
};

// Returns the paths of the files that a plan may depend on. The caller reads these files into facts.files.
std::vector<std::string> plan_files(const EngineFacts& facts);

// Makes the plan. Pure. Errors: a file could not be read; a setting is not UTF-8; Docker's file is not a JSON object;
// the engine does not support facts.way; a file, `imports` or a runtime `rdma` that install did not write prevents the
// change, and the remedy has the lines to merge by hand.
Result<InstallPlan> plan_install(const EngineFacts& facts);

// Checks the rules that an engine checks only when it starts: an option or variable of its unit must not replace or
// exclude a setting that install writes. Pure. Errors: EEXIST; the message has file and line of the option or variable.
Result<void> check_start(const EngineFacts& facts);
// Checks that no option of dockerd's unit is also a key of daemon.json, whether install or another program wrote the
// key: dockerd refuses both (daemon/config, findConfigurationConflicts). Pure. Errors: those of check_start().
Result<void> check_docker_keys(const EngineFacts& facts, const Json& json);
// Checks the files that the settings of `facts` name and that the engine opens when it starts: CRI-O's runtimes and
// monitors, containerd's base specifications. An engine that would not start is not restarted by install. Errors:
// ENOENT or EINVAL; the message has file and line of the setting.
Result<void> check_named_files(const std::string& root, const EngineFacts& facts);

// Guesses the form of the configuration that containerd accepts from the text of config.toml: sets config_version and
// drop_in_version (containerd 2) or replaces_default (containerd 1.7). The check by the engine decides whether the
// guess is right.
void guess_form(EngineFacts& facts, std::string_view config);
// Switches drop_in_version or replaces_default to the value that guess_form() did not select. The caller does this if
// the engine refuses the guessed form.
void change_form(EngineFacts& facts);

// config_files.cpp: the files that an engine reads. Its own program prints settings without their files.

// Returns the paths and patterns of containerd's `imports`, relative ones resolved from the directory of config.toml as
// containerd does.
std::vector<std::string> import_patterns(const EngineFacts& facts);

// Returns the files that the engine of `facts` reads, in the order in which it reads them: a later file wins. The
// drop-in that install writes has its place in the list, also if it does not exist.
// Source: containerd cmd/containerd/server/config, resolveImports(); CRI-O pkg/config, UpdateFromPath(); Podman
// go.podman.io/storage/pkg/configfile, Read().
std::vector<std::string> config_files(const std::string& root, const EngineFacts& facts);

// Returns the line without its comment, which begins with # outside of quotes. Pure.
std::string_view without_toml_comment(std::string_view line);

// Returns the lines that set `key` in a table whose name ends with `table`; "" is the top of a file. Ignores files that
// could not be read, and dotted keys. In values each " is replaced by ', and blanks are removed. Pure.
std::vector<FileSetting> find_in_files(const EngineFacts& facts, std::string_view table, std::string_view key);

// Returns "FILE, line N" of the last line that sets a key, or `otherwise` if no line is found. Pure.
std::string where_set(const EngineFacts& facts, std::string_view table, std::string_view key,
                      std::string_view otherwise);

// Checks that no file that the engine reads after `own_file` gives another value to a setting of `meant`. Pure.
// Errors: EEXIST; the message has file and line.
Result<void> check_later_files(const EngineFacts& facts, std::string_view own_file, const EngineSettings& meant);

// Constants and functions that the plans of all engines share.

inline constexpr const char* kContainerdConfig = "/etc/containerd/config.toml";
inline constexpr const char* kPodmanDropIn = "/etc/containers/containers.conf.d/90-rdma-init.conf";
inline constexpr const char* kCrioDropIn = "/etc/crio/crio.conf.d/90-rdma-init.conf";
// The file of rdma-init's configuration in which install names the runtime that rdma-runtime executes.
inline constexpr const char* kOwnConfig = "/etc/rdma-init/conf.d/90-engine.json";
// The first line of each file or block that install writes.
inline constexpr const char* kOurs = "# Written by `rdma-hook install`; `rdma-hook install --uninstall` removes it.\n";

// The last line of a block that install adds to an existing file; kOurs is the first one. Uninstall removes both lines
// and all lines between them.
inline constexpr const char* kOursEnd = "# End of the lines of `rdma-hook install`.\n";

// Returns the text of a file in facts.files; nullopt if there is no such file. Errors: the caller could not read the
// file.
Result<std::optional<std::string>> file_of(const EngineFacts& facts, const std::string& path);
// Adds to the plan a file that only install writes. Errors: EEXIST, the file exists with another text.
Result<void> add_own_file(InstallPlan& plan, const EngineFacts& facts, const std::string& path,
                          const std::string& text);

// Returns the directory of the hook files that install writes.
std::string hooks_dir_of(const EngineFacts& facts);

// Returns whether the program's name begins with "nvidia-container-runtime".
bool is_nvidia_runtime(std::string_view program);

// Adds a file to the plan that makes rdma-runtime execute `program` in place of runc. Without this, containers that use
// NVIDIA's runtime would lose their GPUs. If rdma-init's configuration already sets `runtimes`, only adds a message.
Result<void> put_behind(InstallPlan& plan, const EngineFacts& facts, const std::string& program);

// Returns the paths that plan_containerd() reads.
std::vector<std::string> containerd_files(const EngineFacts& facts);
// Adds the edits and settings for containerd to the plan.
Result<void> plan_containerd(InstallPlan& plan, const EngineFacts& facts);

// Returns the paths that plan_slurm() writes.
std::vector<std::string> slurm_files();

// Checks before these files are removed that the node's slurm.conf names none of them. Returns a line to print if that
// is not certain, usually "". Errors: EBUSY, slurm.conf names one.
Result<std::string> check_unused_slurm_files(const std::string& root);

// Adds the scripts for Slurm and enroot to the plan, and messages with the lines for slurm.conf. facts.slurm must be
// set. Errors: EINVAL, facts.programs has characters that a shell interprets.
Result<void> plan_slurm(InstallPlan& plan, const EngineFacts& facts);

// Returns the name of the table that contains containerd's handlers, as containerd prints it.
std::string handlers_of(const EngineFacts& facts);
// Returns the settings for containerd as TOML tables.
std::string containerd_tables(const EngineFacts& facts);

}  // namespace hook
