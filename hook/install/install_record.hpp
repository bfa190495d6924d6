// /var/lib/rdma-init/install.json: what install wrote, and what was there before. It is written before the first file
// and removed after the last one, so that install or uninstall completes whatever was killed in between.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"

namespace hook {

inline constexpr const char* kInstallRecord = "/var/lib/rdma-init/install.json";

// A file as it shall be; before: as it is, nullopt where there is none.
struct FileEdit {
  std::string path;
  std::optional<std::string> before;
  std::string after;
};

struct InstallRecord {
  std::string engine;
  std::string way;
  std::string programs;  // directory of rdma-runtime and rdma-hook that the files name
  std::string version;   // of the rdma-hook that wrote it
  std::vector<FileEdit> edits;
  std::vector<std::string> directories;  // that were not there, the outermost first
  std::vector<std::string> put;          // programs that were put on the node, by path
  bool unread = false;                   // the engine may not have read these files yet
  bool taken_back = false;               // of what was written the programs alone are left
};

enum class EditState { kInstalled, kNotWritten, kChanged };

// nullopt: nothing is installed. Errors: a record that is damaged (each text has a hash), with the remedy.
fabric::Result<std::optional<InstallRecord>> read_install_record(const std::string& root);
fabric::Result<void> write_install_record(const std::string& root, const InstallRecord& record);
// With the directories that its writing made, if they are empty.
fabric::Result<void> remove_install_record(const std::string& root, const InstallRecord& record);

// Errors: the file cannot be seen, and is then neither.
fabric::Result<EditState> state_of_edit(const std::string& root, const FileEdit& edit);

}  // namespace hook
