#include "hook/ledger/runtime_state.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "base/file.hpp"
#include "base/json/json.hpp"
#include "base/process/identity.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace hook {
namespace {

// runc's state file contains the whole config.json, which may have half of this size.
constexpr JsonLimits kStateLimits = {.bytes = std::size_t{32} << 20};

Error cannot_read_state(int code, const std::string& path) {
  return sys_error(code, "cannot read the runtime's state `{}`", base::printable(path));
}

std::optional<std::string> absolute_path(const Json* path) {
  const auto* text = path ? path->get_ptr<const std::string*>() : nullptr;
  if (!text || !text->starts_with('/')) return std::nullopt;
  return *text;
}

// Only the last label counts. runc writes the annotations and then the bundle as labels, so a user's annotation with
// the name "bundle" comes before the real one (libcontainer/specconv/spec_linux.go, CreateLibcontainerConfig).
std::optional<std::string> bundle_of_labels(const Json& state) {
  const Json* config = member(state, "config");
  const Json* labels = config ? member(*config, "labels") : nullptr;
  if (!labels || !labels->is_array() || labels->empty()) return std::nullopt;
  constexpr std::string_view kBundle = "bundle=";
  const auto* last = labels->back().get_ptr<const std::string*>();
  if (!last || !last->starts_with(kBundle)) return std::nullopt;
  const Json path = last->substr(kBundle.size());
  return absolute_path(&path);
}

std::optional<std::string> bundle_of_document(RuntimeState::Kind kind, const Json& document) {
  return kind == RuntimeState::Kind::kRunc ? bundle_of_labels(document) : absolute_path(member(document, "bundle"));
}

// Returns the container's init. Errors: a member is missing or wrong; the start time is 0, which identifies no process.
// crun writes 0 if it could not read the time.
Result<ProcessIdentity> init_of(RuntimeState::Kind kind, const Json& document) {
  const bool is_runc = kind == RuntimeState::Kind::kRunc;
  const char* const start = is_runc ? "init_process_start" : "process-start-time";
  ProcessIdentity init;
  init.pid = static_cast<pid_t>(
      TRY(number_at(document, is_runc ? "init_process_pid" : "pid", std::numeric_limits<pid_t>::max())));
  init.start_time = TRY(number_at(document, start, UINT64_MAX));
  if (init.pid == 0 || init.start_time == 0) return wrong_member(start);
  return init;
}

Result<Presence> read_presence_of_text(const std::string& text, RuntimeState::Kind kind, const std::string& bundle) {
  const Json document = TRY(parse_json(text, "the file", kStateLimits));
  const auto named = bundle_of_document(kind, document);
  if (!named) return wrong_member("bundle");
  const ProcessIdentity init = TRY(init_of(kind, document));
  if (!TRY(is_same_directory(*named, bundle))) return Presence::kAbsent;
  return read_presence(init);
}

// Opens the recorded root directory, and checks that it is still the same directory.
Result<UniqueFd> open_root(const RuntimeState& state) {
  UniqueFd root(::open(state.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!root.ok() || ::fstat(root.get(), &status) != 0) return cannot_read_state(errno, state.root);
  if (status.st_dev == state.root_dev && status.st_ino == state.root_ino) return root;
  Error error = cannot_read_state(ESTALE, state.root);
  error.message += ": it is not the recorded directory";
  error.hint = "run this command in the node's mount namespace";
  return error;
}

Result<Presence> look_below(const UniqueFd& root, const RuntimeState& state, const std::string& id) {
  struct stat status {};
  if (::fstatat(root.get(), id.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return Presence::kPresent;
  return errno == ENOENT ? Result<Presence>(Presence::kAbsent) : cannot_read_state(errno, state.root + "/" + id);
}

}  // namespace

Result<RuntimeState> identify_runtime_state(RuntimeState::Kind kind, const std::string& root) {
  struct stat status {};
  if (::stat(root.c_str(), &status) != 0) return cannot_read_state(errno, root);
  return RuntimeState{kind, root, status.st_dev, status.st_ino};
}

Result<Presence> read_presence(const RuntimeState& state, const std::string& id, const std::string& bundle) {
  const UniqueFd root = TRY(open_root(state));
  const std::string name = id + (state.kind == RuntimeState::Kind::kRunc ? "/state.json" : "/status");
  const std::string path = state.root + "/" + name;
  const UniqueFd file = base::open_to_read(root.get(), name.c_str(), O_NOFOLLOW);
  if (!file.ok() && errno != ENOENT) return cannot_read_state(errno, path);
  if (file.ok()) {
    const auto text = read_text_fd(file.get(), kStateLimits.bytes, -1, "the file");
    auto seen = text ? read_presence_of_text(*text, state.kind, bundle) : text.error();
    const std::string context = fmt::format("cannot read the runtime's state `{}`", base::printable(path));
    return seen ? seen : base::wrap(std::move(seen).error(), context);
  }
  // Both runtimes make the directory ROOT/ID before anything else of the container (runc:
  // libcontainer/factory_linux.go, Create(); crun: libcrun_container_create()), and the state file later. So a
  // directory without a file does not show that the container is gone: another `create` of this id may be running. With
  // crun it may also run in a child process that outlives its parent.
  if (TRY(look_below(root, state, id)) == Presence::kAbsent) return Presence::kAbsent;
  Error error = cannot_read_state(ENOENT, path);
  error.hint = fmt::format("if its `create` was killed, run `{} --root {} delete --force {}`",
                           to_word(kRuntimeKinds, state.kind), base::printable(state.root), base::printable(id));
  return error;
}

Result<bool> is_same_directory(const std::string& left, const std::string& right) {
  if (left == right) return true;
  struct stat one {};
  struct stat other {};
  for (const auto& [path, status] : {std::pair(&left, &one), std::pair(&right, &other)}) {
    if (::stat(path->c_str(), status) != 0)
      return sys_error(errno, "cannot read the directory `{}`", base::printable(*path));
  }
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

std::optional<std::string> bundle_of_state(RuntimeState::Kind kind, std::string_view text) {
  JsonFault fault;
  const auto document = try_parse_json(text, kStateLimits, fault);
  return document ? bundle_of_document(kind, *document) : std::nullopt;
}

}  // namespace hook
