// Who calls: which engine made a container, told from what no image and no author of a pod can write. That is what the
// administrator names, where the engine put the bundle, how it calls the container's control group, and the root that
// it gives its runtime. Annotations tell nothing: those of Podman's images and of pods can say everything.
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
  bool is_named = false;    // by the hook's arguments or the configuration; false: `engine` where nothing tells one
  std::string bundle = {};  // absolute
  std::string runtime_root = {};  // of --root; empty: not known
};

struct Recognised {
  Engine engine = Engine::kPodman;
  std::string by = {};      // for people
  bool is_doubted = false;  // two say different engines; `engine` is Podman, whose annotations nobody vouches for
};

// podman stands; another engine that is named, and runc, is believed unless the bundle is one of an engine that is not
// it: hooks.d and CDI files are read by several. cgroups_path: linux.cgroupsPath. Pure.
Recognised recognise(const Caller& caller, std::string_view cgroups_path);

}  // namespace hook
