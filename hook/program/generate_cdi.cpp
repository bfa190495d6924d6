#include "fabric/inventory.hpp"
#include "hook/base/json/json.hpp"
#include "hook/program/commands.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "fabric/sysfs.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/apply/cdi_spec.hpp"
#include "hook/base/write_all.hpp"
#include "hook/grant/node.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;

constexpr std::size_t kLargestSpec = std::size_t{1} << 20;
constexpr mode_t kFileMode = 0644;

// What engines will start as a hook: this program, where it is installed.
Result<std::string> own_path() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return sys_error(error.value(), "cannot find out where rdma-hook is installed");
  return path.string();
}

Result<void> fill(const std::string& path, std::string_view text) {
  fabric::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  if (!fd.ok()) return sys_error(errno, "create");
  if (const int failed = write_all(fd.get(), text)) return sys_error(failed, "write");
  // The umask may have taken from it what engines of other users need to read it.
  if (::fchmod(fd.get(), kFileMode) != 0 || ::fsync(fd.get()) != 0) return sys_error(errno, "write");
  return {};
}

Result<void> replace_file(const std::string& path, std::string_view text) {
  const auto before = fabric::sysfs::read_file(path, kLargestSpec);
  if (fabric::value_or(before, std::string()) == text) return {};
  // Engines read *.json and *.yaml there, not this.
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  auto written = fill(temporary, text);
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = sys_error(errno, "rename");
  if (written) return {};
  ::unlink(temporary.c_str());
  Error error = fabric::wrap(std::move(written).error(), fmt::format("cannot write `{}`", path));
  if (error.code == ENOENT) error.hint = "make its directory: engines read /etc/cdi and /var/run/cdi";
  return error;
}

}  // namespace

Result<void> generate_cdi(const Options& options, const Log& log) {
  const Config config = TRY(read_config(options.node.config));
  const auto inventory = TRY(read_whole_node(config, options.node));
  CdiOptions wanted;
  wanted.kind = options.kind.value_or(kCdiKind);
  wanted.hook = options.hook ? *options.hook : TRY(own_path());
  wanted.engine = options.node.engine;
  std::vector<std::string> warnings;
  const Json spec = TRY(cdi_spec(inventory, config, wanted, warnings));
  log.warnings(warnings);
  const std::string text = spec.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (options.out) return replace_file(*options.out, text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

}  // namespace hook
