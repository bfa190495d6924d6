// Finds the libraries of an image by file name, as the dynamic loader and libibverbs do. Loads none. The author of the
// image controls the files, so every read is bounded.
//
// How libibverbs finds a provider (libibverbs/dynamic_driver.c, rdma-core 59): for each name in RDMAV_DRIVERS, or in
// IBV_DRIVERS if that is not set, and for each `driver NAME` line in /etc/libibverbs.d, it loads libNAME-rdmavNN.so
// from its own directory, or else from the library paths. NN is the private ABI of libibverbs. A name with a leading
// slash is a path without the ending "-rdmavNN.so".
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/rooted.hpp"

namespace fabric {

inline constexpr std::size_t kMostPlaces = 128;  // limit: directories of the library path, files of a .d directory

// A library that was searched by file name.
struct ImageFile {
  std::string path;     // empty: not found in any directory
  std::string problem;  // one line: the file cannot be loaded, or a directory cannot be read
};

// A libibverbs.so.1, and the facts about providers in its file.
struct Verbs {
  ImageFile file;
  std::optional<unsigned> abi;  // private ABI; nullopt: not found in the file
  std::string directory;        // the library's own directory of providers; empty: none, or not found in the file
};

struct Drivers {
  std::vector<std::string> names;  // the names of providers in /etc/libibverbs.d and in the environment
  std::string unread;              // the file of /etc/libibverbs.d that could not be read, with the reason
};

// Returns "libmlx5-rdmav34.so" for "mlx5" and 34.
std::string provider_file(std::string_view name, unsigned abi);

class Libraries {
 public:
  // root: prefix of a file tree, empty for this machine. The environment counts only for this machine.
  explicit Libraries(const std::string& root);

  const Rooted& files() const { return files_; }
  // Directories of libraries, in the order of ld.so.
  const std::vector<std::string>& places() const { return places_; }
  void add_place(std::string_view path);

  // Returns the first file with one of these names that can be loaded, in the order of the directories. If none can be
  // loaded, returns the first that exists.
  ImageFile find(std::initializer_list<const char*> names) const;
  // Returns the file at the path. If both members are empty, the file does not exist. If only `problem` is set, it is
  // unknown whether the file exists.
  ImageFile at(const std::string& path) const;
  Verbs verbs() const;
  Verbs verbs_in(const std::string& path) const;  // reads a libibverbs.so.1 at this path
  Drivers drivers() const;

 private:
  void find_places();
  void add_configured(const std::string& path);

  Rooted files_;
  bool live_;
  std::vector<std::string> places_;
};

}  // namespace fabric
