// What `rdma-hook install` would write: facts of the node's engine in, whole files out. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/words.hpp"
#include "hook/install/ask_engine.hpp"
#include "hook/install/engine_settings.hpp"
#include "hook/install/install_record.hpp"

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
  // containerd 2: the drop-in is of version 2, as config.toml, and not of 3; its engine does not merge one with the
  // other. containerd 1.7: the default handler is written too, since a first table of handlers replaces it.
  bool other_form = false;
};

struct InstallPlan {
  std::vector<FileEdit> edits;    // in the order of writing; none that changes nothing
  std::vector<std::string> said;  // what the administrator should know
  EngineSettings meant;           // what the engine must print then; CRI-O: what it may not print otherwise
  std::string drop_in;            // of containerd 2
};

// The text of a file of the node, nullopt where there is none.
using ReadNodeFile = std::function<fabric::Result<std::optional<std::string>>(const std::string& path)>;

inline constexpr const char* kContainerdConfig = "/etc/containerd/config.toml";

// Errors: what read() says; a setting that is no UTF-8; a file that is no JSON object (Docker); a file, an `imports` or
// a runtime `rdma` that somebody else wrote, with what to merge by hand; a way that the engine does not have.
fabric::Result<InstallPlan> plan_install(const EngineFacts& facts, const ReadNodeFile& read);

// The form that fits this config.toml at first sight; the engine has the last word.
bool guess_other_form(const EngineFacts& facts, std::string_view config);

// What containerd's configuration needs, as tables.
std::string containerd_tables(const EngineFacts& facts);

}  // namespace hook
