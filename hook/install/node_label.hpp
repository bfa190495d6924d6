// The state of the node as a label. node-feature-discovery sets labels on the node from the files in a directory.
#pragma once

#include <optional>
#include <string>

#include "hook/base/result.hpp"
#include "hook/base/words.hpp"

namespace hook {

// The directory that nfd-worker reads. The file can have any name, but nfd-worker ignores names that begin with a dot.
inline constexpr const char* kFeatures = "/etc/kubernetes/node-feature-discovery/features.d";

enum class NodeState { kReady, kRestartDue, kUnsupported };

inline constexpr Word<NodeState> kNodeStates[] = {
    {"ready", NodeState::kReady}, {"restart-due", NodeState::kRestartDue}, {"unsupported", NodeState::kUnsupported}};

// Returns the text of the file: one line NAMESPACE/NAME=VALUE. Pure.
// The text has no comment, because early versions parse a comment as a label. Source: "Local feature source" of the
// customization guide of node-feature-discovery, and its source/local/local.go.
std::string node_label_text(NodeState state);

// Writes the label of the state to a file in kFeatures. nullopt: removes that file. Without the directory kFeatures
// nothing is written, because the node has no node-feature-discovery. A file with the same text is not written again.
Result<void> label_node(const std::string& root, std::optional<NodeState> state);

}  // namespace hook
