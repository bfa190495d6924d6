// nccl_net: moves data with NCCL's own network layer (ncclNetIb), from host memory, without a GPU, CUDA or a driver.
//
//   nccl_net probe                       for each device, the queue pair of a connection of the process with itself
//   nccl_net listen PORT [BYTES]         waits for a peer on TCP port PORT, receives BYTES on each device, compares
//   them nccl_net connect ADDRESS:PORT [BYTES]  is the peer, and sends; ADDRESS is IPv4
//
// Lines: `init RESULT SECONDS`, `devices COUNT`, `device N name=...`, `qp HCA STATE ... -> RESULT`, `probe N RESULT`,
// `connected N ...`, `moved N ...`. `qp` lines show NCCL's arguments of ibv_modify_qp() and its result. RESULT of the
// other lines is ncclResult_t: 0 success, 2 system error, 3 internal error, 5 invalid usage, 6 remote error. Exit
// codes: 0 all worked, 1 something failed, 2 usage, 3 after $LIMIT seconds (default 60).

#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "net_api.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void print_log(int level, unsigned long, const char*, int, const char* format, ...) {
  std::va_list values;
  va_start(values, format);
  printf("log %d ", level);
  vprintf(format, values);
  printf("\n");
  va_end(values);
}

int (*real_modify_qp)(ibv_qp*, ibv_qp_attr*, int) = nullptr;

// Stands between NCCL and libibverbs.
int modify_qp(ibv_qp* pair, ibv_qp_attr* wanted, int mask) {
  const int result = real_modify_qp(pair, wanted, mask);
  const char* const device = pair->context->device->name;
  const ibv_ah_attr& path = wanted->ah_attr;
  if (wanted->qp_state == IBV_QPS_INIT) {
    printf("qp %s INIT port=%d pkey_index=%d -> %d\n", device, wanted->port_num, wanted->pkey_index, result);
  } else if (wanted->qp_state == IBV_QPS_RTR) {
    char local[INET6_ADDRSTRLEN] = "?";
    char remote[INET6_ADDRSTRLEN] = "?";
    ibv_gid gid{};
    inet_ntop(AF_INET6, path.grh.dgid.raw, remote, sizeof remote);
    if (ibv_query_gid(pair->context, path.port_num, path.grh.sgid_index, &gid) == 0)
      inet_ntop(AF_INET6, gid.raw, local, sizeof local);
    printf("qp %s RTR index=%d gid=%s remote=%s global=%d tc=%d sl=%d hop=%d mtu=%d -> %d\n", device,
           path.grh.sgid_index, local, remote, path.is_global, path.grh.traffic_class, path.sl, path.grh.hop_limit,
           wanted->path_mtu, result);
  } else if (wanted->qp_state == IBV_QPS_RTS) {
    printf("qp %s RTS timeout=%d retry=%d -> %d\n", device, wanted->timeout, wanted->retry_cnt, result);
  }
  return result;
}

// A wrong source GID on soft RoCE moves no byte and gives no error.
void stop_after(unsigned limit) {
  std::thread([limit] {
    sleep(limit);
    printf("limit of %u s\n", limit);
    fflush(stdout);
    _exit(3);
  }).detach();
}

int probe(int devices) {
  int failures = 0;
  for (int device = 0; device < devices; ++device) {
    const Result result = net::connect_with_itself(device);
    printf("probe %d %d\n", device, result);
    failures += result != 0 ? 1 : 0;
  }
  return devices > 0 && failures == 0 ? 0 : 1;
}

bool send_all(int peer, const char* data, std::size_t size) {
  return send(peer, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

bool receive_all(int peer, char* data, std::size_t size) {
  return recv(peer, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

int accept_peer(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener, 1) != 0) return -1;
  return accept(listener, nullptr, nullptr);
}

// Waits up to a minute for the listener.
int connect_peer(const std::string& where) {
  const std::size_t colon = where.find(':');
  if (colon == std::string::npos) return -1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(atoi(where.c_str() + colon + 1)));
  inet_pton(AF_INET, where.substr(0, colon).c_str(), &address.sin_addr);
  for (int attempt = 0; attempt < 300; ++attempt) {
    const int peer = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(peer, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return peer;
    close(peer);
    usleep(200000);
  }
  return -1;
}

unsigned char pattern(std::size_t position, int device) {
  return static_cast<unsigned char>(position * 2654435761U >> 13 ^ static_cast<unsigned>(device));
}

// One direction over one device: the listener receives.
struct Transfer {
  int device;
  int peer;
  bool sends;
  std::vector<unsigned char> data;
  Clock::time_point began = Clock::now();
  void* listener = nullptr;
  void* connection = nullptr;
  void* memory = nullptr;

  bool succeeded(const char* step, Result result) const {
    if (result == 0) return true;
    printf("moved %d FAILED %s result=%d after=%.1f\n", device, step, result, seconds_since(began));
    return false;
  }

  bool connect_device() {
    alignas(8) char handle[net::kHandleSize] = {};
    if (!sends && !succeeded("listen", net::listen_on(device, handle, &listener))) return false;
    if (!(sends ? receive_all(peer, handle, sizeof handle) : send_all(peer, handle, sizeof handle))) return false;
    Result result = 0;
    while (connection == nullptr && result == 0)
      result = sends ? net::connect_to(device, handle, &connection) : net::accept_from(listener, &connection);
    if (!succeeded(sends ? "connect" : "accept", result)) return false;
    printf("connected %d after=%.2f\n", device, seconds_since(began));
    return succeeded("register",
                     ncclNetIb.register_memory(connection, data.data(), data.size(), net::kHostMemory, &memory));
  }

  // Starts the transfer. NCCL returns no request while the peer is not ready.
  Result start(void** request) {
    Size size = static_cast<Size>(data.size());
    int tag = 7;
    void* buffer = data.data();
    Result result = 0;
    while (*request == nullptr && result == 0) {
#if NET_API >= 11
      void* no_profiler = nullptr;
      result = sends ? ncclNetIb.send(connection, buffer, size, tag, memory, nullptr, request)
                     : ncclNetIb.receive(connection, 1, &buffer, &size, &tag, &memory, &no_profiler, request);
#else
      result = sends ? ncclNetIb.send(connection, buffer, size, tag, memory, request)
                     : ncclNetIb.receive(connection, 1, &buffer, &size, &tag, &memory, request);
#endif
    }
    return result;
  }

  std::size_t count_wrong() const {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < data.size(); ++i)
      wrong += data[i] != pattern(i, device) ? 1 : 0;
    return wrong;
  }

  bool move() {
    for (std::size_t i = 0; sends && i < data.size(); ++i)
      data[i] = pattern(i, device);
    if (!connect_device()) return false;
    void* request = nullptr;
    int done = 0;
    int moved = 0;
    if (!succeeded(sends ? "isend" : "irecv", start(&request))) return false;
    Result result = 0;
    while (done == 0 && result == 0)
      result = ncclNetIb.test(request, &done, &moved);
    if (!succeeded("test", result)) return false;
    const std::size_t wrong = count_wrong();
    printf("moved %d %s bytes=%d wrong=%zu seconds=%.2f\n", device, sends ? "sent" : "received", moved, wrong,
           seconds_since(began));
    return wrong == 0;
  }

  // Waits for the peer first: a closed queue pair acknowledges nothing.
  void finish() {
    char byte = 1;
    if (!send_all(peer, &byte, 1) || !receive_all(peer, &byte, 1)) return;
    ncclNetIb.deregister_memory(connection, memory);
    sends ? ncclNetIb.close_send(connection) : ncclNetIb.close_receive(connection);
    if (listener != nullptr) ncclNetIb.close_listen(listener);
  }
};

bool move_data(int devices, bool sends, const std::string& where, std::size_t bytes) {
  const int peer = sends ? connect_peer(where) : accept_peer(atoi(where.c_str()));
  if (peer < 0) {
    printf("no TCP peer\n");
    return false;
  }
  bool good = devices > 0;
  for (int device = 0; good && device < devices; ++device) {
    Transfer transfer{device, peer, sends, std::vector<unsigned char>(bytes)};
    good = transfer.move();
    if (good) transfer.finish();
  }
  return good;
}

int start_and_print_devices() {
  const auto began = Clock::now();
  const Result result = net::start(print_log);
  printf("init %d %.2f\n", result, seconds_since(began));
  int devices = 0;
  if (result == 0) ncclNetIb.devices(&devices);
  printf("devices %d\n", devices);
  for (int device = 0; device < devices; ++device) {
    Properties of{};
    if (ncclNetIb.get_properties(device, &of) != 0) return 0;
    printf("device %d name=%s port=%d speed=%d pci=%s\n", device, of.name, of.port, of.speed,
           of.pci_path == nullptr ? "-" : of.pci_path);
  }
  return devices;
}

}  // namespace

extern "C" {

// NCCL's log asks for it.
int cudaGetDevice(int* device) {
  *device = 0;
  return 0;
}
void nccl_net_trap() {
  printf("nccl_net: NCCL called a function of CUDA or of its GPU kernels\n");
  fflush(stdout);
  abort();
}

// The linker turns NCCL's calls of dlvsym() into calls of this function (--wrap).
void* __real_dlvsym(void*, const char*, const char*);
void* __wrap_dlvsym(void* library, const char* name, const char* version) {
  void* const symbol = __real_dlvsym(library, name, version);
  if (symbol == nullptr || strcmp(name, "ibv_modify_qp") != 0) return symbol;
  real_modify_qp = reinterpret_cast<int (*)(ibv_qp*, ibv_qp_attr*, int)>(symbol);
  return reinterpret_cast<void*>(modify_qp);
}
}

int main(int count, char** arguments) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string mode = count > 1 ? arguments[1] : "";
  if ((mode != "probe" || count != 2) && ((mode != "listen" && mode != "connect") || count < 3 || count > 4)) {
    fprintf(stderr, "usage: nccl_net probe | listen PORT [BYTES] | connect ADDRESS:PORT [BYTES]\n");
    return 2;
  }
  const char* const limit = getenv("LIMIT");
  stop_after(limit == nullptr ? 60U : static_cast<unsigned>(atoi(limit)));
  const int devices = start_and_print_devices();
  const std::size_t bytes = count > 3 ? strtoull(arguments[3], nullptr, 10) : 1U << 20;
  const int code = mode == "probe"                                              ? probe(devices)
                   : move_data(devices, mode == "connect", arguments[2], bytes) ? 0
                                                                                : 1;
  // NCCL's threads still wait for asynchronous events.
  fflush(stdout);
  _exit(code);
}
