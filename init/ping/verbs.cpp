#include "init/ping/verbs.hpp"

#include <dlfcn.h>

namespace init::ping {
namespace {

// Finds a function of the library. Version 1.1 has the present structures; functions without structures are of 1.0
// only.
template <typename Function>
base::Result<void> find(void* library, const char* name, Function& function) {
  void* found = ::dlvsym(library, name, "IBVERBS_1.1");
  if (found == nullptr) found = ::dlvsym(library, name, "IBVERBS_1.0");
  if (found == nullptr) return make_error("libibverbs.so.1 has no function {}", name);
  function = reinterpret_cast<Function>(found);
  return {};
}

}  // namespace

base::Result<Verbs> load_verbs() {
  void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW);
  if (library == nullptr) return make_error("{}", ::dlerror());
  Verbs verbs;
  TRY_VOID(find(library, "ibv_get_device_list", verbs.get_device_list));
  TRY_VOID(find(library, "ibv_free_device_list", verbs.free_device_list));
  TRY_VOID(find(library, "ibv_get_device_name", verbs.get_device_name));
  TRY_VOID(find(library, "ibv_open_device", verbs.open_device));
  TRY_VOID(find(library, "ibv_close_device", verbs.close_device));
  TRY_VOID(find(library, "ibv_query_port", verbs.query_port));
  TRY_VOID(find(library, "ibv_query_gid", verbs.query_gid));
  TRY_VOID(find(library, "ibv_query_pkey", verbs.query_pkey));
  TRY_VOID(find(library, "ibv_alloc_pd", verbs.alloc_pd));
  TRY_VOID(find(library, "ibv_dealloc_pd", verbs.dealloc_pd));
  TRY_VOID(find(library, "ibv_reg_mr", verbs.reg_mr));
  TRY_VOID(find(library, "ibv_dereg_mr", verbs.dereg_mr));
  TRY_VOID(find(library, "ibv_create_comp_channel", verbs.create_comp_channel));
  TRY_VOID(find(library, "ibv_destroy_comp_channel", verbs.destroy_comp_channel));
  TRY_VOID(find(library, "ibv_create_cq", verbs.create_cq));
  TRY_VOID(find(library, "ibv_destroy_cq", verbs.destroy_cq));
  TRY_VOID(find(library, "ibv_get_cq_event", verbs.get_cq_event));
  TRY_VOID(find(library, "ibv_ack_cq_events", verbs.ack_cq_events));
  TRY_VOID(find(library, "ibv_create_qp", verbs.create_qp));
  TRY_VOID(find(library, "ibv_modify_qp", verbs.modify_qp));
  TRY_VOID(find(library, "ibv_destroy_qp", verbs.destroy_qp));
  TRY_VOID(find(library, "ibv_wc_status_str", verbs.wc_status_str));
  return verbs;
}

}  // namespace init::ping
