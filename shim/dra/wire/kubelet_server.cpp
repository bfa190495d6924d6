#include "shim/dra/wire/kubelet_server.hpp"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "shim/dra/names.hpp"
#include "shim/dra/wire/dra.pb.h"
#include "shim/kubelet/wire/grpc_parts.hpp"

namespace shim {
namespace {

constexpr std::string_view kGetInfo = "/pluginregistration.Registration/GetInfo";
constexpr std::string_view kNotify = "/pluginregistration.Registration/NotifyRegistrationStatus";
constexpr std::string_view kPrepare = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
constexpr std::string_view kUnprepare = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources";
constexpr std::string_view kHealth = "/v1.DRAResourceHealth/NodeWatchResources";
constexpr std::string_view kAlphaHealth = "/v1alpha1.DRAResourceHealth/NodeWatchResources";
// The kubelet takes the first label that it knows, and skips other labels: Kubernetes 1.34 knows the first and the
// third.
constexpr const char* kVersions[] = {"v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"};
constexpr std::size_t kLongestHealthText = 1024;  // bytes (Kubernetes 1.36)

grpc::ByteBuffer bytes_of(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

bool parse(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return false;
  std::string text;
  for (const grpc::Slice& slice : slices)
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return message.ParseFromString(text);
}

std::string utf8(std::string text) {
  return base::is_utf8(text) ? text : base::one_line(text);  // protobuf demands UTF-8
}

grpc::ByteBuffer prepare_response(const std::vector<ClaimKey>& claims,
                                  const std::map<std::string, ClaimsCall::Answer>& answers, const std::string& pool) {
  dra_wire::PrepareResponse response;
  for (const ClaimKey& claim : claims) {
    auto& sent = (*response.mutable_claims())[claim.uid];
    const auto answer = answers.find(claim.uid);
    if (answer == answers.end() || !answer->second.error.empty()) {
      sent.set_error(answer == answers.end() ? "rdma-dra has no answer" : utf8(answer->second.error));
      continue;
    }
    for (const hook::PreparedDevice& device : answer->second.devices) {
      auto& one = *sent.add_devices();
      one.add_request_names(device.request);
      one.set_pool_name(pool);
      one.set_device_name(device.name);
      one.mutable_cdi_device_ids()->Assign(device.cdi_names.begin(), device.cdi_names.end());
      if (!device.share_id.empty()) one.set_share_id(device.share_id);
    }
  }
  return bytes_of(response);
}

grpc::ByteBuffer unprepare_response(const std::vector<ClaimKey>& claims,
                                    const std::map<std::string, ClaimsCall::Answer>& answers) {
  dra_wire::UnprepareResponse response;
  for (const ClaimKey& claim : claims) {
    auto& sent = (*response.mutable_claims())[claim.uid];
    const auto answer = answers.find(claim.uid);
    if (answer == answers.end()) sent.set_error("rdma-dra has no answer");
    if (answer != answers.end() && !answer->second.error.empty()) sent.set_error(utf8(answer->second.error));
  }
  return bytes_of(response);
}

grpc::ByteBuffer health_response(const std::vector<DeviceHealth>& devices, const std::string& pool) {
  dra_wire::HealthResponse response;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  for (const DeviceHealth& device : devices) {
    auto& sent = *response.add_devices();
    sent.mutable_device()->set_pool_name(pool);
    sent.mutable_device()->set_device_name(device.device);
    sent.set_health(static_cast<int>(device.state));
    sent.set_last_updated_time(std::chrono::duration_cast<std::chrono::seconds>(now).count());
    sent.set_message(base::printable(device.text, kLongestHealthText));
  }
  return bytes_of(response);
}

// All methods are served by gRPC's generic service: the paths of the methods decide, so that health v1 and v1alpha1 are
// one stream, and no generated service is part of the program.
class Server final : public KubeletServer {
 public:
  explicit Server(Settings settings) : settings_(std::move(settings)) {}
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() override {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
    for (Call* call : calls_)
      call->cancel();
  }

  Result<void> listen() {
    grpc::ServerBuilder builder;
    builder.RegisterAsyncGenericService(&service_);
    // The kubelet connects to the socket for claims as soon as it has found the other one.
    TRY_VOID(grpc_.listen(builder, {settings_.service, settings_.registration}));
    Call::await(*this);
    return {};
  }

  std::vector<std::shared_ptr<ClaimsCall>> take_calls() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(waiting_, {});
  }
  void send_health(std::vector<DeviceHealth> devices) override {
    const std::lock_guard lock(mutex_);
    health_ = std::move(devices);
    ++version_;
    for (Call* call : calls_)
      call->go_on();
  }
  std::size_t watchers() const override {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count_if(calls_, &Call::is_stream));
  }
  std::optional<std::string> registration() const override {
    const std::lock_guard lock(mutex_);
    return registration_;
  }

 private:
  // A call, or the wait for one. `self_` keeps it alive while gRPC has one of its tags. The mutex of the server
  // protects all members.
  class Call final : public Operation {
   public:
    static void await(Server& server) {
      const auto call = std::make_shared<Call>(server);
      call->self_ = call;
      call->context_.AsyncNotifyWhenDone(call->over_.tag());
      server.service_.RequestCall(&call->context_, &call->stream_, server.grpc_.queue(), server.grpc_.queue(),
                                  call->tag());
    }
    explicit Call(Server& server) : server_(server) {}
    ~Call() override = default;

    bool is_stream() const { return is_stream_; }

    void end(bool ok) override {
      const std::shared_ptr<Call> self = self_;  // keeps this object until the end of the function
      bool wakes = false;
      {
        const std::lock_guard lock(server_.mutex_);
        wakes = step(ok);
      }
      if (wakes) server_.settings_.wake();
    }
    // Writes the newest list to a stream whose last write has ended, or ends the stream.
    void go_on() {
      if (state_ != State::kIdle) return;
      if (is_over_ || server_.is_ended_) return finish(grpc::Status::OK);
      if (sent_ == server_.version_ || server_.version_ == 0) return;
      sent_ = server_.version_;
      state_ = State::kWrites;
      stream_.Write(health_response(server_.health_, server_.settings_.pool), tag());
    }
    void cancel() {
      if (state_ == State::kWaits) finish({grpc::StatusCode::UNAVAILABLE, "rdma-dra ends"});
      go_on();
    }
    void answer(const grpc::ByteBuffer& response) {
      if (state_ != State::kWaits) return;
      state_ = State::kFinishes;
      stream_.WriteAndFinish(response, {}, grpc::Status::OK, tag());
    }

   private:
    enum class State { kAwaited, kReads, kWaits, kIdle, kWrites, kFinishes, kFinished };

    // Handles the end of the last operation. Returns true if the main thread has new work.
    bool step(bool ok) {
      switch (state_) {
        case State::kAwaited:
          if (!ok) {
            self_.reset();  // gRPC reports over_ only for a call that has come
            return false;
          }
          await(server_);
          server_.calls_.insert(this);
          state_ = State::kReads;
          stream_.Read(&request_, tag());
          return false;
        case State::kReads:
          if (ok && !server_.is_ended_) return begin(context_.method());
          finish({grpc::StatusCode::CANCELLED, ""});
          return false;
        case State::kWrites:
          state_ = State::kIdle;
          is_over_ = is_over_ || !ok;
          go_on();
          return false;
        default:
          state_ = State::kFinished;
          free_if_ended();
          return is_stream_;
      }
    }

    bool begin(const std::string& method) {
      state_ = State::kWaits;
      if (method == kGetInfo) return answer_info();
      if (method == kNotify) return take_status();
      if (method == kPrepare || method == kUnprepare) return take_claims(method == kPrepare);
      if (method != kHealth && method != kAlphaHealth) {
        finish({grpc::StatusCode::UNIMPLEMENTED, ""});
        return false;
      }
      is_stream_ = true;
      state_ = State::kIdle;
      go_on();
      return true;
    }
    bool answer_info() {
      dra_wire::PluginInfo info;
      info.set_type("DRAPlugin");
      info.set_name(kDraDriver);
      info.set_endpoint(server_.settings_.service);
      for (const char* version : kVersions)
        info.add_supported_versions(version);
      answer(bytes_of(info));
      return false;
    }
    bool take_status() {
      dra_wire::RegistrationStatus status;
      if (parse(request_, status))
        server_.registration_ = status.plugin_registered() ? "" : "the kubelet refuses: " + status.error();
      answer(bytes_of(dra_wire::RegistrationStatus()));  // an empty message
      return true;
    }
    bool take_claims(bool prepares) {
      dra_wire::ClaimsRequest request;
      if (!parse(request_, request)) {
        finish({grpc::StatusCode::INVALID_ARGUMENT, "no ClaimsRequest"});
        return false;
      }
      auto waiting = std::make_shared<Waiting>(server_.mutex_, self_, server_.settings_.pool);
      waiting->prepares = prepares;
      for (const auto& claim : request.claims())
        waiting->claims.push_back({claim.namespace_(), claim.name(), claim.uid()});
      server_.waiting_.push_back(std::move(waiting));
      return true;
    }

    void finish(const grpc::Status& status) {
      state_ = State::kFinishes;
      stream_.Finish(status, tag());
    }
    friend CallEnd<Call>;
    void end_call() {
      const std::shared_ptr<Call> self = self_;
      const std::lock_guard lock(server_.mutex_);
      is_over_ = is_over_reported_ = true;
      go_on();
      free_if_ended();
    }
    void free_if_ended() {
      if (state_ != State::kFinished || !is_over_reported_) return;
      server_.calls_.erase(this);
      self_.reset();
    }

    Server& server_;
    CallEnd<Call> over_{*this};
    std::shared_ptr<Call> self_;
    grpc::GenericServerContext context_;
    grpc::GenericServerAsyncReaderWriter stream_{&context_};
    grpc::ByteBuffer request_;
    std::uint64_t sent_ = 0;
    State state_ = State::kAwaited;
    bool is_stream_ = false;
    bool is_over_ = false;
    bool is_over_reported_ = false;
  };

  // The main thread's handle of a call. The server may have ended before the answer.
  class Waiting final : public ClaimsCall {
   public:
    Waiting(std::mutex& mutex, std::weak_ptr<Call> call, std::string pool)
        : mutex_(mutex), call_(std::move(call)), pool_(std::move(pool)) {}
    ~Waiting() override = default;
    void finish(const std::map<std::string, Answer>& answers) override {
      const auto call = call_.lock();
      if (!call) return;
      const auto response = prepares ? prepare_response(claims, answers, pool_) : unprepare_response(claims, answers);
      const std::lock_guard lock(mutex_);
      call->answer(response);
    }

   private:
    std::mutex& mutex_;  // lives as long as the call
    std::weak_ptr<Call> call_;
    std::string pool_;
  };

  const Settings settings_;
  mutable std::mutex mutex_;
  bool is_ended_ = false;
  std::set<Call*> calls_;
  std::vector<std::shared_ptr<ClaimsCall>> waiting_;
  std::vector<DeviceHealth> health_;
  std::uint64_t version_ = 0;  // version of health_; 0: there is none yet
  std::optional<std::string> registration_;
  grpc::AsyncGenericService service_;
  GrpcServer grpc_;
};

}  // namespace

Result<std::unique_ptr<KubeletServer>> KubeletServer::start(Settings settings) {
  auto server = std::make_unique<Server>(std::move(settings));
  TRY_VOID(server->listen());
  return std::unique_ptr<KubeletServer>(std::move(server));
}

}  // namespace shim
