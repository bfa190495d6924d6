// Reads, writes and restores files of the node below a root. A file is replaced by a rename of a temporary in the same
// directory, so it is never incomplete. An engine can check the temporary before the rename.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/result.hpp"

namespace hook {

// The suffix of a temporary. CRI-O reads files with any suffix; the other engines ignore files with this one.
inline constexpr const char* kCandidate = ".rdma-init";

// root: "" is this node. With any other root, links in the directories of a path are followed below root, as the node
// would follow them: on some images /host/opt is a link to /var/opt.
//
// Returns the text of a file; nullopt if there is no such file. Errors: ELOOP, the path is a link; it is no regular
// file; it has more than 16 MiB; its text is not UTF-8, which the record could not restore byte for byte.
Result<std::optional<std::string>> read_node_file(const std::string& root, const std::string& path);

// Returns whether the file has this text. For nullopt, returns whether the path does not exist. A link or directory has
// no text. Errors: the lookup fails, or a link leads out of root.
Result<bool> has_node_file(const std::string& root, const std::string& path, const std::optional<std::string>& text);

// Writes the temporary of `path` to disk. The temporary gets the mode and owner of the existing file, or 0644 and root.
// Makes missing directories.
Result<void> prepare_node_file(const std::string& root, const std::string& path, std::string_view text);
// Writes the temporary of a program. It is owned by root and has kProgramMode, whatever file exists at `path`.
inline constexpr mode_t kProgramMode = 0755;
Result<void> prepare_node_program(const std::string& root, const std::string& path, std::string_view bytes);
// Renames the temporary of a file or directory to its final name. Needs no space on the file system.
Result<void> commit_node_file(const std::string& root, const std::string& path);
// Calls prepare_node_file() and then commit_node_file().
Result<void> write_node_file(const std::string& root, const std::string& path, std::string_view text);

// Returns the path by which this process reaches a path of the node. Links in the directories are resolved; the last
// component is not. Errors: ELOOP, a link leads nowhere.
Result<std::string> node_path(const std::string& root, const std::string& path);
// Returns whether access(2) below root allows `mode`; follows a link at the end of the path.
bool node_has(const std::string& root, const std::string& path, int mode);

// Returns the names in a directory of this process's file system; empty if it cannot be opened.
std::vector<std::string> names_in(const std::string& directory);

// Returns whether this process can write into a directory of the node. For a missing directory, returns whether it can
// write into the innermost existing parent.
bool may_write_below(const std::string& root, const std::string& directory);

// Removes a file. A missing file is no error.
Result<void> remove_node_file(const std::string& root, const std::string& path);

// Returns the directories above a path, outermost first.
std::vector<std::string> directories_above(const std::string& path);
// Returns the missing directories above a path, outermost first.
std::vector<std::string> missing_directories(const std::string& root, const std::string& path);
// Removes the directories of the list that are empty, the last one first.
void remove_empty_directories(const std::string& root, const std::vector<std::string>& directories);

}  // namespace hook
