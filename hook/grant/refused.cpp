#include "hook/grant/refused.hpp"

#include <ctime>
#include <utility>

#include "base/failure.hpp"
#include "hook/grant/container_request.hpp"

namespace hook {

RefusedContainer refused_container(std::string id, const ContainerSpec& spec, Engine engine) {
  PodIdentity pod = pod_identity(spec, engine);
  return {std::move(id), std::move(pod.pod_namespace), std::move(pod.pod_name), std::move(pod.container_name)};
}

RefusedContainer refused_container(std::string id, const std::string& config_text, const Caller& caller) {
  const auto config = parse_container_config(config_text);
  const auto spec = config ? read_container_spec(config->tree.root()) : Result<ContainerSpec>(config.error());
  if (!spec) return {std::move(id)};
  return refused_container(std::move(id), *spec, recognise(caller, spec->cgroups_path).engine);
}

void note_refused(const std::string& ledger_directory, std::string_view stage, RefusedContainer container,
                  const Error& error) {
  note_refusal(ledger_directory, {.time = static_cast<std::uint64_t>(std::time(nullptr)),
                                  .stage = std::string(stage),
                                  .container = std::move(container),
                                  .reason = std::string(to_string(failure_reason(error))),
                                  .message = error.message,
                                  .remedy = base::remedy_of(error)});
}

}  // namespace hook
