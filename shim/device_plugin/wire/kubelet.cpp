#include "shim/device_plugin/wire/kubelet.hpp"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"
#include "shim/device_plugin/wire/device_plugin.grpc.pb.h"
#include "shim/device_plugin/wire/messages.hpp"

namespace shim {
namespace {

using Clock = std::chrono::steady_clock;
using Snapshot = std::shared_ptr<const Resource>;

constexpr const char* kVersion = "v1beta1";
constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::seconds kAllocateTimeout{10};

// Returns the errno of a failed listen, which gRPC does not report. To find it, binds a socket at the same path.
int why_not_listen(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const fabric::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.ok() || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return errno;
  // The bind succeeded, so gRPC failed for another reason, and the next attempt may succeed.
  ::unlink(path.c_str());
  return EAGAIN;
}

grpc::Status status_of(grpc::StatusCode code, const Result<void>& result) {
  return result ? grpc::Status::OK : grpc::Status(code, result.error().message);
}

class Service final : public DeviceServer, public v1beta1::DevicePlugin::CallbackService {
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
    // The waiting Allocate calls must be answered, because Shutdown() would wait for them.
    for (const ParsedRequest& asked : take_waiting())
      allocate(asked, false);
    if (!server_) return;
    // The deadline cancels calls that the kubelet keeps open.
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    server_->Wait();
  }

  Result<void> listen() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + settings_.socket, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (!server_) return sys_error(why_not_listen(settings_.socket), "cannot listen on `{}`", settings_.socket);
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
    std::erase_if(asked, [&](const ParsedRequest& one) { return allocate(one, now < one.until); });
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.end(), asked.begin(), asked.end());
    return !waiting_.empty();
  }

 private:
  // One call of ListAndWatch. While a list is being written, no further lists are queued: the latest resource is sent
  // afterwards, so a slow kubelet costs no memory. The service's mutex protects all members; gRPC calls the On
  // functions without holding it.
  class Watch final : public grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse> {
   public:
    explicit Watch(Service& service) : service_(service) {}

    void go_on() {
      if (is_writing_ || is_finished_) return;
      if (service_.ended_ || is_over_) {
        is_finished_ = true;
        Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the plugin ends"));
      } else if (sent_ != service_.version_) {
        sent_ = service_.version_;
        is_writing_ = true;
        response_.Clear();
        list_devices(*service_.resource_, response_);
        StartWrite(&response_);
      }
    }

    void OnWriteDone(bool ok) override {
      const std::lock_guard lock(service_.mutex_);
      is_writing_ = false;
      is_over_ = is_over_ || !ok;
      go_on();
    }
    void OnCancel() override {
      const std::lock_guard lock(service_.mutex_);
      is_over_ = true;
      go_on();
    }
    void OnDone() override {
      {
        const std::lock_guard lock(service_.mutex_);
        std::erase(service_.watches_, this);
      }
      // wake() is called after the lock is released, because it lets the main thread call watchers(), which takes the
      // lock.
      service_.settings_.wake();
      // OnDone() is gRPC's last call of this object, and by gRPC's contract the object then frees itself.
      delete this;
    }

   private:
    Service& service_;
    v1beta1::ListAndWatchResponse response_;
    std::uint64_t sent_ = 0;
    bool is_writing_ = false;
    bool is_over_ = false;
    bool is_finished_ = false;
  };

  struct ParsedRequest {
    grpc::ServerUnaryReactor* reactor = nullptr;
    const v1beta1::AllocateRequest* request = nullptr;
    v1beta1::AllocateResponse* response = nullptr;
    Clock::time_point until;
    bool waits = false;
  };

  // Answers the request. Returns false without an answer if may_wait is set and the request must wait: for an HCA that
  // lacks its announced device node (Settings::check) or, if it has waited before, also for a device that is now
  // unknown or unhealthy.
  bool allocate(const ParsedRequest& asked, bool may_wait) const {
    const Snapshot resource = snapshot();
    std::vector<std::vector<const CountedHca*>> containers;
    auto done = requested_hcas(*resource, *asked.request, containers);
    const bool is_known = done.has_value();
    for (const auto& hcas : containers) {
      for (const CountedHca* hca : hcas)
        fabric::keep_first(done, settings_.check(*hca));
    }
    // A request for an unknown or unhealthy device fails at once. A request that already waited continues to wait,
    // because its HCA may have been removed from the resource meanwhile.
    if (!done && may_wait && (is_known || asked.waits)) return false;
    if (done) allocate_devices(containers, settings_.by_cdi, *asked.response);
    for (const auto& hcas : containers)
      settings_.allocated(hcas, done);
    // If not even the first container's devices are known, the failure is reported without HCAs.
    if (!done && containers.empty()) settings_.allocated({}, done);
    asked.reactor->Finish(status_of(grpc::StatusCode::FAILED_PRECONDITION, done));
    return true;
  }

  std::vector<ParsedRequest> take_waiting() {
    const std::lock_guard lock(mutex_);
    return std::exchange(waiting_, {});
  }

  void wait(ParsedRequest asked) {
    asked.waits = true;
    {
      const std::lock_guard lock(mutex_);
      if (!ended_) {
        // The call waits in this list and occupies no thread, which gRPC's callback API allows.
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

  static grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const grpc::Status& status) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  grpc::ServerUnaryReactor* GetDevicePluginOptions(grpc::CallbackServerContext* context, const v1beta1::Empty*,
                                                   v1beta1::DevicePluginOptions* options) override {
    options->set_get_preferred_allocation_available(true);
    return answer(context, grpc::Status::OK);
  }

  grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse>* ListAndWatch(grpc::CallbackServerContext*,
                                                                        const v1beta1::Empty*) override {
    auto* watch = new Watch(*this);
    const std::lock_guard lock(mutex_);
    watches_.push_back(watch);
    watch->go_on();
    settings_.wake();
    return watch;
  }

  grpc::ServerUnaryReactor* GetPreferredAllocation(grpc::CallbackServerContext* context,
                                                   const v1beta1::PreferredAllocationRequest* request,
                                                   v1beta1::PreferredAllocationResponse* response) override {
    const auto done = prefer_devices(*snapshot(), *request, *response);
    return answer(context, status_of(grpc::StatusCode::INVALID_ARGUMENT, done));
  }

  grpc::ServerUnaryReactor* Allocate(grpc::CallbackServerContext* context, const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* response) override {
    const ParsedRequest asked{context->DefaultReactor(), request, response, Clock::now() + kAllocateTimeout};
    if (!allocate(asked, true)) wait(asked);
    return asked.reactor;
  }

  grpc::ServerUnaryReactor* PreStartContainer(grpc::CallbackServerContext* context,
                                              const v1beta1::PreStartContainerRequest*,
                                              v1beta1::PreStartContainerResponse*) override {
    return answer(context, grpc::Status::OK);
  }

  const Settings settings_;
  mutable std::mutex mutex_;
  Snapshot resource_;
  std::uint64_t version_ = 1;
  bool ended_ = false;
  std::vector<Watch*> watches_;
  std::vector<ParsedRequest> waiting_;
  std::unique_ptr<grpc::Server> server_;
};

class Call final : public Registration {
 public:
  Call(const Request& request, std::function<void()> wake) : wake_(std::move(wake)) {
    request_.set_version(kVersion);
    request_.set_endpoint(request.endpoint);
    request_.set_resource_name(request.resource);
    request_.mutable_options()->set_get_preferred_allocation_available(true);
    // Each call uses a new connection. A shared connection that failed before would first wait for the end of gRPC's
    // reconnection backoff.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1beta1::Registration::NewStub(
        grpc::CreateCustomChannel("unix:" + request.kubelet, grpc::InsecureChannelCredentials(), arguments));
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    stub_->async()->Register(&context_, &request_, &response_, [this](const grpc::Status& status) { end(status); });
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() override {
    // Cancels the call and waits for its end, because the callback uses this object.
    context_.TryCancel();
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return result_.has_value(); });
  }

  const Result<void>* result() const override {
    const std::lock_guard lock(mutex_);
    return result_ ? &*result_ : nullptr;
  }

 private:
  void end(const grpc::Status& status) {
    // wake_ is copied, because another thread may free this object as soon as result_ is set.
    const auto wake_up = wake_;
    {
      const std::lock_guard lock(mutex_);
      result_ = status.ok() ? Result<void>() : Error{fabric::printable(status.error_message())};
      ended_.notify_all();  // under the lock, because the object may be freed after the unlock
    }
    wake_up();
  }

  grpc::ClientContext context_;
  v1beta1::RegisterRequest request_;
  v1beta1::Empty response_;
  std::unique_ptr<v1beta1::Registration::Stub> stub_;
  std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<Result<void>> result_;
};

}  // namespace

void silence_grpc() {
  gpr_set_log_function([](gpr_log_func_args*) {});
}

Result<std::unique_ptr<DeviceServer>> DeviceServer::start(Settings settings, Resource resource) {
  auto service = std::make_unique<Service>(std::move(settings), std::move(resource));
  TRY_VOID(service->listen());
  return std::unique_ptr<DeviceServer>(std::move(service));
}

std::unique_ptr<Registration> Registration::begin(const Request& request, std::function<void()> wake) {
  return std::make_unique<Call>(request, std::move(wake));
}

}  // namespace shim
