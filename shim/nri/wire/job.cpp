#include "shim/nri/wire/job.hpp"

#include <cerrno>

#include "shim/nri/wire/convert.hpp"
#include "shim/nri/wire/job.pb.h"

namespace shim {
namespace {

using fabric::Error;
using fabric::Result;

template <typename T>
Result<void> parse(T& message, std::string_view bytes) {
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return {};
  return Error{"what came from the other process of rdma-nri cannot be read", EINVAL};
}

}  // namespace

std::string job_bytes(const Job& job) {
  rdma_nri::Job message;
  message.set_kind(static_cast<int>(job.kind));
  *message.mutable_pod() = to_wire(job.pod);
  *message.mutable_container() = to_wire(job.container);
  for (const std::string& id : job.gone)
    message.add_gone(id);
  return message.SerializeAsString();
}

Result<Job> parse_job(std::string_view bytes) {
  rdma_nri::Job message;
  TRY_VOID(parse(message, bytes));
  if (message.kind() < static_cast<int>(Job::Kind::kGivePod) || message.kind() > static_cast<int>(Job::Kind::kRecover))
    return Error{"the worker is asked for what it does not know", ENOSYS};
  Job job{static_cast<Job::Kind>(message.kind()), take_pod(*message.mutable_pod()),
          take_container(*message.mutable_container())};
  job.gone.insert(message.gone().begin(), message.gone().end());
  return job;
}

std::string adjustment_bytes(const ContainerAdjustment& adjustment) {
  return to_wire(adjustment).SerializeAsString();
}

Result<ContainerAdjustment> parse_adjustment(std::string_view bytes) {
  wire::CreateContainerResponse message;
  TRY_VOID(parse(message, bytes));
  return take_adjustment(*message.mutable_adjust());
}

}  // namespace shim
