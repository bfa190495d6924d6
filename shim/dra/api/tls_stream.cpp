#include "shim/dra/api/tls_stream.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/text.hpp"

namespace shim {
namespace {

constexpr std::size_t kPiece = 16384;  // bytes of a read: the largest TLS record
constexpr int kLongestWaitMs = 60000;

template <auto function>
struct Release {
  void operator()(auto* object) const { function(object); }
};
using Context = std::unique_ptr<SSL_CTX, Release<SSL_CTX_free>>;
using Certificate = std::unique_ptr<X509, Release<X509_free>>;
using Memory = std::unique_ptr<BIO, Release<BIO_free>>;

// Returns the oldest error of OpenSSL, and forgets all.
std::string ssl_cause() {
  const unsigned long code = ERR_get_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason ? reason : "unknown error of TLS";
}

Result<void> add_certificates(SSL_CTX* context, const std::string& pem) {
  const Memory memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  unsigned count = 0;
  for (; memory; ++count) {
    const Certificate certificate(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
    if (!certificate) break;
    X509_STORE_add_cert(store, certificate.get());
  }
  ERR_clear_error();  // the end of the text counts as an error
  if (count > 0) return {};
  return Error{"ca.crt has no certificate", EINVAL, "mount the service account's token and CA into the pod"};
}

Result<Context> make_context(const std::string& ca) {
  Context context(SSL_CTX_new(TLS_client_method()));
  if (!context) return make_error("cannot start TLS: {}", ssl_cause());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  TRY_VOID(add_certificates(context.get(), ca));
  return context;
}

Result<void> wait_for(int fd, short events, base::Deadline deadline) {
  for (;;) {
    pollfd wait{fd, events, 0};
    const int left = base::ms_until(deadline, kLongestWaitMs);
    const int ready = ::poll(&wait, 1, left);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return sys_error(errno, "cannot wait");
    if (left == 0) return Error{"no answer in time", ETIMEDOUT};
  }
}

// The kernel notices a server that is gone, so that a watch at rest needs no timer.
void set_keepalive(int fd) {
  constexpr std::array<std::pair<int, int>, 3> kTimes{{{TCP_KEEPIDLE, 30}, {TCP_KEEPINTVL, 10}, {TCP_KEEPCNT, 3}}};
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  for (const auto& [name, value] : kTimes)
    ::setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value);
}

Result<base::UniqueFd> connect_socket(const ApiAddress& to, base::Deadline deadline) {
  base::UniqueFd fd(::socket(to.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return sys_error(errno, "cannot make a socket");
  set_keepalive(fd.get());
  int code = 0;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.address), to.length) != 0) code = errno;
  if (code == EINPROGRESS) {
    TRY_VOID(wait_for(fd.get(), POLLOUT, deadline));
    socklen_t size = sizeof code;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &code, &size) != 0) code = errno;
  }
  if (code != 0) return sys_error(code, "cannot connect");
  return fd;
}

}  // namespace

struct TlsStream::Session {
  ~Session() { SSL_free(ssl); }
  SSL* ssl = nullptr;
  BIO* in = nullptr;   // bytes of the server; `ssl` owns both
  BIO* out = nullptr;  // bytes for the server
};

void TlsStream::Free::operator()(Session* session) const {
  delete session;
}

Result<ApiAddress> parse_api_address(std::string_view ip, std::string_view port) {
  ApiAddress parsed;
  const auto number = base::parse_number<std::uint16_t>(port);
  parsed.ip = ip;
  auto& four = reinterpret_cast<sockaddr_in&>(parsed.address);
  auto& six = reinterpret_cast<sockaddr_in6&>(parsed.address);
  const bool is_six = ip.find(':') != std::string_view::npos;
  const bool is_ip = ::inet_pton(is_six ? AF_INET6 : AF_INET, parsed.ip.c_str(),
                                 is_six ? static_cast<void*>(&six.sin6_addr) : static_cast<void*>(&four.sin_addr)) == 1;
  if (!is_ip || !number || *number == 0)
    return Error{fmt::format("`{}` with port `{}` is not the address of an API server", base::printable(ip),
                             base::printable(port)),
                 EINVAL, "pass --api with an IP address and a port, such as 10.96.0.1:443"};
  parsed.address.ss_family = is_six ? AF_INET6 : AF_INET;
  (is_six ? six.sin6_port : four.sin_port) = htons(*number);
  parsed.length = is_six ? sizeof six : sizeof four;
  parsed.text = is_six ? fmt::format("[{}]:{}", ip, port) : fmt::format("{}:{}", ip, port);
  return parsed;
}

Result<void> TlsStream::load() {
  // Without this setting OpenSSL would read openssl.cnf of the machine.
  if (OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_LOAD_SSL_STRINGS, nullptr) != 1)
    return make_error("cannot start TLS: {}", ssl_cause());
  const Context context(SSL_CTX_new(TLS_client_method()));
  unsigned char random = 0;
  if (!context || RAND_bytes(&random, 1) != 1) return make_error("cannot start TLS: {}", ssl_cause());
  return {};
}

Result<TlsStream> TlsStream::connect(const ApiAddress& address, const std::string& ca, base::Deadline deadline) {
  const Context context = TRY(make_context(ca));
  TlsStream stream;
  stream.socket_ = TRY(connect_socket(address, deadline));
  stream.session_.reset(new Session{});
  Session& session = *stream.session_;
  session.ssl = SSL_new(context.get());
  session.in = BIO_new(BIO_s_mem());
  session.out = BIO_new(BIO_s_mem());
  if (!session.ssl || !session.in || !session.out) return make_error("cannot start TLS: {}", ssl_cause());
  SSL_set_bio(session.ssl, session.in, session.out);
  SSL_set_connect_state(session.ssl);
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session.ssl), address.ip.c_str()) != 1)
    return make_error("cannot verify the address {}: {}", address.ip, ssl_cause());
  TRY_VOID(stream.shake_hands(deadline));
  return stream;
}

Result<void> TlsStream::shake_hands(base::Deadline deadline) {
  for (;;) {
    const int done = SSL_do_handshake(session_->ssl);
    const int error = SSL_get_error(session_->ssl, done);
    TRY_VOID(flush(deadline));
    if (done == 1) return {};
    if (error != SSL_ERROR_WANT_READ) break;
    if (!TRY(fill(deadline))) return Error{"the server closed the connection before TLS began", ECONNRESET};
  }
  const long verified = SSL_get_verify_result(session_->ssl);
  if (verified == X509_V_OK) return make_error("TLS failed: {}", ssl_cause());
  ERR_clear_error();
  return Error{fmt::format("the server's certificate is refused: {}", X509_verify_cert_error_string(verified)), EACCES,
               "compare ca.crt of the service account with the certificate of the API server, and the node's clock"};
}

// Sends the bytes that OpenSSL has for the server.
Result<void> TlsStream::flush(base::Deadline deadline) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(session_->out, &data);
  for (std::string_view rest(data, static_cast<std::size_t>(size)); !rest.empty();) {
    const ssize_t count = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      TRY_VOID(wait_for(socket_.get(), POLLOUT, deadline));
    } else if (errno != EINTR) {
      return sys_error(errno, "cannot send");
    }
  }
  static_cast<void>(BIO_reset(session_->out));
  return {};
}

// Gives OpenSSL bytes of the server. Returns false if the server has closed the connection.
Result<bool> TlsStream::fill(base::Deadline deadline) {
  std::array<char, kPiece> piece;
  for (;;) {
    const ssize_t count = ::recv(socket_.get(), piece.data(), piece.size(), 0);
    if (count > 0) return BIO_write(session_->in, piece.data(), static_cast<int>(count)) == count;
    if (count == 0) return false;
    if (errno == EAGAIN) {
      TRY_VOID(wait_for(socket_.get(), POLLIN, deadline));
    } else if (errno != EINTR) {
      return sys_error(errno, "cannot receive");
    }
  }
}

Result<void> TlsStream::send(std::string_view bytes, base::Deadline deadline) {
  while (!bytes.empty()) {
    const auto size = static_cast<int>(std::min(bytes.size(), kPiece));
    // The server may change its keys, and OpenSSL then first needs bytes of the server.
    const int count = SSL_write(session_->ssl, bytes.data(), size);
    const int error = SSL_get_error(session_->ssl, count);
    TRY_VOID(flush(deadline));
    if (count > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (error != SSL_ERROR_WANT_READ) {
      return make_error("TLS failed: {}", ssl_cause());
    } else if (!TRY(fill(deadline))) {
      return Error{"the server closed the connection", ECONNRESET};
    }
  }
  return {};
}

Result<std::string> TlsStream::receive(base::Deadline deadline) {
  std::string text(kPiece, '\0');
  for (bool is_open = true;;) {
    const int count = SSL_read(session_->ssl, text.data(), static_cast<int>(text.size()));
    const int error = SSL_get_error(session_->ssl, count);
    TRY_VOID(flush(deadline));
    if (count > 0) {
      text.resize(static_cast<std::size_t>(count));
      return text;
    }
    if (error == SSL_ERROR_ZERO_RETURN) return std::string();
    if (error != SSL_ERROR_WANT_READ) return make_error("TLS failed: {}", ssl_cause());
    if (!is_open) return Error{"the server closed the connection", ECONNRESET};
    is_open = TRY(fill(deadline));
  }
}

}  // namespace shim
