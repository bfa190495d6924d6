#include "shim/runtime/exec_grant.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/json/record.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "hook/apply/edit_spec.hpp"

namespace shim {
namespace {

constexpr const char* kIpcLock = "CAP_IPC_LOCK";

bool has(const Json& object, const char* name) {
  const Json* value = base::member(object, name);
  return value && !value->is_null();
}

constexpr std::size_t kLongestExecGrant = std::size_t{1} << 20;

base::UniqueFd open_bundle(const std::string& bundle) {
  return base::UniqueFd(::open(bundle.empty() ? "." : bundle.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// A user who could write these files could raise limits by a forged exec grant. A forged copy of the unedited
// config.json would replace the container's config.json, which the runtime applies as root.
bool is_trusted(const base::FileSettings& settings) {
  const uid_t owner = settings.owner->uid;
  return (owner == 0 || owner == ::geteuid()) && (settings.mode & 022) == 0;
}

Result<std::optional<SpecFile>> trusted(Result<std::optional<SpecFile>> file) {
  if (!file || !*file || is_trusted((*file)->settings())) return file;
  return Error{fmt::format("cannot use `{}`: another user could have written it", base::printable((*file)->path())), 0,
               "remove that file"};
}

constexpr base::JsonLimits kExecGrantLimits = {.bytes = kLongestExecGrant};

Result<std::optional<ExecGrant>> exec_grant_in(Result<std::optional<SpecFile>> opened) {
  const auto file = TRY(trusted(std::move(opened)));
  if (!file) return std::optional<ExecGrant>();
  auto exec_grant = parse_exec_grant(file->text());
  if (!exec_grant) return base::wrap(std::move(exec_grant).error(), base::printable(file->path()));
  return std::optional<ExecGrant>(*std::move(exec_grant));
}

Result<std::optional<std::string>> text_in(Result<std::optional<SpecFile>> opened) {
  const auto file = TRY(trusted(std::move(opened)));
  return file ? std::optional<std::string>(file->text()) : std::nullopt;
}

// Makes the unedited config.json another name of the file that was read. Returns false if it must be copied.
bool link_original(int directory, const SpecFile& config) {
  if (!is_trusted(config.settings())) return false;
  const auto link = [&] {
    return ::linkat(config.directory(), config.name().c_str(), directory, kOriginalName, 0) == 0;
  };
  if (!link()) {
    // No exec grant names the present config.json, because it would have led to the text of the old file.
    if (errno != EEXIST || ::unlinkat(directory, kOriginalName, 0) != 0 || !link()) return false;
  }
  struct stat status {};
  const bool is_it =
      ::fstatat(directory, kOriginalName, &status, AT_SYMLINK_NOFOLLOW) == 0 && version_of(status) == config.version();
  if (!is_it) (void)::unlinkat(directory, kOriginalName, 0);
  return is_it;
}

}  // namespace

ProcessGrant process_grant(const hook::Plan& plan) {
  const auto& granted = plan.capabilities;
  return {std::ranges::find(granted, kIpcLock) != granted.end(), plan.memlock};
}

Result<bool> edit_process(const ProcessGrant& grant, Json& process, const std::optional<hook::Rlimit>& inherited) {
  if (!process.is_object()) return make_error("the file of `--process`: expected an object");
  // edit_spec() edits the whole config.json of a container, so the process is put into a minimal config.json.
  hook::Adjustment adjustment{.memlock = grant.memlock};
  if (grant.ipc_lock && has(process, "capabilities")) adjustment.capabilities = {kIpcLock};
  Json config{{"process", process}};
  TRY_VOID(hook::edit_spec(adjustment, config, inherited));
  if (config["process"] == process) return false;
  process = std::move(config["process"]);
  return true;
}

void describe(auto& members, FileVersion& version) {
  members("dev", version.dev);
  members("ino", version.ino);
  members("mtime_ns", version.mtime_ns);
  members("size", version.size);
}

void describe(auto& members, ExecGrant& exec_grant) {
  members("id", exec_grant.id);
  members("config", exec_grant.edited);
  members("ipc_lock", exec_grant.process.ipc_lock);
  members.optional("memlock", exec_grant.process.memlock);
}

std::string exec_grant_text(const ExecGrant& exec_grant) {
  return base::to_record(exec_grant).dump() + "\n";
}

Result<ExecGrant> parse_exec_grant(std::string_view text) {
  return base::from_record<ExecGrant>(TRY(base::parse_json(text, kExecGrantName, {.bytes = kLongestExecGrant})));
}

Result<std::optional<ExecGrant>> read_exec_grant(const std::string& bundle) {
  return exec_grant_in(SpecFile::open(bundle, kExecGrantName, kExecGrantLimits));
}

Result<std::optional<std::string>> read_original(const std::string& bundle, const FileVersion& config) {
  const auto exec_grant = TRY(read_exec_grant(bundle));
  if (!exec_grant || exec_grant->edited != config) return std::optional<std::string>();
  return text_in(SpecFile::open(bundle, kOriginalName, {}));
}

Result<std::optional<std::string>> read_original(const SpecFile& config) {
  const auto exec_grant = TRY(exec_grant_in(config.open_beside(kExecGrantName, kExecGrantLimits)));
  if (!exec_grant || exec_grant->edited != config.version()) return std::optional<std::string>();
  return text_in(config.open_beside(kOriginalName, {}));
}

Result<void> write_exec_grant(const std::string& bundle, const ExecGrant& exec_grant, std::string_view original,
                              const base::ProcessIdentity& writer, const SpecFile* config) {
  const base::UniqueFd directory = open_bundle(bundle);
  if (!directory.ok()) return sys_error(errno, "cannot open the bundle `{}`", base::printable(bundle));
  remove_leftovers(directory.get(), {});
  const base::FileSettings ours{.owner = base::FileOwner{::geteuid(), ::getegid()}};
  // The exec grant is renamed last, so that none exists without its unedited config.json: read_original() uses that
  // file if the exec grant names the current config.json.
  if (!config || !link_original(directory.get(), *config)) {
    auto copy = TRY(NewSpecFile::write({directory.get(), kOriginalName}, original, ours, writer));
    TRY_VOID(copy.put_in_place());
  }
  auto file = TRY(NewSpecFile::write({directory.get(), kExecGrantName}, exec_grant_text(exec_grant), ours, writer));
  return file.put_in_place();
}

void remove_exec_grant(const std::string& bundle) {
  const base::UniqueFd directory = open_bundle(bundle);
  constexpr std::array<std::string_view, 2> kBoth = {kExecGrantName, kOriginalName};
  if (directory.ok()) remove_leftovers(directory.get(), kBoth);
}

}  // namespace shim
