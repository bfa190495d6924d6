// Files of the node that install writes and uninstall restores, below a root. Each is replaced whole or not at all,
// from a temporary beside it, which the engine can read before it becomes the file.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/result.hpp"

namespace hook {

// What is appended to a path for its temporary. No engine reads a name that ends so, but CRI-O.
inline constexpr const char* kCandidate = ".rdma-init";

// root: "" is the node itself; below another one links among the directories lead where the node itself would follow
// them, below that root: of an image /host/opt may be a link to /var/opt.
//
// The text of a file, nullopt where there is none. Errors: a link or anything else that is no regular file; more than
// 16 MiB; a text that is no UTF-8, which the record could not give back byte for byte.
Result<std::optional<std::string>> read_node_file(const std::string& root, const std::string& path);

// Whether the file has this text; nullopt: whether nothing is there. No link, directory or the like has a text. Errors:
// it cannot be seen, or a link leads out of root.
Result<bool> has_node_file(const std::string& root, const std::string& path, const std::optional<std::string>& text);

// Writes path's temporary, to disk, with the mode and owner of path where that is there, else root's and 0644. Makes
// the directories that are missing.
Result<void> prepare_node_file(const std::string& root, const std::string& path, std::string_view text);
// Writes path's temporary as root's with kProgramMode, whatever is at path.
inline constexpr mode_t kProgramMode = 0755;
Result<void> prepare_node_program(const std::string& root, const std::string& path, std::string_view bytes);
// The temporary becomes the file, or the directory. Needs no room on the file system.
Result<void> commit_node_file(const std::string& root, const std::string& path);
// Both.
Result<void> write_node_file(const std::string& root, const std::string& path, std::string_view text);

// Where a path of the node is for this process: links in the directories above it are followed, the last part is as it
// is. Errors: a link that leads nowhere.
Result<std::string> node_path(const std::string& root, const std::string& path);
// Whether the node has this, a link at its end followed too, and it may be used so (access(2)).
bool node_has(const std::string& root, const std::string& path, int mode);

// The names in a directory, as this process sees it; none where it cannot be opened.
std::vector<std::string> names_in(const std::string& directory);

// Whether files can be written into this directory of the node, or into the innermost one above it that is there.
bool may_write_below(const std::string& root, const std::string& directory);

// Removes a file, if it is there.
Result<void> remove_node_file(const std::string& root, const std::string& path);

// The directories above a path, the outermost first.
std::vector<std::string> directories_above(const std::string& path);
// The directories above path that are not there, the outermost first.
std::vector<std::string> missing_directories(const std::string& root, const std::string& path);
// Removes those that are empty, the last one first.
void remove_empty_directories(const std::string& root, const std::vector<std::string>& directories);

}  // namespace hook
