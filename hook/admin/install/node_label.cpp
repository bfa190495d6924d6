#include "hook/admin/install/node_label.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "base/replace_file.hpp"
#include "hook/admin/install/distribution.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/admin/install/record.hpp"
#include "hook/admin/install/restart.hpp"

namespace hook {
namespace {

constexpr const char* kStateFile = "rdma-init";
constexpr const char* kCompleteFile = "rdma-init-complete";

// Replaces a file of the directory; nullopt removes it.
Result<void> write_label(const std::string& root, const std::string& features, const char* name,
                         const std::optional<std::string>& text) {
  struct stat status {};
  // The seccomp filter of `config apply` allows no access(2).
  const auto directory = node_path(root, features + "/.");
  if (!directory || ::stat(directory->c_str(), &status) != 0) return {};
  const std::string file = fmt::format("{}/{}", features, name);
  const std::string hidden = fmt::format("{}/.{}", features, name);
  // Removes the temporary file that a killed call left, also if no label is to be written.
  TRY_VOID(remove_node_file(root, hidden));
  if (!text) return remove_node_file(root, file);
  if (TRY(has_node_file(root, file, *text))) return {};
  // nfd-worker may read the directory at any moment, so the file is written under a hidden name, which nfd-worker
  // ignores, and renamed when it is complete.
  const base::NameAt from{AT_FDCWD, TRY(node_path(root, hidden))};
  const base::NameAt to{AT_FDCWD, TRY(node_path(root, file))};
  // The label must not be empty after a crash of the node, so it is synced.
  const auto failed = base::replace_file(from, to, *text, {.mode = 0644, .is_synced = true});
  if (failed) return sys_error(failed->code, "replace `{}`", file);
  return {};
}

}  // namespace

std::string node_label_text(NodeState state) {
  return fmt::format("rdma-init.io/state={}\n", to_word(kNodeStates, state));
}

std::string complete_label_text(bool complete) {
  return fmt::format("rdma-init.io/complete={}\n", complete);
}

Result<void> label_node(const std::string& root, std::optional<NodeState> state) {
  return write_label(root, kFeatures, kStateFile, state ? std::optional(node_label_text(*state)) : std::nullopt);
}

Result<void> label_complete(const std::string& root, std::optional<bool> complete, const std::string& features) {
  const auto text = complete ? std::optional(complete_label_text(*complete)) : std::nullopt;
  return write_label(root, features, kCompleteFile, text);
}

Result<void> label_by_record(const std::string& root, std::optional<NodeState> otherwise) {
  const auto record = TRY(read_install_record(root));
  if (!record || record->is_restored() || is_distribution(record->engine)) return label_node(root, otherwise);
  return label_node(root, is_restart_due(root, *record) ? NodeState::kRestartDue : NodeState::kReady);
}

}  // namespace hook
