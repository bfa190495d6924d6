// Reads the image's libraries. The author of the image controls these files, so every read is bounded and no file is
// loaded.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text.hpp"
#include "fabric/elf_file.hpp"
#include "fabric/libraries.hpp"
#include "init/image.hpp"

namespace init {
namespace {

class ImageReader {
 public:
  explicit ImageReader(const std::string& root) : libraries_(root), live_(root.empty()) {}

  Image read(bool for_efa) {
    read_distribution();
    fabric::Verbs verbs = libraries_.verbs();
    image_.verbs = std::move(verbs.file);
    image_.abi = verbs.abi;
    if (image_.verbs.path.empty()) {
      const fabric::ImageFile libc =
          libraries_.find({"libc.so.6", "libc.so", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"});
      image_.is_static = libc.path.empty() && libc.problem.empty();
    }
    fabric::Drivers drivers = libraries_.drivers();
    image_.drivers = std::move(drivers.names);
    image_.unread = std::move(drivers.unread);
    read_providers(verbs.directory);
    image_.abi_version = sees_abi_version();
    if (for_efa) {
      for (const char* place :
           {"/opt/amazon/efa/lib", "/opt/amazon/efa/lib64", "/opt/amazon/ofi-nccl/lib", "/opt/amazon/ofi-nccl/lib64",
            "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu", "/opt/aws-ofi-nccl/lib"}) {
        libraries_.add_place(place);
      }
      image_.nccl_plugin = libraries_.find({"libnccl-net.so", "libnccl-net-ofi.so"});
    }
    image_.fabric = libraries_.find({"libfabric.so.1"});
    if (!for_efa && !image_.fabric.path.empty()) image_.lacks_localhost = lacks_localhost();
    read_ucx();
    return std::move(image_);
  }

 private:
  // UCX loads its modules from the directory ucx beside its libraries. Debian's UCX 1.23.0~rc1-1 has no module for
  // verbs, although it is configured with them.
  void read_ucx() {
    const fabric::ImageFile ucx = libraries_.find({"libuct.so.0"});
    if (ucx.path.empty() || (live_ && std::getenv("UCX_MODULE_DIR"))) return;
    const std::string modules = ucx.path.substr(0, ucx.path.rfind('/')) + "/ucx";
    bool any = false;
    bool verbs = false;
    const int code = files().each_name(modules, [&](std::string_view name) {
      any |= name.starts_with("libuct_");
      verbs |= name.starts_with("libuct_ib.so");
    });
    if (code == 0 && any && !verbs && !has_verbs_inside(ucx.path)) image_.ucx_without_verbs = modules;
  }

  // Returns true if UCX's library may have the InfiniBand module built in: its symbols then have the module's prefix. A
  // library that cannot be read may have it.
  bool has_verbs_inside(const std::string& path) const {
    const auto opened = files().open(path);
    if (base::error_of(opened) != 0) return true;
    const auto symbols = fabric::ElfFile(std::get<base::UniqueFd>(opened).get()).symbols();
    return std::ranges::any_of(symbols, [](const std::string& name) { return name.starts_with("uct_ib_"); });
  }

  // Returns true if no file and no name server can have `localhost`. A file that cannot be read may have it.
  bool lacks_localhost() const {
    const auto has = [&](const char* path, std::string_view word, std::string_view line_start) {
      const auto text = files().read(path, base::kMostText);
      if (const int code = base::error_of(text); code != 0) return !base::is_absent(code);
      for (std::string_view line : base::split(std::get<std::string>(text), '\n')) {
        line = base::trim(line.substr(0, line.find('#')));
        if (line.starts_with(line_start) && line.find(word) != std::string_view::npos) return true;
      }
      return false;
    };
    return !has("/etc/hosts", "localhost", "") && !has("/etc/resolv.conf", "nameserver", "nameserver") &&
           !has("/etc/nsswitch.conf", "myhostname", "hosts:") && !has("/etc/nsswitch.conf", "resolve", "hosts:");
  }

  void read_distribution() {
    const std::string text = base::value_or(files().read("/etc/os-release", base::kMostText), std::string());
    for (std::string_view line : base::split(text, '\n')) {
      line = base::trim(line);
      if (!line.starts_with("ID=") && !line.starts_with("ID_LIKE=")) continue;
      line.remove_prefix(line.find('=') + 1);
      if (line.size() > 1 && (line.front() == '"' || line.front() == '\'')) line = line.substr(1, line.size() - 2);
      for (const std::string_view id : base::split(line, ' '))
        image_.distributions.emplace_back(id);
    }
    image_.ngc = files().each_name("/opt/nvidia/entrypoint.d", [](std::string_view) {}) == 0;
  }

  // Records the first failed read. After a failed read, a file that was not found may exist nevertheless.
  void note_unread(std::string_view path, int code) {
    if (code != 0 && !base::is_absent(code) && image_.unread.empty())
      image_.unread = fmt::format("{}: {}", path, std::strerror(code));
  }

  void read_providers(const std::string& directory) {
    std::vector<std::string> places;
    if (!directory.empty()) places.push_back(directory);
    for (const std::string& place : libraries_.places()) {
      if (std::ranges::find(places, place) == places.end()) places.push_back(place);
    }
    for (const std::string& place : places) {
      note_unread(place, files().each_name(place, [&](std::string_view name) { add_provider(place, name); }));
    }
  }

  // Adds the provider of a file named libNAME-rdmavNN.so.
  void add_provider(const std::string& place, std::string_view name) {
    const std::size_t mark = name.rfind("-rdmav");
    if (!name.starts_with("lib") || !name.ends_with(".so") || mark == std::string_view::npos || mark < 3 ||
        mark + 9 > name.size() || image_.providers.size() >= fabric::kMostPlaces) {
      return;
    }
    const auto abi = base::parse_number<unsigned>(name.substr(mark + 6, name.size() - mark - 9));
    if (!abi) return;
    fabric::ImageFile file = libraries_.at(fmt::format("{}/{}", place, name));
    if (file.path.empty()) file = {fmt::format("{}/{}", place, name), "cannot be opened"};
    image_.providers.push_back({std::string(name.substr(3, mark - 3)), *abi, std::move(file)});
  }

  // Returns false if sysfs has uverbs nodes and lacks abi_version. Without the directory there are no HCAs to find.
  bool sees_abi_version() const {
    const std::string directory = "/sys/class/infiniband_verbs";
    bool node = false;
    bool version = false;
    const int code = files().each_name(directory, [&](std::string_view name) {
      node |= name.starts_with("uverbs");
      version |= name == "abi_version";
    });
    return code != 0 || !node || version;
  }

  const base::Rooted& files() const { return libraries_.files(); }

  fabric::Libraries libraries_;
  bool live_;  // the image is this machine, so that the environment counts
  Image image_;
};

}  // namespace

Image read_image(const std::string& root, bool for_efa) {
  return ImageReader(root).read(for_efa);
}

}  // namespace init
