// Which runtime rdma-runtime becomes. For a container that exists: the one that made it, as the record beside the
// ledger says, whatever the configuration says now. For all else: the one of the configuration; while that cannot be
// read, the one of the last that could.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/process/identity.hpp"
#include "shim/result.hpp"
#include "shim/runtime/behind.hpp"
#include "shim/runtime/invocation.hpp"
#include "shim/runtime/settings.hpp"

namespace shim {

struct ProgramId {
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  friend bool operator==(const ProgramId&, const ProgramId&) = default;
};
// The id of the running program (/proc/self/exe).
Result<ProgramId> own_id();

// The first of these that is there and executable. An absolute path is that file; a name is looked for in the
// directories of path (as $PATH has them; relative ones are left out) and then in those where distributions put
// runtimes, because the PATH of a service often lacks one. self is passed over, whatever name it has. Errors: none is
// there; a relative path.
Result<std::string> find_runtime(const std::vector<std::string>& configured, std::string_view path,
                                 const ProgramId& self);

// The runtime that made the container which the command names. nullopt: it names none, or none that is on record.
Result<std::optional<Behind>> behind_container(std::span<char* const> arguments, const std::string& ledger);

struct Configured {
  std::string runtime;
  std::string warning;  // empty: the configuration was read
};
// settings.engine becomes the last that was known where the configuration cannot be read. Errors: as find_runtime(); no
// configuration was ever read since the node started.
Result<Configured> configured_runtime(Settings& settings);

// For a container that is about to be made by this runtime. "", or a warning: the record cannot be written. Error:
// another runtime has it.
Result<std::string> note_runtime(const Behind& behind, const Settings& settings, const hook::ProcessIdentity& self);
// The runtime could not be started.
void forget_note(const Invocation& invocation, const std::string& ledger);
// Before `delete`: from here on its record is forgotten when the container is gone.
void note_delete(const Invocation& invocation, const std::string& ledger);

}  // namespace shim
