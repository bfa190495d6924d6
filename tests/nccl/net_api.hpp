// The binary interface of NCCL's network layers, ncclNet_t: version 8 (NCCL 2.22) and version 11 (NCCL 2.29). These are
// the project's own declarations; NCCL has no header for programs that call its network layer.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef NET_API
#error "define NET_API as 8 or 11"
#endif

using Result = int;  // ncclResult_t
using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

struct Properties {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointers;
  int global_registration;
#if NET_API >= 11
  int force_flush;
#endif
  int speed;  // Mb/s
  int port;
  char rest[512];  // longer than the rest in both versions
};

#if NET_API >= 11
struct Config {
  int traffic_class;
};
using Size = std::size_t;
using Init = Result (*)(void** context, std::uint64_t communicator, Config*, Logger, void* profiler);
using Listen = Result (*)(void* context, int device, void* handle, void** listener);
using Connect = Result (*)(void* context, int device, void* handle, void** sender, void** offload);
using Send = Result (*)(void* sender, void* data, Size, int tag, void* memory, void* profiler, void** request);
using Receive = Result (*)(void* receiver, int count, void** data, Size*, int* tags, void** memory, void** profiler,
                           void** request);
#else
using Size = int;
using Init = Result (*)(Logger);
using Listen = Result (*)(int device, void* handle, void** listener);
using Connect = Result (*)(int device, void* handle, void** sender, void** offload);
using Send = Result (*)(void* sender, void* data, Size, int tag, void* memory, void** request);
using Receive = Result (*)(void* receiver, int count, void** data, Size*, int* tags, void** memory, void** request);
#endif

struct Net {
  const char* name;
  Init init;
  Result (*devices)(int*);
  Result (*get_properties)(int, Properties*);
  Listen listen;
  Connect connect;
  Result (*accept)(void* listener, void** receiver, void** offload);
  Result (*register_memory)(void* connection, void* data, std::size_t, int type, void** memory);
  void* register_dma_buf;
  Result (*deregister_memory)(void* connection, void* memory);
  Send send;
  Receive receive;
  void* flush;
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void*);
  Result (*close_receive)(void*);
  Result (*close_listen)(void*);
};

extern "C" Net ncclNetIb;

namespace net {

inline constexpr int kHostMemory = 1;            // NCCL_PTR_HOST
inline constexpr std::size_t kHandleSize = 128;  // NCCL_NET_HANDLE_MAXSIZE

#if NET_API >= 11
inline void* context = nullptr;
inline Config config{-1};
#endif

inline Result start(Logger logger) {
#if NET_API >= 11
  return ncclNetIb.init(&context, 1, &config, logger, nullptr);
#else
  return ncclNetIb.init(logger);
#endif
}

inline Result listen_on(int device, void* handle, void** listener) {
#if NET_API >= 11
  return ncclNetIb.listen(context, device, handle, listener);
#else
  return ncclNetIb.listen(device, handle, listener);
#endif
}

// Like accept_from(), sets the connection only when it is complete; call again until then.
inline Result connect_to(int device, void* handle, void** sender) {
  void* offload = nullptr;
#if NET_API >= 11
  return ncclNetIb.connect(context, device, handle, sender, &offload);
#else
  return ncclNetIb.connect(device, handle, sender, &offload);
#endif
}

inline Result accept_from(void* listener, void** receiver) {
  void* offload = nullptr;
  return ncclNetIb.accept(listener, receiver, &offload);
}

inline Result connect_with_itself(int device) {
  alignas(8) char handle[kHandleSize] = {};
  void* listener = nullptr;
  void* sender = nullptr;
  void* receiver = nullptr;
  Result result = listen_on(device, handle, &listener);
  while (result == 0 && (sender == nullptr || receiver == nullptr)) {
    if (sender == nullptr) result = connect_to(device, handle, &sender);
    if (result == 0 && receiver == nullptr) result = accept_from(listener, &receiver);
  }
  if (result != 0) return result;
  ncclNetIb.close_send(sender);
  ncclNetIb.close_receive(receiver);
  ncclNetIb.close_listen(listener);
  return 0;
}

}  // namespace net
