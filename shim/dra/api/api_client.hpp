// Requests to the API server of Kubernetes, one after the other on one connection, and a watch on a connection of its
// own. Everything that the server sends is untrusted.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/timing.hpp"
#include "shim/dra/api/http_answer.hpp"
#include "shim/dra/api/tls_stream.hpp"

namespace shim {

// Token and CA of a service account.
struct ApiCredential {
  std::string token;
  std::string ca;  // PEM
  friend bool operator==(const ApiCredential&, const ApiCredential&) = default;
};

struct ApiAnswer {
  unsigned status = 0;
  std::optional<unsigned> retry_after;  // seconds
  std::string body;
};
// Returns the error of an answer without success, with the message of the server's Status object as one line, in which
// no mark looks like a command or remedy of this program. what: the subject, "ResourceSlice `NAME`". missing: the
// remedy for 404; empty: none.
Error error_of_answer(const ApiAnswer& answer, const std::string& what, std::string_view missing = {});

// A watch: its answer never ends by itself.
class ApiWatch {
 public:
  // Returns the lines that have come, each a JSON object; waits for none. nullopt: the server has ended the watch.
  // Errors: the connection is broken; a line is too long.
  Result<std::optional<std::vector<std::string>>> read();
  int fd() const { return stream_.fd(); }

 private:
  friend class ApiClient;
  ApiWatch(TlsStream stream, HttpReader reader);

  TlsStream stream_;
  HttpReader reader_;
  LineReader lines_;
};

class ApiClient {
 public:
  // Reads the credential from its files, which Kubernetes replaces before the token ends.
  using ReadCredential = std::function<Result<ApiCredential>()>;
  ApiClient(ApiAddress address, ReadCredential read) : address_(std::move(address)), read_(std::move(read)) {}

  // Sends a request and returns the answer, also one without success. Reads the credential again if it is older than a
  // minute, and once more after 401. A connection that the server has closed meanwhile is opened again.
  // path: with the query. body: JSON, empty: none. Errors: those of TlsStream; no HTTP answer; EFBIG, a body of over 4
  // MiB.
  Result<ApiAnswer> request(const char* method, const std::string& path, const std::string& body,
                            base::Deadline deadline);
  // Begins a watch. Returns the answer of the server if it has no success, or the watch.
  struct Watched {
    std::optional<ApiWatch> watch;
    ApiAnswer refusal;
  };
  Result<Watched> watch(const std::string& path, base::Deadline deadline);

 private:
  Result<void> refresh_credential(bool must);
  std::string head_of(const char* method, const std::string& path, std::size_t body) const;
  Result<ApiAnswer> exchange(const char* method, const std::string& path, const std::string& body,
                             base::Deadline deadline);

  ApiAddress address_;
  ReadCredential read_;
  ApiCredential credential_;
  std::optional<std::chrono::steady_clock::time_point> read_at_;
  std::optional<TlsStream> stream_;
};

}  // namespace shim
