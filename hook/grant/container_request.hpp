// A container as its engine describes it, the HCAs that it requests, and the owner of its grant.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json_fwd.hpp"
#include "base/json/tree.hpp"
#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/oci/caller.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/request/request.hpp"

namespace hook {

struct ContainerRequest {
  // The container's config.json, if the caller edits it (rdma-runtime); otherwise null.
  std::shared_ptr<Json> document = {};
  ContainerSpec spec = {};
  Config admin = {};
  Recognised caller = {};                  // the engine, which determines whether annotations are trusted
  std::optional<Request> request = {};     // nullopt: nothing is requested, or the request is not allowed
  std::vector<std::string> warnings = {};  // for example, that an annotation is ignored
  Note note = {};                          // why the container gets no HCA (ParsedRequest::note)
  std::string pod_note = {};               // value of RDMA_INIT_NOTE (ParsedRequest::pod_note)
};

// Describes what a worker process gets of a request that another process has understood, for records
// (base/packed_record.hpp). The worker has the configuration and the engine itself, and the other process has logged
// warnings and note.
void describe(auto& members, ContainerRequest& requesting) {
  members("spec", requesting.spec);
  members("request", requesting.request);
  members("pod_note", requesting.pod_note);
}

// Reads the request of a container, from its config.json.
// admin: the administrator's configuration. A configuration that cannot be read is an error for a container that
// requests HCAs, and a warning for one that does not. root: prefix of the /sys that shows which dynamic device numbers
// in linux.devices are uverbs nodes; nullopt: the numbers are not checked.
// Errors: the configuration or /sys cannot be read; the request is refused.
Result<ContainerRequest> understand(const std::string& config_text, const Result<Config>& admin, const Caller& caller,
                                    const std::optional<std::string>& root = "");
Result<ContainerRequest> understand(const base::JsonNode& config, const Result<Config>& admin, const Caller& caller,
                                    const std::optional<std::string>& root = "");
// Parses a container's config.json; the text must outlive the tree. Errors: those of parse_json().
Result<base::OwnedTree> parse_container_config(std::string_view config_text);
Result<ContainerRequest> understand_spec(ContainerSpec spec, const Result<Config>& admin, Recognised caller,
                                         const std::optional<std::string>& root = "");

// Returns true if the container may get netdevs. The answer does not depend on the HCAs that it will get, so any pool's
// network counts. Pure.
bool may_get_rails(const ContainerRequest& requesting);
// Returns true if only createRuntime can mount the view of sysfs: the configuration enables the view, and the container
// has a user namespace and may write to mounts. Pure.
bool needs_own_view(const ContainerRequest& requesting);

// The owner and the user of a new grant.
struct Grantee {
  Owner owner;
  GrantUser user;
  std::string token = {};  // value of the annotation by which createRuntime finds the grant; empty: none is needed
};

// Returns owner and user of a new grant. user: all members but the key, which this function sets. place: the parameter
// of container_owner(); nullopt: the container does not exist yet, and the user is a new token until createRuntime.
// Errors: those of owner_of(); no token can be made.
Result<Grantee> grantee_of(const ContainerSpec& spec, GrantUser user, const std::optional<std::string>& place);

// Returns the pod as owner if the container joins a network namespace by path that is not the node's own. Returns
// `otherwise` in any other case, also if the path does not exist.
// Errors: the path cannot be read.
Result<Owner> owner_of(const ContainerSpec& spec, Owner otherwise);
// Returns true if the container has no network namespace of its own, or joins the node's by path. Errors: those of
// owner_of().
Result<bool> uses_host_network(const ContainerSpec& spec);

}  // namespace hook
