#include "hook/admin/install/node_label.hpp"

#include <unistd.h>

#include "base/replace_file.hpp"
#include "hook/admin/install/distribution.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/admin/install/record.hpp"
#include "hook/admin/install/restart.hpp"

namespace hook {
namespace {

constexpr const char* kFile = "/rdma-init";
constexpr const char* kHiddenFile = "/.rdma-init";

}  // namespace

std::string node_label_text(NodeState state) {
  return fmt::format("rdma-init.io/state={}\n", to_word(kNodeStates, state));
}

Result<void> label_node(const std::string& root, std::optional<NodeState> state) {
  if (!node_has(root, kFeatures, F_OK)) return {};
  const std::string file = std::string(kFeatures) + kFile;
  const std::string hidden = std::string(kFeatures) + kHiddenFile;
  // Removes the temporary file that a killed call left, also if no label is to be written.
  TRY_VOID(remove_node_file(root, hidden));
  if (!state) return remove_node_file(root, file);
  const std::string text = node_label_text(*state);
  if (TRY(has_node_file(root, file, text))) return {};
  // nfd-worker may read the directory at any moment, so the file is written under a hidden name, which nfd-worker
  // ignores, and renamed when it is complete.
  const base::NameAt from{AT_FDCWD, TRY(node_path(root, hidden))};
  const base::NameAt to{AT_FDCWD, TRY(node_path(root, file))};
  // The label must not be empty after a crash of the node, so it is synced.
  const auto failed = base::replace_file(from, to, text, {.mode = 0644, .is_synced = true});
  if (failed) return sys_error(failed->code, "replace `{}`", file);
  return {};
}

Result<void> label_by_record(const std::string& root, std::optional<NodeState> otherwise) {
  const auto record = TRY(read_install_record(root));
  if (!record || record->is_restored() || is_distribution(record->engine)) return label_node(root, otherwise);
  return label_node(root, is_restart_due(root, *record) ? NodeState::kRestartDue : NodeState::kReady);
}

}  // namespace hook
