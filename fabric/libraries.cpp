#include "fabric/libraries.hpp"

#include <elf.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text.hpp"

namespace fabric {
namespace {

constexpr std::size_t kMostLibrary = 16 << 20;
constexpr std::string_view kProviderName = "lib%s-rdmav";
constexpr std::string_view kDriverFiles = "/etc/libibverbs.d";

#if defined(__x86_64__)
constexpr unsigned kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kMachine = EM_AARCH64;
#else
constexpr unsigned kMachine = EM_NONE;  // the machine of the library is not checked on this architecture
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

// Adds the names of a list in the environment. libibverbs separates them by ":" or ";".
void add_names(std::string_view list, std::vector<std::string>& names) {
  for (const std::string_view part : split(list, ':')) {
    for (const std::string_view name : split(part, ';'))
      names.emplace_back(name);
  }
}

}  // namespace

std::string provider_file(std::string_view name, unsigned abi) {
  return fmt::format("lib{}-rdmav{}.so", name, abi);
}

Libraries::Libraries(const std::string& root) : files_(root), live_(root.empty()) {
  find_places();
}

void Libraries::add_place(std::string_view path) {
  if (!path.starts_with('/') || places_.size() >= kMostPlaces) return;
  if (std::ranges::find(places_, path) == places_.end()) places_.emplace_back(path);
}

// Collects the directories in the order of ld.so: LD_LIBRARY_PATH, the configuration of ldconfig, and the defaults of
// the C libraries.
void Libraries::find_places() {
  if (const char* path = live_ ? std::getenv("LD_LIBRARY_PATH") : nullptr) {
    for (const std::string_view place : split(path, ':'))
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

void Libraries::add_configured(const std::string& path) {
  const std::string text = value_or(files_.read(path, kMostText), std::string());
  for (const std::string_view line : split(text, '\n'))
    add_place(trim(line.substr(0, line.find('#'))));
}

ImageFile Libraries::find(std::initializer_list<const char*> names) const {
  ImageFile found;
  std::string unknown;
  for (const std::string& place : places_) {
    for (const char* name : names) {
      const std::string path = fmt::format("{}/{}", place, name);
      ImageFile file = at(path);
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

ImageFile Libraries::at(const std::string& path) const {
  auto file = files_.open(path);
  if (const int code = error_of(file); code != 0) {
    if (is_absent(code)) return {};
    if (code == EINVAL || code == ELOOP) return {path, "is not a regular file"};
    return {{}, fmt::format("{}: {}", path, std::strerror(code))};
  }
  return {path, problem_of(std::get<UniqueFd>(file).get())};
}

// Finds the private ABI and the directory of providers in the text of libibverbs: it contains the format
// "lib%s-rdmav34.so", and the same format after the directory.
Verbs Libraries::verbs() const {
  const ImageFile file = find({"libibverbs.so.1"});
  Verbs verbs = file.path.empty() || !file.problem.empty() ? Verbs() : verbs_in(file.path);
  verbs.file = file;
  return verbs;
}

Verbs Libraries::verbs_in(const std::string& path) const {
  Verbs verbs;
  verbs.file.path = path;
  const std::string text = value_or(files_.read(path, kMostLibrary), std::string());
  for (std::size_t at = text.find(kProviderName); at != std::string::npos; at = text.find(kProviderName, at + 1)) {
    const std::size_t digits = at + kProviderName.size();
    const std::string_view rest = std::string_view(text).substr(digits, 16);
    const std::size_t end = rest.find(".so");
    if (end == std::string_view::npos) continue;
    // The search ends at the first occurrence, because all have the same ABI.
    verbs.abi = parse_number<unsigned>(rest.substr(0, end));
    // The string of the directory starts after a zero byte.
    const std::size_t before = text.rfind('\0', at);
    const std::string_view directory =
        std::string_view(text).substr(before == std::string::npos ? 0 : before + 1, at - before - 1);
    if (before != std::string::npos && directory.size() > 1 && directory.size() < 256 && directory.starts_with('/'))
      verbs.directory = directory.substr(0, directory.size() - 1);
  }
  return verbs;
}

Drivers Libraries::drivers() const {
  Drivers drivers;
  const auto note = [&](std::string_view path, int code) {
    if (code != 0 && !is_absent(code) && drivers.unread.empty())
      drivers.unread = fmt::format("{}: {}", path, std::strerror(code));
  };
  std::vector<std::string> names;
  note(kDriverFiles, files_.each_name(std::string(kDriverFiles), [&](std::string_view name) {
    if (names.size() < kMostPlaces) names.emplace_back(name);
  }));
  if (names.size() == kMostPlaces) note(kDriverFiles, EFBIG);
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", kDriverFiles, name);
    const auto text = files_.read(path, kMostText);
    if (const int code = error_of(text); code != 0) {
      // libibverbs ignores entries that are not regular files.
      if (code != EINVAL) note(path, code);
      continue;
    }
    for (std::string_view line : split(std::get<std::string>(text), '\n')) {
      line = trim(line);
      if (line.starts_with("driver ") || line.starts_with("driver\t")) drivers.names.emplace_back(trim(line.substr(7)));
    }
  }
  for (const char* variable : {"RDMAV_DRIVERS", "IBV_DRIVERS"}) {
    const char* list = live_ ? std::getenv(variable) : nullptr;
    if (!list) continue;
    add_names(list, drivers.names);
    break;
  }
  return drivers;
}

}  // namespace fabric
