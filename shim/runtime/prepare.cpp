#include "shim/runtime/prepare.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "base/json/json.hpp"
#include "base/json/tree.hpp"
#include "base/text.hpp"
#include "hook/admin/metrics/count.hpp"
#include "hook/apply/edit_spec.hpp"
#include "hook/apply/memlock.hpp"
#include "hook/grant/grant.hpp"
#include "hook/grant/refused.hpp"
#include "shim/runtime/exec_grant.hpp"
#include "shim/runtime/features.hpp"
#include "shim/runtime/hooks.hpp"
#include "shim/runtime/seccomp.hpp"
#include "shim/runtime/spec_file.hpp"
#include "shim/runtime/state_directory.hpp"

namespace shim {
namespace {

constexpr const char* kConfigName = "config.json";
constexpr const char* kStage = "create";

// crun resolves a relative --config against its own working directory, except the name config.json, which is the
// bundle's file. runc first resolves a relative --config against the bundle.
Result<std::optional<SpecFile>> open_config(const Invocation& invocation) {
  const std::string& path = invocation.config_file;
  const std::string bundle = invocation.bundle.empty() ? "." : invocation.bundle;
  if (path.empty() || path == kConfigName) return SpecFile::open(bundle, kConfigName);
  if (!path.starts_with('/') && invocation.dialect == Dialect::kRunc) {
    auto file = TRY(SpecFile::open(bundle + "/" + path));
    if (file) return file;
  }
  return SpecFile::open(path);
}

const base::JsonNode* profile_in(const base::JsonNode& config) {
  const base::JsonNode* linux_part = config.find("linux");
  return linux_part ? linux_part->find("seccomp") : nullptr;
}

// Keeps an object until execve(2), which frees its memory and closes its descriptors at once. A destructor would visit
// each value of a document, and close each descriptor of a ledger.
template <typename Object>
void keep_until_exec(std::shared_ptr<Object> object) {
  static auto* const kept = new std::shared_ptr<Object>();
  *kept = std::move(object);
}

// The log and the open ledger of a start.
struct KeptCall {
  KeptCall(const hook::NodeSettings& node, base::Log to) : log(std::move(to)), call{node, log} {}
  base::Log log;
  hook::Call call;
};

hook::Caller caller_of(const Settings& settings, const Invocation& invocation) {
  // Podman is the default engine because annotations of its containers are trusted least: images can set them.
  return {settings.engine.value_or(hook::Engine::kPodman), settings.engine.has_value(), absolute_bundle(invocation),
          invocation.root};
}

class Start {
 public:
  Start(const Invocation& invocation, const Settings& settings, const RuntimeLog& log, const SpecFile& file,
        const base::ProcessIdentity& self)
      : invocation_(invocation), settings_(settings), log_(log), file_(file), self_(self) {
    // --config can name a file of another directory.
    const bool is_of_bundle = invocation.config_file.empty() || invocation.config_file == kConfigName;
    auto original = is_of_bundle ? read_original(file) : read_original(invocation_.bundle, file.version());
    if (original) original_ = *std::move(original);
  }

  Result<void> run() {
    tree_ = TRY(hook::parse_container_config(text()));
    hook::ContainerRequest requesting = TRY(understand());
    // Without settings_.admin the configuration could not be read, and shim::run() has already logged a warning.
    for (const std::string& warning : settings_.admin ? requesting.warnings : std::vector<std::string>())
      log_.warning(warning);
    if (!requesting.note.text.empty()) log_.syslog().note(requesting.note);
    if (!requesting.request) return start_without_hcas(requesting);
    make_document(requesting);
    const auto unknown = TRY(about(FailureReason::kNetwork, check_moved_netdevs(requesting.spec, invocation_.runtime)));
    if (!unknown.empty()) log_.warning(unknown);
    const HookCommand command = TRY(hook_command(settings_, requesting.caller.engine));
    auto state = hook_need(requesting, command, invocation_.dialect) == HookNeed::kNone ? runtime_state_of(invocation_)
                                                                                        : std::nullopt;
    // With a runtime state, the ledger finds in the runtime's own files whether the container lives. Without a state,
    // the createRuntime hook must report the container's first process to the ledger.
    return book(requesting, std::move(state), &command);
  }

  // Handles `restore`. config.json still has the devices of the container that was checkpointed, even if the engine
  // wrote the file again, as Podman does (libpod/container_internal_linux.go, restore()).
  Result<void> run_again() {
    tree_ = TRY(hook::parse_container_config(file_.text()));
    hook::ContainerRequest requesting = TRY(understand());
    if (!requesting.request) return {};
    make_document(requesting);
    const HookCommand command = TRY(hook_command(settings_, requesting.caller.engine));
    // If config.json has the poststop hook of rdma-hook, the container had HCAs when it was checkpointed.
    if (!has_poststop_hook(command, *requesting.document)) return {};
    if (invocation_.dialect == Dialect::kCrun) return run_again_without_hook(requesting);
    return book(requesting, {}, &command);
  }

 private:
  Result<hook::ContainerRequest> understand() const {
    return hook::understand(tree_.tree.root(), settings_.admin, caller_of(settings_, invocation_), settings_.node.root);
  }

  // Makes the document that this call edits. The profile of system calls is the largest part of most texts, and usually
  // stays as it is.
  void make_document(hook::ContainerRequest& requesting) const {
    const base::JsonNode& config = tree_.tree.root();
    const base::JsonNode* const kept = settings_.allow_system_calls ? nullptr : profile_in(config);
    requesting.document = std::make_shared<Json>(base::to_document(config, kept));
    keep_until_exec(requesting.document);
  }

  // Checks the profile of the container's system calls, and with settings_.allow_system_calls edits it in `config`.
  Result<void> check_profile(Json& config) const {
    const base::JsonNode* const profile = profile_in(tree_.tree.root());
    if (!profile) return {};
    const auto refused = refused_calls(*profile);
    if (refused.empty()) return {};
    if (settings_.allow_system_calls) return allow_calls(refused, config);
    log_.warning(seccomp_warning(refused));
    return {};
  }

  // Books HCAs, and writes them and the hooks of `command` into config.json; nullptr: config.json stays.
  Result<void> book(const hook::ContainerRequest& requesting, std::optional<hook::RuntimeState> state,
                    const HookCommand* command) const {
    const auto kept = std::make_shared<KeptCall>(settings_.node, log_.syslog());
    keep_until_exec(kept);
    hook::Call& call = kept->call;
    call.container = invocation_.id;
    call.bundle = absolute_bundle(invocation_);
    call.state = std::move(state);
    auto granted = grant(requesting, command, call);
    // Without a runtime state, the createRuntime hook will count this grant in the metrics.
    if (call.state) hook::count_stage(kStage, call, granted);
    return granted;
  }

  Result<void> grant(const hook::ContainerRequest& requesting, const HookCommand* command, hook::Call& call) const {
    Json& config = *requesting.document;
    const auto booking = TRY(hook::grant_in_spec(requesting, self_, call));
    TRY_VOID(about(FailureReason::kInternal, hook::edit_spec(booking->adjustment, config, hook::memlock_of(0))));
    if (command) TRY_VOID(about(FailureReason::kState, write_granted(booking->plan, *command, call, config)));
    call.timing.step("edit");
    return booking->finish();
  }

  // Books HCAs for a restored container without the createRuntime hook: crun runs no hooks at restore
  // (src/libcrun/container.c, libcrun_container_restore(); 1.29). runc runs hooks (libcontainer/criu_linux.go,
  // criuNotifications()).
  Result<void> run_again_without_hook(const hook::ContainerRequest& requesting) const {
    if (!requesting.spec.has_own_pidns) {
      return Error{
          "cannot restore the container: it has no PID namespace of its own, and crun does not report the end of its "
          "last process",
          0, "create a new container with its own PID namespace"};
    }
    // runtime_state_of() creates crun's root, which is missing if this is the first container since the node started.
    auto state = runtime_state_of(invocation_, true);
    if (!state) {
      return Error{
          "cannot restore the container: crun runs no hooks at restore, and the path of its state directory is unknown",
          0, "pass crun an absolute `--root`, or create a new container"};
    }
    if (hook::may_get_rails(requesting))
      log_.warning("the container is restored without rails: crun runs no hooks at restore");
    return book(requesting, std::move(state), nullptr);
  }

  // Returns the text that the engine wrote to config.json, without an edit that rdma-runtime made at an earlier start.
  const std::string& text() const { return original_ ? *original_ : file_.text(); }

  // Adds only the note for the pod's author. An error must not stop a container that requests nothing.
  Result<void> start_without_hcas(const hook::ContainerRequest& requesting) const {
    const hook::Plan plan = hook::plan_without_hcas(requesting.pod_note);
    if (plan.env.empty()) return keep_original();
    Json config = base::to_document(tree_.tree.root());
    auto done = hook::edit_spec(hook::adjust(plan, requesting.spec), config);
    if (done) done = write(plan, config);
    if (done) return {};
    log_.warning(fmt::format("RDMA_INIT_NOTE is not set: {}", done.error().message));
    return keep_original();
  }

  Result<void> keep_original() const {
    if (original_) {
      auto restored = TRY(file_.rewrite(*original_, self_));
      TRY_VOID(restored.put_in_place());
    }
    remove_exec_grant(invocation_.bundle);  // the exec grant of an earlier container in this bundle
    return {};
  }

  // Adds the hooks to config, which already has the devices and limits, and writes it. Without HCAs, only variables are
  // written, and a restored container has them already.
  Result<void> write_granted(const hook::Plan& plan, const HookCommand& command, const hook::Call& call,
                             Json& config) const {
    if (plan.hcas.empty() && invocation_.action == Action::kRestore) return {};
    if (plan.hcas.empty()) return plan.env.empty() ? keep_original() : write(plan, config);
    TRY_VOID(add_hooks(command, call.state ? HookStages::kPoststop : HookStages::kBoth, config));
    TRY_VOID(check_profile(config));
    return write(plan, config);
  }

  // Replaces config.json, and leaves the exec grant that names the new file.
  Result<void> write(const hook::Plan& plan, const Json& config) const {
    auto edited = TRY(file_.rewrite(base::to_text(config), self_));
    // The exec grant is written before config.json is replaced, and names the version of the new file. If this process
    // is killed in between, config.json is still the previous file, and the exec grant has no effect, because it names
    // another version.
    const ExecGrant exec_grant{invocation_.id, edited.version(), process_grant(plan)};
    TRY_VOID(write_exec_grant(invocation_.bundle, exec_grant, text(), self_, original_ ? nullptr : &file_));
    return edited.put_in_place();
  }

  const Invocation& invocation_;
  const Settings& settings_;
  const RuntimeLog& log_;
  const SpecFile& file_;
  const base::ProcessIdentity& self_;
  std::optional<std::string> original_;
  base::OwnedTree tree_;  // the text of config.json as this call understands it
};

Result<void> edit_exec(const Invocation& invocation, const base::ProcessIdentity& self) {
  // `exec` names no bundle, so the bundle comes from the runtime's state.
  const auto bundle = find_bundle(invocation);
  if (!bundle) return {};
  const auto exec_grant = TRY(read_exec_grant(*bundle));
  // An earlier container may have left an exec grant in this bundle. The exec grant counts only for the container id
  // that it names.
  if (!exec_grant || exec_grant->id != invocation.id) return {};
  const auto file = TRY(SpecFile::open(invocation.process_file));
  if (!file) return {};
  Json process = TRY(base::parse_json(file->text(), "the file of `--process`"));
  if (!TRY(edit_process(exec_grant->process, process, hook::memlock_of(0)))) return {};
  auto edited = TRY(file->rewrite(base::to_text(process), self));
  return edited.put_in_place();
}

}  // namespace

Result<void> prepare_new(const Invocation& invocation, const Settings& settings, const base::ProcessIdentity& self,
                         const RuntimeLog& log) {
  const auto file = TRY(open_config(invocation));
  if (!file) return {};
  Start start(invocation, settings, log, *file, self);
  auto done = invocation.action == Action::kRestore ? start.run_again() : start.run();
  if (!done)
    hook::note_refused(settings.node.ledger, kStage,
                       hook::refused_container(invocation.id, file->text(), caller_of(settings, invocation)),
                       done.error());
  return done;
}

void prepare_exec(const Invocation& invocation, const base::ProcessIdentity& self, const RuntimeLog& log) {
  if (invocation.process_file.empty()) return;
  const auto edited = edit_exec(invocation, self);
  if (edited) return;
  log.warning(fmt::format("exec in `{}` runs without CAP_IPC_LOCK and RLIMIT_MEMLOCK of its container: {}",
                          base::printable(invocation.id), edited.error().message));
}

}  // namespace shim
