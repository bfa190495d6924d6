// Reads the image's libraries. The author of the image controls these files, so every read is bounded and no file is
// loaded.
#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "fabric/text.hpp"
#include "init/image.hpp"
#include "init/rooted.hpp"

namespace init {
namespace {

constexpr std::size_t kMostLibrary = 16 << 20;
constexpr std::size_t kMostPlaces = 128;  // limit: directories of the library path, files of a .d directory
constexpr std::string_view kProviderName = "lib%s-rdmav";
constexpr std::string_view kDriverFiles = "/etc/libibverbs.d";

#if defined(__x86_64__)
constexpr unsigned kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kMachine = EM_AARCH64;
#else
constexpr unsigned kMachine = EM_NONE;  // not checked
#endif

// Returns why the loader would refuse an open file, empty if no reason was found.
std::string problem_of(int file) {
  Elf64_Ehdr header{};
  struct stat info {};
  if (::pread(file, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return "is not an ELF file";
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || (kMachine != EM_NONE && header.e_machine != kMachine))
    return "is of another architecture";
  if (header.e_type != ET_DYN) return "is not a shared library";
  // The section table is usually at the end of a library, so a truncated file lacks it.
  const std::uint64_t sections = std::uint64_t{header.e_shnum} * header.e_shentsize;
  if (::fstat(file, &info) == 0 && (header.e_shoff > static_cast<std::uint64_t>(info.st_size) ||
                                    sections > static_cast<std::uint64_t>(info.st_size) - header.e_shoff)) {
    return "is truncated";
  }
  return {};
}

class ImageReader {
 public:
  explicit ImageReader(const std::string& root) : files_(root), live_(root.empty()) { find_places(); }

  // The order matters: libibverbs is read first, because its text names the directory of the providers.
  Image read(bool for_efa) {
    read_distribution();
    image_.verbs = find({"libibverbs.so.1"});
    if (image_.verbs.path.empty()) {
      const ImageFile libc = find({"libc.so.6", "libc.so", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"});
      image_.is_static = libc.path.empty() && libc.problem.empty();
    }
    read_verbs();
    read_drivers();
    read_providers();
    image_.abi_version = sees_abi_version();
    if (for_efa) {
      for (const char* place :
           {"/opt/amazon/efa/lib", "/opt/amazon/efa/lib64", "/opt/amazon/ofi-nccl/lib", "/opt/amazon/ofi-nccl/lib64",
            "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu", "/opt/aws-ofi-nccl/lib"}) {
        places_.emplace_back(place);
      }
      image_.fabric = find({"libfabric.so.1"});
      image_.nccl_plugin = find({"libnccl-net.so", "libnccl-net-ofi.so"});
    }
    return std::move(image_);
  }

 private:
  // Returns an empty text if the file cannot be read.
  std::string read_text(const std::string& path, std::size_t limit) const {
    return fabric::value_or(files_.read(path, limit), std::string());
  }

  void add_place(std::string_view path) {
    if (!path.starts_with('/') || places_.size() >= kMostPlaces) return;
    if (std::ranges::find(places_, path) == places_.end()) places_.emplace_back(path);
  }

  // Collects the directories in the order of ld.so: LD_LIBRARY_PATH, the configuration of ldconfig, and the defaults of
  // the C libraries.
  void find_places() {
    if (const char* path = live_ ? std::getenv("LD_LIBRARY_PATH") : nullptr) {
      for (const std::string_view place : fabric::split(path, ':'))
        add_place(place);
    }
    add_configured("/etc/ld.so.conf");
    std::vector<std::string> names;
    files_.each_name("/etc/ld.so.conf.d", [&](std::string_view name) {
      if (name.ends_with(".conf") && names.size() < kMostPlaces) names.emplace_back(name);
    });
    // ldconfig reads the files in the order of glob(3), which sorts.
    std::ranges::sort(names);
    for (const std::string& name : names)
      add_configured("/etc/ld.so.conf.d/" + name);
#if defined(__x86_64__)
    add_place("/lib/x86_64-linux-gnu");
    add_place("/usr/lib/x86_64-linux-gnu");
#elif defined(__aarch64__)
    add_place("/lib/aarch64-linux-gnu");
    add_place("/usr/lib/aarch64-linux-gnu");
#endif
    for (const char* place : {"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"})
      add_place(place);
  }

  void add_configured(const std::string& path) {
    const std::string text = read_text(path, kMostText);
    for (const std::string_view line : fabric::split(text, '\n'))
      add_place(fabric::trim(line.substr(0, line.find('#'))));
  }

  // Returns the first file with one of these names that can be loaded, in the order of the directories. If none can be
  // loaded, returns the first that exists.
  ImageFile find(std::initializer_list<const char*> names) const {
    ImageFile found;
    std::string unknown;
    for (const std::string& place : places_) {
      for (const char* name : names) {
        const std::string path = fmt::format("{}/{}", place, name);
        ImageFile file = read_presence(path);
        if (file.path.empty()) {
          if (unknown.empty()) unknown = file.problem;
        } else if (file.problem.empty()) {
          return file;
        } else if (found.path.empty()) {
          found = std::move(file);
        }
      }
    }
    if (found.path.empty()) found.problem = unknown;
    return found;
  }

  // Returns the file at the path. If both members are empty, the file does not exist. If only `problem` is set, it is
  // unknown whether the file exists.
  ImageFile read_presence(const std::string& path) const {
    auto file = files_.open(path);
    if (const int code = error_of(file); code != 0) {
      if (is_gone(code)) return {};
      if (code == EINVAL || code == ELOOP) return {path, "is not a regular file"};
      return {{}, fmt::format("{}: {}", path, std::strerror(code))};
    }
    return {path, problem_of(std::get<fabric::UniqueFd>(file).get())};
  }

  void read_distribution() {
    const std::string text = read_text("/etc/os-release", kMostText);
    for (std::string_view line : fabric::split(text, '\n')) {
      line = fabric::trim(line);
      if (!line.starts_with("ID=") && !line.starts_with("ID_LIKE=")) continue;
      line.remove_prefix(line.find('=') + 1);
      if (line.size() > 1 && (line.front() == '"' || line.front() == '\'')) line = line.substr(1, line.size() - 2);
      for (const std::string_view id : fabric::split(line, ' '))
        image_.distributions.emplace_back(id);
    }
    image_.ngc = files_.each_name("/opt/nvidia/entrypoint.d", [](std::string_view) {}) == 0;
  }

  // Finds the private ABI and the directory of providers in the text of libibverbs: it contains the format
  // "lib%s-rdmav34.so", and the same format after the directory.
  void read_verbs() {
    if (image_.verbs.path.empty() || !image_.verbs.problem.empty()) return;
    const std::string text = read_text(image_.verbs.path, kMostLibrary);
    for (std::size_t at = text.find(kProviderName); at != std::string::npos; at = text.find(kProviderName, at + 1)) {
      const std::size_t digits = at + kProviderName.size();
      const std::string_view rest = std::string_view(text).substr(digits, 16);
      const std::size_t end = rest.find(".so");
      if (end == std::string_view::npos) continue;
      // The format may occur more than once; all occurrences have the same ABI.
      image_.abi = fabric::parse_number<unsigned>(rest.substr(0, end));
      // The string of the directory starts after a zero byte.
      const std::size_t before = text.rfind('\0', at);
      const std::string_view directory =
          std::string_view(text).substr(before == std::string::npos ? 0 : before + 1, at - before - 1);
      if (before != std::string::npos && directory.size() > 1 && directory.size() < 256 && directory.starts_with('/'))
        provider_directory_ = directory.substr(0, directory.size() - 1);
    }
  }

  // Records the first failed read. After it, a file that was not found may exist nevertheless.
  void note_unread(std::string_view path, int code) {
    if (code != 0 && !is_gone(code) && image_.unread.empty())
      image_.unread = fmt::format("{}: {}", path, std::strerror(code));
  }

  void read_drivers() {
    std::vector<std::string> names;
    note_unread(kDriverFiles, files_.each_name(std::string(kDriverFiles), [&](std::string_view name) {
      if (names.size() < kMostPlaces) names.emplace_back(name);
    }));
    if (names.size() == kMostPlaces) note_unread(kDriverFiles, EFBIG);
    for (const std::string& name : names) {
      const std::string path = fmt::format("{}/{}", kDriverFiles, name);
      const auto text = files_.read(path, kMostText);
      if (const int code = error_of(text); code != 0) {
        // libibverbs ignores entries that are not regular files.
        if (code != EINVAL) note_unread(path, code);
        continue;
      }
      for (std::string_view line : fabric::split(std::get<std::string>(text), '\n')) {
        line = fabric::trim(line);
        if (line.starts_with("driver ") || line.starts_with("driver\t"))
          image_.drivers.emplace_back(fabric::trim(line.substr(7)));
      }
    }
    if (const char* more = live_ ? std::getenv("RDMAV_DRIVERS") : nullptr) {
      for (const std::string_view name : fabric::split(more, ':'))
        image_.drivers.emplace_back(name);
    }
  }

  void read_providers() {
    std::vector<std::string> places;
    if (!provider_directory_.empty()) places.push_back(provider_directory_);
    for (const std::string& place : places_) {
      if (std::ranges::find(places, place) == places.end()) places.push_back(place);
    }
    for (const std::string& place : places) {
      note_unread(place, files_.each_name(place, [&](std::string_view name) { add_provider(place, name); }));
    }
  }

  // Adds the provider of a file named libNAME-rdmavNN.so.
  void add_provider(const std::string& place, std::string_view name) {
    const std::size_t mark = name.rfind("-rdmav");
    if (!name.starts_with("lib") || !name.ends_with(".so") || mark == std::string_view::npos || mark < 3 ||
        mark + 9 > name.size() || image_.providers.size() >= kMostPlaces) {
      return;
    }
    const auto abi = fabric::parse_number<unsigned>(name.substr(mark + 6, name.size() - mark - 9));
    if (!abi) return;
    ImageFile file = read_presence(fmt::format("{}/{}", place, name));
    if (file.path.empty()) file = {fmt::format("{}/{}", place, name), "cannot be opened"};
    image_.providers.push_back({std::string(name.substr(3, mark - 3)), *abi, std::move(file)});
  }

  // Returns false if sysfs has uverbs nodes and lacks abi_version. Without the directory there are no HCAs to find.
  bool sees_abi_version() const {
    const std::string directory = "/sys/class/infiniband_verbs";
    bool node = false;
    bool version = false;
    const int code = files_.each_name(directory, [&](std::string_view name) {
      node |= name.starts_with("uverbs");
      version |= name == "abi_version";
    });
    return code != 0 || !node || version;
  }

  Rooted files_;
  bool live_;
  std::vector<std::string> places_;
  std::string provider_directory_;
  Image image_;
};

}  // namespace

Image read_image(const std::string& root, bool for_efa) {
  return ImageReader(root).read(for_efa);
}

}  // namespace init
