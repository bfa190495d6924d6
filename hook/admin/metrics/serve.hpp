// `rdma-hook metrics --listen`: two processes, because only root can read the ledger and root must not serve HTTP to
// untrusted clients. The serving process sends to the reading process, which is root, one byte per request for the
// metrics text, and no data of clients. The serving process has its own user (become_serving_user()), no capabilities,
// its two sockets, and about a dozen system calls. Any other call kills it.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace hook {

// Address of `rdma-hook metrics --listen`.

inline constexpr const char* kMetricsSocket = "/run/rdma-init/metrics.sock";

struct ListenAddress {
  std::string path = {};  // absolute path of a unix socket; empty: it is a TCP address
  sockaddr_storage address = {};
  socklen_t length = 0;
  std::string text = {};  // the address as the user wrote it
};

// Parses "unix:PATH", "unix:" for kMetricsSocket, "192.0.2.1:9100" or "[2001:db8::1]:9100". Host names are not
// resolved. Errors: EINVAL.
Result<ListenAddress> parse_listen_address(std::string_view text);

// Opens a non-blocking listening socket. A unix socket gets mode 0660, its missing directory is created with mode 0755,
// and a socket on which no process listens is replaced. Errors: EADDRINUSE, also if a process listens on the unix
// socket; the path exists and is not a socket.
Result<base::UniqueFd> listen_at(const ListenAddress& address);

// User of the serving process.

// User and group without an entry in /etc/passwd. 65534 is used by NFS, user namespaces and other programs, 65532 by
// many images. systemd leaves 65520 to 65533 unused (UIDS-GIDS, v257), Debian reserves them (policy 9.2.2), and
// ranges of subuid(5) begin above 65535.
inline constexpr id_t kServingUser = 65526;

// Returns the name that has this user or group ID in the text of /etc/passwd or /etc/group; nullopt: none. Pure.
std::optional<std::string> name_of_id(std::string_view text, id_t id);

// Changes a process of root to user and group kServingUser permanently, without supplementary groups. Does nothing in a
// process of another user. Errors: the number has a name in /etc/passwd or /etc/group; one of these files cannot be
// read; CAP_SETUID or CAP_SETGID is missing.
Result<void> become_serving_user();

// Serves the text that read() returns, until SIGTERM or SIGINT. Call after isolate(). Started by another user than
// root, it serves as that user. Errors: those of listen_at() and become_serving_user(); the serving process has ended.
using ReadMetrics = std::function<Result<std::string>()>;
Result<void> serve_metrics(const ListenAddress& address, const ReadMetrics& read, const Log& log);

}  // namespace hook
