// Reads, writes and removes files of the node below a root directory. A file is replaced by renaming a temporary file
// in the same directory, so it is never incomplete. An engine can check the temporary file before the rename.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hook {

// The suffix of a temporary file's name. containerd, Docker and Podman ignore files with this suffix in their
// directories. CRI-O reads files with any suffix.
inline constexpr const char* kCandidate = ".rdma-init";

// Parameters of the functions below:
// root: the root directory of the node in the file system of this process; "" is /. Symbolic links in `path` are
// followed below root, as the node itself would follow them: on some images /host/opt is a link to /var/opt, which
// means /host/var/opt.
// path: a relative path begins at /, the working directory of a service of systemd.
//
// Returns the text of a file; nullopt if there is no such file. Errors: ELOOP, the path is a symbolic link; the path is
// not a regular file; the file has more than 16 MiB; its text is not UTF-8, which the record could not restore byte for
// byte.
Result<std::optional<std::string>> read_node_file(const std::string& root, const std::string& path);

// Returns whether the file has this text. If `text` is nullopt, returns whether the path does not exist. A symbolic
// link or directory never has the text. Errors: the lookup fails.
Result<bool> has_node_file(const std::string& root, const std::string& path, const std::optional<std::string>& text);

// Writes the temporary file of `path` to disk, with the mode and owner of the existing file. Without an existing file,
// the mode is 0755 for a script (#!) and otherwise 0644, and the owner is that of this process. Makes missing
// directories.
Result<void> prepare_node_file(const std::string& root, const std::string& path, std::string_view text);
// Writes the temporary file of a program. The file belongs to root and has kProgramMode, even if the present file at
// `path` has another owner or mode.
inline constexpr mode_t kProgramMode = 0755;
Result<void> prepare_node_program(const std::string& root, const std::string& path, std::string_view bytes);
// Renames the temporary file or directory to `path`. Needs no space on the file system.
Result<void> commit_node_file(const std::string& root, const std::string& path);
// Calls prepare_node_file() and then commit_node_file().
Result<void> write_node_file(const std::string& root, const std::string& path, std::string_view text);

// Returns the path by which this process reaches a path of the node. Symbolic links in the directories are resolved,
// but not a link at the end of the path. Errors: ELOOP, a directory is a link to a missing path.
Result<std::string> node_path(const std::string& root, const std::string& path);
// Returns whether this process may access a path of the node in `mode` (access(2)). A link at the end of the path is
// followed.
bool node_has(const std::string& root, const std::string& path, int mode);

// Returns the path of a program on the node; nullopt if it is not found. Searches the directories of PATH if root is
// empty, then /usr/local/sbin, /usr/sbin, /usr/bin and similar directories.
std::optional<std::string> find_program(const std::string& root, const std::string& name);

// Returns the path of the file to which a link at the end of the path leads; the path itself if it does not exist.
std::string followed(const std::string& root, const std::string& path);

// Returns the names in a directory; empty if it cannot be opened.
std::vector<std::string> names_in(const std::string& root, const std::string& directory);
// Returns the paths on the node that a path with a pattern in its last part matches, in the order of their names. A
// path without a pattern is returned as it is. A pattern in a directory matches nothing.
std::vector<std::string> matching_files(const std::string& root, std::string_view path);

// Checks that this process can create files in the directory of `path`. For a missing directory, checks the nearest
// directory above it that exists. Errors: EACCES; EROFS, a read-only file system.
Result<void> check_may_write(const std::string& root, const std::string& path);
// Calls check_may_write() for a dry run. Another user than root gets no error, and sees what root would write.
Result<void> foresee_write(const std::string& root, const std::string& path);

// Removes a file. A missing file is no error.
Result<void> remove_node_file(const std::string& root, const std::string& path);

// Returns the directories above a path, outermost first.
std::vector<std::string> directories_above(const std::string& path);
// Returns the missing directories above a path, outermost first.
std::vector<std::string> missing_directories(const std::string& root, const std::string& path);
// Removes those directories of the list that are empty, beginning at the end of the list.
void remove_empty_directories(const std::string& root, const std::vector<std::string>& directories);

}  // namespace hook
