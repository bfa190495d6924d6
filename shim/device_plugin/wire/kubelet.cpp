#include "shim/device_plugin/wire/kubelet.hpp"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/text.hpp"
#include "shim/device_plugin/wire/device_plugin.grpc.pb.h"
#include "shim/device_plugin/wire/messages.hpp"
#include "shim/kubelet/wire/grpc_parts.hpp"

namespace shim {
namespace {

using Clock = std::chrono::steady_clock;
using Snapshot = std::shared_ptr<const Resource>;

constexpr const char* kVersion = "v1beta1";
constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::seconds kAllocateTimeout{10};

grpc::Status status_of(grpc::StatusCode code, const Result<void>& result) {
  return result ? grpc::Status::OK : grpc::Status(code, result.error().message);
}

class Service final : public DeviceServer {
 public:
  Service(Settings settings, Resource resource)
      : settings_(std::move(settings)), resource_(std::make_shared<const Resource>(std::move(resource))) {}

  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      for (Watch* watch : watches_)
        watch->go_on();
    }
    // The waiting Allocate calls must be answered, because ~GrpcServer() waits for them.
    for (const Waiting& waiting : take_waiting())
      allocate(waiting, false);
  }

  Result<void> listen() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&methods_);
    TRY_VOID(grpc_.listen(builder, {settings_.socket}));
    Unary<v1beta1::Empty, v1beta1::DevicePluginOptions>::await(*this, &Methods::RequestGetDevicePluginOptions,
                                                               &Service::get_options);
    Preference::await(*this, &Methods::RequestGetPreferredAllocation, &Service::prefer);
    Allocation::await(*this, &Methods::RequestAllocate, &Service::allocate_or_wait);
    Unary<v1beta1::PreStartContainerRequest, v1beta1::PreStartContainerResponse>::await(
        *this, &Methods::RequestPreStartContainer, &Service::pre_start);
    Watch::await(*this);
    return {};
  }

  void publish(Resource resource) override {
    const std::lock_guard lock(mutex_);
    resource_ = std::make_shared<const Resource>(std::move(resource));
    ++version_;
    for (Watch* watch : watches_)
      watch->go_on();
  }

  std::size_t watchers() const override {
    const std::lock_guard lock(mutex_);
    return watches_.size();
  }

  bool retry() override {
    // The calls are moved out of waiting_ first, because allocate() calls snapshot(), which locks mutex_ itself.
    auto asked = take_waiting();
    const auto now = Clock::now();
    std::erase_if(asked, [&](const Waiting& one) { return allocate(one, now < one.until); });
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.end(), asked.begin(), asked.end());
    return !waiting_.empty();
  }

 private:
  using Methods = v1beta1::DevicePlugin::AsyncService;

  // A call with one response, or the wait for such a call. The object frees itself at the end.
  template <typename Request, typename Response>
  class Unary final : public Operation {
   public:
    using Begin = void (Methods::*)(grpc::ServerContext*, Request*, grpc::ServerAsyncResponseWriter<Response>*,
                                    grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*);
    using Answer = void (Service::*)(Unary& call);

    // Waits for a call of a method. answer: sets `response` and calls finish(), at once or later.
    static void await(Service& service, Begin method, Answer answer) {
      auto* const call = new Unary(service, method, answer);
      auto* const queue = service.grpc_.queue();
      (service.methods_.*method)(&call->context_, &call->request, &call->writer_, queue, queue, call->tag());
    }
    // Sends `response`, or the error of the status. The object must not be used after this call.
    void finish(const grpc::Status& status) {
      is_finished_ = true;
      writer_.Finish(response, status, tag());
    }
    // Called when a call has come, or when the server ends first (not ok), or after finish().
    void end(bool ok) override {
      if (is_finished_ || !ok) {
        delete this;
        return;
      }
      await(service_, method_, answer_);
      (service_.*answer_)(*this);
    }

    Request request;
    Response response;

   private:
    Unary(Service& service, Begin method, Answer answer) : service_(service), method_(method), answer_(answer) {}
    ~Unary() override = default;

    Service& service_;
    const Begin method_;
    const Answer answer_;
    grpc::ServerContext context_;
    grpc::ServerAsyncResponseWriter<Response> writer_{&context_};
    bool is_finished_ = false;
  };
  using Preference = Unary<v1beta1::PreferredAllocationRequest, v1beta1::PreferredAllocationResponse>;
  using Allocation = Unary<v1beta1::AllocateRequest, v1beta1::AllocateResponse>;

  // A call of ListAndWatch, or the wait for such a call. The object frees itself at the end. While a list is being
  // written, no further lists are queued: the latest resource is sent afterwards, so a slow kubelet costs no memory.
  // The service's mutex protects all members.
  class Watch final : public Operation {
   public:
    static void await(Service& service) {
      auto* const watch = new Watch(service);
      watch->context_.AsyncNotifyWhenDone(watch->over_.tag());
      auto* const queue = service.grpc_.queue();
      service.methods_.RequestListAndWatch(&watch->context_, &watch->request_, &watch->writer_, queue, queue,
                                           watch->tag());
    }

    void go_on() {
      if (state_ != State::kIdle) return;
      if (service_.ended_ || is_over_) {
        state_ = State::kFinishes;
        writer_.Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the plugin ends"), tag());
      } else if (sent_ != service_.version_) {
        state_ = State::kWrites;
        sent_ = service_.version_;
        v1beta1::ListAndWatchResponse response;
        list_devices(*service_.resource_, response);
        writer_.Write(response, tag());
      }
    }

    // Called when a call has come, or when the server ends first (not ok), and after each Write() and Finish().
    void end(bool ok) override {
      if (state_ == State::kAwaited) {
        if (ok) return begin();
        delete this;  // gRPC reports over_ only for an object that got a call
        return;
      }
      {
        const std::lock_guard lock(service_.mutex_);
        state_ = state_ == State::kFinishes ? State::kFinished : State::kIdle;
        is_over_ = is_over_ || !ok;
        go_on();
      }
      free_if_ended();
    }

   private:
    enum class State { kAwaited, kIdle, kWrites, kFinishes, kFinished };

    explicit Watch(Service& service) : service_(service) {}
    ~Watch() override = default;

    void begin() {
      await(service_);
      {
        const std::lock_guard lock(service_.mutex_);
        service_.watches_.push_back(this);
        state_ = State::kIdle;
        go_on();
      }
      service_.settings_.wake();
    }
    friend CallEnd<Watch>;
    void end_call() {
      {
        const std::lock_guard lock(service_.mutex_);
        is_over_ = true;
        is_over_reported_ = true;
        go_on();
      }
      free_if_ended();
    }
    void free_if_ended() {
      {
        const std::lock_guard lock(service_.mutex_);
        if (state_ != State::kFinished || !is_over_reported_) return;
        std::erase(service_.watches_, this);
      }
      // wake() is called after the lock is released, because it lets the main thread call watchers(), which takes the
      // lock.
      service_.settings_.wake();
      delete this;
    }

    Service& service_;
    CallEnd<Watch> over_{*this};
    v1beta1::Empty request_;
    grpc::ServerContext context_;
    grpc::ServerAsyncWriter<v1beta1::ListAndWatchResponse> writer_{&context_};
    std::uint64_t sent_ = 0;
    State state_ = State::kAwaited;
    bool is_over_ = false;
    bool is_over_reported_ = false;
  };

  // A call of Allocate, which may have to wait.
  struct Waiting {
    Allocation* call = nullptr;
    Clock::time_point until;
    bool waits = false;
  };

  // Answers the request. Returns false without an answer if may_wait is set and the request must wait: for an HCA that
  // lacks its announced device node (Settings::check) or, if it has waited before, also for a device that is now
  // unknown or unhealthy.
  bool allocate(const Waiting& asked, bool may_wait) const {
    const Snapshot resource = snapshot();
    std::vector<std::vector<const CountedHca*>> containers;
    auto done = requested_hcas(*resource, asked.call->request, containers);
    const bool is_known = done.has_value();
    for (const auto& hcas : containers) {
      for (const CountedHca* hca : hcas)
        base::keep_first(done, settings_.check(*hca));
    }
    // A request for an unknown or unhealthy device fails at once. A request that already waited continues to wait,
    // because its HCA may have been removed from the resource meanwhile.
    if (!done && may_wait && (is_known || asked.waits)) return false;
    if (done) allocate_devices(containers, settings_.by_cdi, asked.call->response);
    for (const auto& hcas : containers)
      settings_.allocated(hcas, done);
    // If not even the first container's devices are known, the failure is reported without HCAs.
    if (!done && containers.empty()) settings_.allocated({}, done);
    asked.call->finish(status_of(grpc::StatusCode::FAILED_PRECONDITION, done));
    return true;
  }

  std::vector<Waiting> take_waiting() {
    const std::lock_guard lock(mutex_);
    return std::exchange(waiting_, {});
  }

  void wait(Waiting asked) {
    asked.waits = true;
    {
      const std::lock_guard lock(mutex_);
      if (!ended_) {
        waiting_.push_back(asked);
        settings_.wake();
        return;
      }
    }
    allocate(asked, false);
  }

  Snapshot snapshot() const {
    const std::lock_guard lock(mutex_);
    return resource_;
  }

  void get_options(Unary<v1beta1::Empty, v1beta1::DevicePluginOptions>& call) {
    call.response.set_get_preferred_allocation_available(true);
    call.finish(grpc::Status::OK);
  }
  void prefer(Preference& call) {
    const auto done = prefer_devices(*snapshot(), call.request, call.response);
    call.finish(status_of(grpc::StatusCode::INVALID_ARGUMENT, done));
  }
  void allocate_or_wait(Allocation& call) {
    const Waiting asked{&call, Clock::now() + kAllocateTimeout};
    if (!allocate(asked, true)) wait(asked);
  }
  void pre_start(Unary<v1beta1::PreStartContainerRequest, v1beta1::PreStartContainerResponse>& call) {
    call.finish(grpc::Status::OK);
  }

  const Settings settings_;
  mutable std::mutex mutex_;
  Snapshot resource_;
  std::uint64_t version_ = 1;
  bool ended_ = false;
  std::vector<Watch*> watches_;
  std::vector<Waiting> waiting_;
  Methods methods_;
  GrpcServer grpc_;
};

// The call is made in a thread of its own, which ends with the call.
class Call final : public Registration {
 public:
  Call(const std::string& directory, const std::string& resource, std::function<void()> wake) : wake_(std::move(wake)) {
    request_.set_version(kVersion);
    request_.set_endpoint(socket_name(resource));
    request_.set_resource_name(resource);
    request_.mutable_options()->set_get_preferred_allocation_available(true);
    // Each call uses a new connection. A shared connection that failed before would first wait for the end of gRPC's
    // reconnection backoff.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1beta1::Registration::NewStub(grpc::CreateCustomChannel("unix:" + directory + "/kubelet.sock",
                                                                     grpc::InsecureChannelCredentials(), arguments));
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    thread_ = std::thread([this] { make(); });
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() override {
    context_.TryCancel();
    thread_.join();
  }

  const Result<void>* result() const override {
    const std::lock_guard lock(mutex_);
    return result_ ? &*result_ : nullptr;
  }

 private:
  void make() {
    const grpc::Status status = stub_->Register(&context_, request_, &response_);
    {
      const std::lock_guard lock(mutex_);
      result_ = status.ok() ? Result<void>() : Error{base::printable(status.error_message())};
    }
    wake_();
  }

  grpc::ClientContext context_;
  v1beta1::RegisterRequest request_;
  v1beta1::Empty response_;
  std::unique_ptr<v1beta1::Registration::Stub> stub_;
  std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::optional<Result<void>> result_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<DeviceServer>> DeviceServer::start(Settings settings, Resource resource) {
  auto service = std::make_unique<Service>(std::move(settings), std::move(resource));
  TRY_VOID(service->listen());
  return std::unique_ptr<DeviceServer>(std::move(service));
}

std::unique_ptr<Registration> Registration::begin(const std::string& directory, const std::string& resource,
                                                  std::function<void()> wake) {
  return std::make_unique<Call>(directory, resource, std::move(wake));
}

}  // namespace shim
