// Detects the engine that made a container, from facts that neither an image nor a pod's author can write: the
// administrator's setting, the place of the bundle, the name of the container's cgroup, and the root that the engine
// passes to its runtime. Annotations are no evidence, because the author of an image (with Podman) or of a pod can
// write annotations too.
//
//   bundle                                     linux.cgroupsPath                   engine
//   ROOT/DRIVER-containers/ID/userdata         PARENT/crio-ID or SLICE:crio:ID     CRI-O (1.37.0)
//   ROOT/DRIVER-containers/ID/userdata         another (libpod-ID)                 Podman (4.3.1)
//   STATE/io.containerd.runtime.*/k8s.io/ID    any                                 containerd, for Kubernetes
//   STATE/io.containerd.runtime.*/moby/ID      any                                 Docker
#pragma once

#include <string>
#include <string_view>

#include "hook/oci/engine.hpp"

namespace hook {

struct Caller {
  Engine engine = Engine::kPodman;
  bool is_named = false;          // false: the default, because neither arguments nor configuration name it
  std::string bundle = {};        // absolute path of the bundle
  std::string runtime_root = {};  // the value of --root; empty: unknown
};

struct Recognised {
  Engine engine = Engine::kPodman;
  std::string by = {};      // the evidence, for people
  bool is_doubted = false;  // two facts contradict each other, so `engine` is Podman, with untrusted annotations
};

// Detects the engine. A named podman always counts. Any other named engine counts unless the bundle belongs to another
// engine: several engines read hooks.d and CDI files, so the named engine may not be the caller. cgroups_path:
// linux.cgroupsPath. Pure.
Recognised recognise(const Caller& caller, std::string_view cgroups_path);

}  // namespace hook
