// Chooses the runtime that rdma-runtime executes. For an existing container, it is the runtime that created the
// container, as recorded beside the ledger. For any other command, it is the runtime of the configuration, or, if the
// configuration cannot be read, the runtime of the last readable configuration.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/identity.hpp"
#include "base/result.hpp"
#include "shim/runtime/invocation.hpp"
#include "shim/runtime/settings.hpp"

namespace shim {

// Returns the identity of the running program (/proc/self/exe).
Result<FileId> own_id();

// Returns the first configured runtime that exists and is executable. An absolute path names that file. A name is
// searched in the absolute directories of `path` (format of $PATH), then in the directories where distributions install
// runtimes, because the PATH of a service often lacks one of them. Skips rdma-runtime itself, the file with the id
// `self`, under any name. Errors: none of the runtimes exists; a relative path has a slash.
Result<std::string> find_runtime(const std::vector<std::string>& configured, std::string_view path, const FileId& self);

// Returns the command line with the runtime that created its container. nullopt: the command names no container or
// creates one, or no record of the container exists. Errors: those of the ledger.
Result<std::optional<Invocation>> runtime_of_container(std::span<char* const> arguments, const std::string& ledger);

struct Configured {
  std::string runtime;
  std::string warning;  // why the configuration could not be read; empty: it was read
};
// Returns the runtime of the configuration. If the configuration cannot be read, returns the last known runtime and
// sets settings.engine to the last known engine. Errors: those of find_runtime(); no configuration was readable since
// the node started.
Result<Configured> configured_runtime(Settings& settings);

// Records the runtime of a container that is about to be created. Returns an empty text, or a warning if the record
// cannot be written. Errors: EEXIST, another runtime has a container with this id and root.
Result<std::string> note_runtime(const Invocation& invocation, const Settings& settings,
                                 const base::ProcessIdentity& self);
// Removes the record of note_runtime(). Call it if the runtime could not be executed.
void forget_note(const Invocation& invocation, const std::string& ledger);
// Marks the container's record before `delete`, so that a later sweep_runtimes() removes it if the container is gone.
// Removes the marked records of earlier containers.
void note_delete(const Invocation& invocation, const std::string& ledger);

}  // namespace shim
