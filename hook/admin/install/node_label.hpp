// Writes the state of the installation as a label of the Kubernetes node. node-feature-discovery sets the labels that
// it reads from the files in a directory.
#pragma once

#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/words.hpp"

namespace hook {

// The directory whose files nfd-worker, the program of node-feature-discovery on each node, reads. nfd-worker ignores
// names that begin with a dot.
inline constexpr const char* kFeatures = "/etc/kubernetes/node-feature-discovery/features.d";

enum class NodeState { kReady, kRestartDue, kUnsupported };

inline constexpr Word<NodeState> kNodeStates[] = {
    {"ready", NodeState::kReady}, {"restart-due", NodeState::kRestartDue}, {"unsupported", NodeState::kUnsupported}};

// Returns the text of the file: one line NAMESPACE/NAME=VALUE. Pure.
// The text has no comment, because early versions of node-feature-discovery parse a comment as a label. Source: "Local
// feature source" in the customization guide of node-feature-discovery, and its source/local/local.go.
std::string node_label_text(NodeState state);

// Writes the label for the state to a file in kFeatures. state: nullopt removes the file. Does nothing if the directory
// kFeatures is missing, because the node then has no node-feature-discovery. Does not write a file with the same text
// again.
Result<void> label_node(const std::string& root, std::optional<NodeState> state);

// Labels the node by its install record: ready, or a restart is due.
// otherwise: the state if the node has no record of an engine, or if the files of the record are restored.
Result<void> label_by_record(const std::string& root, std::optional<NodeState> otherwise);

// Returns the text of the file for the label `complete`. Pure.
std::string complete_label_text(bool complete);

// Writes the label `complete` to a second file, as label_node(). complete: nullopt removes the file. features: the
// directory kFeatures of the node, as a path below root. With an empty root no link is resolved, which the seccomp
// filter of `config apply` does not allow.
Result<void> label_complete(const std::string& root, std::optional<bool> complete,
                            const std::string& features = kFeatures);

}  // namespace hook
