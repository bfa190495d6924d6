// The user of the process that serves `rdma-hook metrics --listen`.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "fabric/result.hpp"

namespace hook {

// User and group, without an entry in /etc/passwd. Not 65534, which NFS, user namespaces and other programs use.
// systemd leaves 65520 to 65533 unused (UIDS-GIDS, v257), Debian reserves them (policy 9.2.2), no subordinate range
// begins below 65536, and it is not 65532, the user of many images.
inline constexpr id_t kServingUser = 65526;

// Pure. The name with this number in the text of /etc/passwd or /etc/group; nullopt: there is none.
std::optional<std::string> name_of_id(std::string_view text, id_t id);

// Makes a process of root kServingUser, for good and without groups; another user's process stays as it is. Errors: the
// number has a name in /etc/passwd or /etc/group, one of these cannot be read, CAP_SETUID or CAP_SETGID is missing.
fabric::Result<void> become_serving_user();

}  // namespace hook
