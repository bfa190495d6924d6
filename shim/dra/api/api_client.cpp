#include "shim/dra/api/api_client.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/json/json.hpp"
#include "base/text.hpp"

namespace shim {
namespace {

using base::Deadline;

// Longest body, and longest line of a watch. The API server stores objects of at most 1.5 MiB, and the slices of a node
// with 500 HCAs have 1 MiB.
constexpr std::size_t kMostBody = std::size_t{4} << 20;
constexpr std::chrono::seconds kFreshToken{60};
// The beginning of each message of the policy rdma-init-dra (config/kubernetes/components/dra/policy.yaml).
constexpr std::string_view kPolicyText = "rdma-dra writes only";

// Returns a text of the server for a message. The characters that mark a command or remedy in messages of this program
// are replaced.
std::string server_text(std::string_view text) {
  constexpr std::size_t kLongest = 512;
  std::string line = base::one_line(text.substr(0, kLongest));
  std::ranges::replace(line, '`', '\'');
  std::ranges::replace(line, ';', ',');
  return line;
}

// Receives bytes of an answer. receive() waits only while no bytes have come, so a server that sends without end would
// never exceed its deadline.
Result<std::string> receive_part(TlsStream& stream, Deadline deadline) {
  if (base::ms_until(deadline, 1) == 0) return Error{"the answer does not end in time", ETIMEDOUT};
  return stream.receive(deadline);
}

// Reads until the head of a final answer has come.
Result<void> read_head(TlsStream& stream, HttpReader& reader, Deadline deadline) {
  for (;;) {
    if (reader.is_complete() && reader.head()->status < http::kOk) TRY_VOID(reader.next());
    if (reader.head() && reader.head()->status >= http::kOk) return {};
    if (reader.is_complete()) continue;
    const std::string bytes = TRY(receive_part(stream, deadline));
    if (bytes.empty()) return Error{"the API server closed the connection before its answer", ECONNRESET};
    TRY_VOID(reader.add(bytes));
  }
}

Result<ApiAnswer> read_answer(TlsStream& stream, HttpReader& reader, Deadline deadline) {
  TRY_VOID(read_head(stream, reader, deadline));
  ApiAnswer answer{reader.head()->status, reader.head()->retry_after, {}};
  while (!reader.is_complete()) {
    const std::string bytes = TRY(receive_part(stream, deadline));
    if (bytes.empty()) {
      TRY_VOID(reader.end());
    } else {
      TRY_VOID(reader.add(bytes));
    }
    answer.body += reader.take_body();
    if (answer.body.size() > kMostBody)
      return Error{fmt::format("the answer has more than {} bytes", kMostBody), EFBIG};
  }
  answer.body += reader.take_body();
  return answer;
}

}  // namespace

Error error_of_answer(const ApiAnswer& answer, const std::string& what, std::string_view missing) {
  const auto status = base::parse_json(answer.body, "the answer", {.bytes = std::size_t{64} << 10});
  const auto message = status ? base::text_at(*status, "message") : Result<std::string>(status.error());
  Error error = make_error("{}: the API server answers {}: {}", what, answer.status,
                           message ? server_text(*message) : "no reason");
  // A policy refuses with 422, or with 403 if it states so.
  if (message && message->find(kPolicyText) != std::string::npos) {
    error.hint =
        "the token must be bound to a pod of this node: apply the component `dra` of config/kubernetes or the chart "
        "again";
  } else if (answer.status == http::kUnauthorized || answer.status == http::kForbidden) {
    error.hint =
        "apply the component `dra` of config/kubernetes, or set the chart's value `dra`: both have the role of "
        "rdma-dra's service account";
  } else if (answer.status == http::kNotFound) {
    error.hint = missing;
  }
  return error;
}

ApiWatch::ApiWatch(TlsStream stream, HttpReader reader)
    : stream_(std::move(stream)), reader_(std::move(reader)), lines_(kMostBody) {}

Result<std::optional<std::vector<std::string>>> ApiWatch::read() {
  std::vector<std::string> all;
  for (std::size_t bytes_read = 0;;) {
    if (bytes_read > kMostBody) return Error{"the API server sends more events than this process can read"};
    auto lines = TRY(lines_.add(reader_.take_body()));
    std::ranges::move(lines, std::back_inserter(all));
    const bool has_ended = reader_.is_complete();
    const auto bytes = has_ended ? Result<std::string>(std::string()) : stream_.receive(Deadline());
    if (!bytes && bytes.error().code == ETIMEDOUT) return std::optional(std::move(all));
    if (!bytes) return bytes.error();
    bytes_read += bytes->size();
    if (!bytes->empty()) TRY_VOID(reader_.add(*bytes));
    // The lines before the end are still returned; the next call reports the end.
    if (bytes->empty()) return all.empty() ? std::nullopt : std::optional(std::move(all));
  }
}

Result<void> ApiClient::refresh_credential(bool must) {
  const auto now = std::chrono::steady_clock::now();
  if (!must && read_at_ && now - *read_at_ < kFreshToken) return {};
  ApiCredential read = TRY(read_());
  if (read.ca != credential_.ca) stream_.reset();
  credential_ = std::move(read);
  read_at_ = now;
  return {};
}

std::string ApiClient::head_of(const char* method, const std::string& path, std::size_t body) const {
  return fmt::format(
      "{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: rdma-dra/{}\r\nAccept: application/json\r\n"
      "Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
      method, path, address_.text, RDMA_INIT_VERSION, credential_.token, body);
}

Result<ApiAnswer> ApiClient::exchange(const char* method, const std::string& path, const std::string& body,
                                      Deadline deadline) {
  if (!stream_) stream_ = TRY(TlsStream::connect(address_, credential_.ca, deadline));
  HttpReader reader;
  auto done = stream_->send(head_of(method, path, body.size()) + body, deadline);
  auto answer = done ? read_answer(*stream_, reader, deadline) : Result<ApiAnswer>(done.error());
  if (!answer || reader.head()->closes) stream_.reset();
  return answer;
}

Result<ApiAnswer> ApiClient::request(const char* method, const std::string& path, const std::string& body,
                                     Deadline deadline) {
  TRY_VOID(refresh_credential(false));
  const bool is_old = stream_.has_value();
  auto answer = exchange(method, path, body, deadline);
  // The server may have closed a connection that was at rest. A request that has been sent twice does no harm: each
  // names its object, and the version of an object that it changes.
  const bool may_be_closed = is_old && !answer && answer.error().code != ETIMEDOUT && answer.error().code != EFBIG;
  if (may_be_closed) answer = exchange(method, path, body, deadline);
  if (answer && answer->status == http::kUnauthorized) {
    TRY_VOID(refresh_credential(true));
    answer = exchange(method, path, body, deadline);
  }
  if (!answer) return base::wrap(answer.error(), fmt::format("API server {}", address_.text));
  return answer;
}

Result<ApiClient::Watched> ApiClient::watch(const std::string& path, Deadline deadline) {
  Watched watched;
  for (bool is_again = false;; is_again = true) {
    TRY_VOID(refresh_credential(is_again));
    TlsStream stream = TRY(TlsStream::connect(address_, credential_.ca, deadline));
    TRY_VOID(stream.send(head_of("GET", path, 0), deadline));
    HttpReader reader;
    TRY_VOID(read_head(stream, reader, deadline));
    if (reader.head()->status == http::kOk) {
      watched.watch = ApiWatch(std::move(stream), std::move(reader));
      return watched;
    }
    watched.refusal = TRY(read_answer(stream, reader, deadline));
    if (is_again || watched.refusal.status != http::kUnauthorized) return watched;
  }
}

}  // namespace shim
