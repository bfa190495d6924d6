// `rdma-hook metrics --listen`. The ledger is root's alone, and whoever speaks HTTP with strangers must not be root:
// two processes. The one that reads the ledger knows of clients only that somebody wants the text, by one byte; the
// other one has nothing but its two sockets: a user of its own (become_serving_user()), no capability, and the dozen
// system calls that serving takes; any other call kills it.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/unique_fd.hpp"
#include "hook/base/log.hpp"
#include "hook/base/result.hpp"

namespace hook {

// Where `rdma-hook metrics --listen` listens.

inline constexpr const char* kMetricsSocket = "/run/rdma-init/metrics.sock";

struct ListenAddress {
  std::string path = {};  // absolute; empty: not a unix socket
  sockaddr_storage address = {};
  socklen_t length = 0;
  std::string text = {};  // as it was written
};

// "unix:PATH", "unix:" for kMetricsSocket, "192.0.2.1:9100", "[2001:db8::1]:9100". Addresses, no names: nothing is
// looked up. Errors (EINVAL).
Result<ListenAddress> parse_listen_address(std::string_view text);

// A listening socket that does not wait. Of a unix socket: mode 0660, in a directory that is made if it is missing,
// mode 0755; what a killed server left there is replaced. Errors: EADDRINUSE, also of a unix socket at which somebody
// listens; what is at the path is no socket.
Result<fabric::UniqueFd> listen_at(const ListenAddress& address);

// The user of the process that serves `rdma-hook metrics --listen`.

// User and group, without an entry in /etc/passwd. Not 65534, which NFS, user namespaces and other programs use.
// systemd leaves 65520 to 65533 unused (UIDS-GIDS, v257), Debian reserves them (policy 9.2.2), no subordinate range
// begins below 65536, and it is not 65532, the user of many images.
inline constexpr id_t kServingUser = 65526;

// Pure. The name with this number in the text of /etc/passwd or /etc/group; nullopt: there is none.
std::optional<std::string> name_of_id(std::string_view text, id_t id);

// Makes a process of root kServingUser, for good and without groups; another user's process stays as it is. Errors: the
// number has a name in /etc/passwd or /etc/group, one of these cannot be read, CAP_SETUID or CAP_SETGID is missing.
Result<void> become_serving_user();

// Serves what read() gives, until SIGTERM or SIGINT. After isolate(). A process that is not root's serves as who it is.
// Errors: that of listen_at(), become_serving_user(); the serving process has ended.
using ReadMetrics = std::function<Result<std::string>()>;
Result<void> serve_metrics(const ListenAddress& address, const ReadMetrics& read, const Log& log);

}  // namespace hook
