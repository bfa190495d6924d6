// nccl_rules devices|file|conf|bootstrap: answers questions with NCCL's own code, without RDMA, a GPU or root. It reads
// one question per line from stdin and prints one answer per line; README.md has the questions.
//
// A process of its own answers each question, because NCCL reads its variables once. If that process ends without an
// answer, the answer is "ended N", with its wait status.
//
// devices: NCCL's network layer starts and connects its first device with itself. Its libibverbs is the functions
// below. file: the same, with settings in /etc/nccl.conf. conf: NCCL reads its files; fopen() gives it those of the
// question. bootstrap: NCCL chooses among the netdevs of the question, which getifaddrs() gives it. The linker turns
// NCCL's calls of these functions of the C library into calls of the __wrap functions (--wrap).

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>

#include "net_api.hpp"
#include "questions.hpp"

// NCCL's functions, with the names that the compiler gave them.
union ncclSocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};
void initEnv();
#if NET_API >= 11
Result ncclFindInterfaces(char* names, ncclSocketAddress* addresses, int name_size, int most, int* count);
#else
int ncclFindInterfaces(char* names, ncclSocketAddress* addresses, int name_size, int most);
#endif

namespace {

using Fields = std::vector<std::string>;

// ---- The question.
struct Device {
  ibv_device verbs{};
  int ports = 1;
};
std::vector<Device> devices;
std::map<int, questions::Slot> table;
std::map<std::string, std::string> files;  // by path
std::vector<questions::Netdev> netdevs;

// ---- The answer to `devices`: the first queue pair that NCCL connects.
std::string queue_pair;

// ---- The functions of libibverbs that NCCL calls.
ibv_device** get_device_list(int* count) {
  static std::vector<ibv_device*> list;
  list.clear();
  for (Device& device : devices)
    list.push_back(&device.verbs);
  *count = static_cast<int>(list.size());
  list.push_back(nullptr);
  return list.data();
}
const char* get_device_name(ibv_device* device) {
  return device->name;
}
ibv_context* open_device(ibv_device* device) {
  auto* context = static_cast<ibv_context*>(calloc(1, sizeof(ibv_context)));
  context->device = device;
  return context;
}
int succeed() {
  return 0;
}
int get_async_event(ibv_context*, ibv_async_event*) {
  for (;;)
    pause();
}
int query_device(ibv_context* context, ibv_device_attr* attributes) {
  *attributes = {};
  for (const Device& device : devices)
    if (&device.verbs == context->device) attributes->phys_port_cnt = static_cast<std::uint8_t>(device.ports);
  attributes->max_qp = 1000;
  return 0;
}
int query_port(ibv_context*, std::uint8_t, ibv_port_attr* port) {
  port->state = IBV_PORT_ACTIVE;
  port->link_layer = IBV_LINK_LAYER_ETHERNET;
  port->gid_tbl_len = questions::kTableLength;
  port->active_mtu = IBV_MTU_4096;
  port->active_speed = 1;
  port->active_width = 1;
  return 0;
}
int query_gid(ibv_context*, std::uint8_t, int index, ibv_gid* gid) {
  if (index < 0 || index >= questions::kTableLength) return -1;
  *gid = {};
  const auto found = table.find(index);
  if (found != table.end()) memcpy(gid->raw, found->second.gid, sizeof gid->raw);
  return 0;
}
ibv_pd* alloc_pd(ibv_context* context) {
  auto* domain = static_cast<ibv_pd*>(calloc(1, sizeof(ibv_pd)));
  domain->context = context;
  return domain;
}
ibv_mr* reg_mr(ibv_pd*, void*, std::size_t, int) {
  return static_cast<ibv_mr*>(calloc(1, sizeof(ibv_mr)));
}
// NCCL calls it without a domain to learn whether it exists.
ibv_mr* reg_mr_iova2(ibv_pd* domain, void*, std::size_t, std::uint64_t, unsigned) {
  return domain == nullptr ? nullptr : reg_mr(domain, nullptr, 0, 0);
}
ibv_cq* create_cq(ibv_context*, int, void*, ibv_comp_channel*, int) {
  return static_cast<ibv_cq*>(calloc(1, sizeof(ibv_cq)));
}
ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr*) {
  auto* pair = static_cast<ibv_qp*>(calloc(1, sizeof(ibv_qp)));
  pair->context = domain->context;
  return pair;
}
int modify_qp(ibv_qp* pair, ibv_qp_attr* wanted, int) {
  static const ibv_qp* const first = pair;
  if (pair != first) return 0;
  const auto add = [](const char* name, int value) {
    queue_pair += " " + std::string(name) + "=" + std::to_string(value);
  };
  if (wanted->qp_state == IBV_QPS_INIT) add("pkey", wanted->pkey_index);
  if (wanted->qp_state == IBV_QPS_RTR) {
    add("index", wanted->ah_attr.grh.sgid_index);
    add("tc", wanted->ah_attr.grh.traffic_class);
    add("sl", wanted->ah_attr.sl);
  }
  if (wanted->qp_state == IBV_QPS_RTS) {
    add("timeout", wanted->timeout);
    add("retry", wanted->retry_cnt);
  }
  return 0;
}
const char* event_type_str(int) {
  return "an event";
}

template <typename F>
void* address(F* function) {
  return reinterpret_cast<void*>(function);
}

void* verbs_function(const std::string& name) {
  static const std::map<std::string, void*> functions = {
      {"ibv_get_device_list", address(get_device_list)},
      {"ibv_free_device_list", address(succeed)},
      {"ibv_get_device_name", address(get_device_name)},
      {"ibv_open_device", address(open_device)},
      {"ibv_close_device", address(succeed)},
      {"ibv_get_async_event", address(get_async_event)},
      {"ibv_ack_async_event", address(succeed)},
      {"ibv_query_device", address(query_device)},
      {"ibv_query_port", address(query_port)},
      {"ibv_query_gid", address(query_gid)},
      {"ibv_query_qp", address(succeed)},
      {"ibv_alloc_pd", address(alloc_pd)},
      {"ibv_dealloc_pd", address(succeed)},
      {"ibv_reg_mr", address(reg_mr)},
      {"ibv_reg_mr_iova2", address(reg_mr_iova2)},
      {"ibv_dereg_mr", address(succeed)},
      {"ibv_create_cq", address(create_cq)},
      {"ibv_destroy_cq", address(succeed)},
      {"ibv_create_qp", address(create_qp)},
      {"ibv_modify_qp", address(modify_qp)},
      {"ibv_destroy_qp", address(succeed)},
      {"ibv_fork_init", address(succeed)},
      {"ibv_event_type_str", address(event_type_str)},
  };
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

void log_nothing(int, unsigned long, const char*, int, const char*, ...) {}

// Sets the variables of the fields from `first` on, NAME=VALUE each, and no other variable.
void set_environment(const Fields& fields, std::size_t first) {
  clearenv();
  for (std::size_t i = first; i < fields.size(); ++i) {
    const auto [name, value] = questions::split_first(fields[i], '=');
    setenv(name.c_str(), value.c_str(), 1);
  }
}

std::string answer_devices(const Fields& fields) {
  for (const std::string& entry : questions::parts_of(fields[0], ',')) {
    const auto [name, ports] = questions::split_first(entry, ':');
    Device& device = devices.emplace_back();
    strncpy(device.verbs.name, name.c_str(), sizeof device.verbs.name - 1);
    device.ports = std::stoi(ports);
  }
  for (const questions::Slot& slot : questions::parse_table(fields[1]))
    table[slot.index] = slot;
  // All questions of a machine would exhaust the TCP ports of one address.
  const int number = getpid();
  const std::string own = "127." + std::to_string(1 + number / 250 / 250 % 250) + "." +
                          std::to_string(1 + number / 250 % 250) + "." + std::to_string(1 + number % 250);
  netdevs = {{"lo", "up", {{own, 8, "lo"}}}};
  set_environment(fields, 2);
  setenv("NCCL_IB_MERGE_NICS", "0", 1);  // NCCL merges the ports of one PCI device, and these have none
  int count = 0;
  if (net::start(log_nothing) != 0 || ncclNetIb.devices(&count) != 0 || count == 0) return "none";
  std::string answer;
  for (int i = 0; i < count; ++i) {
    Properties properties{};
    if (ncclNetIb.get_properties(i, &properties) != 0) return "no properties";
    answer += (i == 0 ? "" : " ") + std::string(properties.name) + ":" + std::to_string(properties.port);
  }
  const bool connects = net::connect_with_itself(0) == 0 && !queue_pair.empty();
  return answer + "\t" + (connects ? queue_pair.substr(1) : "fails");
}

std::string answer_conf(const Fields& fields) {
  for (std::size_t i = 0; i < questions::kConfFileCount; ++i)
    if (!fields[i].empty()) files[questions::kConfFiles[i]] = fields[i];
  set_environment(fields, questions::kConfFileCount);
  setenv("HOME", questions::kHomeVariable, 1);
  initEnv();
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.push_back(questions::escaped(*variable));
  std::sort(variables.begin(), variables.end());
  std::string answer;
  for (const std::string& variable : variables)
    answer += (answer.empty() ? "" : "\t") + variable;
  return answer;
}

std::string answer_file(const Fields& fields) {
  files["/etc/nccl.conf"] = fields[2];
  Fields others = fields;
  others.erase(others.begin() + 2);
  return answer_devices(others);
}

std::string answer_bootstrap(const Fields& fields) {
  netdevs = questions::parse_netdevs(fields[0]);
  set_environment(fields, 1);
  char name[64] = "";
  ncclSocketAddress found{};
  int count = 0;
#if NET_API >= 11
  if (ncclFindInterfaces(name, &found, sizeof name, 1, &count) != 0) return "fails";
#else
  count = ncclFindInterfaces(name, &found, sizeof name, 1);
#endif
  if (count <= 0) return "none";
  char text[INET6_ADDRSTRLEN] = "";
  const void* const bytes =
      found.any.sa_family == AF_INET ? static_cast<void*>(&found.v4.sin_addr) : &found.v6.sin6_addr;
  inet_ntop(found.any.sa_family, bytes, text, sizeof text);
  for (const questions::Netdev& netdev : netdevs) {
    for (const questions::Address& own : netdev.addresses)
      if (own.text == text) return netdev.name;
  }
  return "an address of no netdev";
}

struct Mode {
  const char* name;
  std::string (*answer)(const Fields&);
};
constexpr Mode modes[] = {
    {"devices", answer_devices}, {"file", answer_file}, {"conf", answer_conf}, {"bootstrap", answer_bootstrap}};

// Returns the answer of a child process.
std::string answer_apart(const Mode& mode, const std::string& line) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe: " + std::string(strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    if (freopen("/dev/null", "w", stdout) == nullptr) _exit(1);  // NCCL's log
    const std::string answer = mode.answer(questions::fields_of(line));
    const bool whole = write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
    _exit(whole ? 0 : 1);
  }
  close(ends[1]);
  std::string answer;
  char part[65536];
  for (ssize_t size = 0; (size = read(ends[0], part, sizeof part)) > 0;)
    answer.append(part, static_cast<std::size_t>(size));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? answer : "ended " + std::to_string(status);
}

ifaddrs* new_entry(const questions::Netdev& netdev, const questions::Address& own, int family) {
  auto* entry = static_cast<ifaddrs*>(calloc(1, sizeof(ifaddrs)));
  entry->ifa_name = strdup(own.label.c_str());
  entry->ifa_flags = netdev.name == "lo" ? IFF_LOOPBACK : 0;
  if (netdev.state != "down") entry->ifa_flags |= IFF_UP;
  if (netdev.state == "up") entry->ifa_flags |= IFF_RUNNING;
  auto* address = static_cast<ncclSocketAddress*>(calloc(1, sizeof(ncclSocketAddress)));
  auto* mask = static_cast<ncclSocketAddress*>(calloc(1, sizeof(ncclSocketAddress)));
  address->any.sa_family = mask->any.sa_family = static_cast<sa_family_t>(family);
  auto* const bytes = reinterpret_cast<unsigned char*>(family == AF_INET ? static_cast<void*>(&address->v4.sin_addr)
                                                                         : &address->v6.sin6_addr);
  auto* const bits = reinterpret_cast<unsigned char*>(family == AF_INET ? static_cast<void*>(&mask->v4.sin_addr)
                                                                        : &mask->v6.sin6_addr);
  inet_pton(family, own.text.c_str(), bytes);
  for (unsigned bit = 0; bit < own.prefix; ++bit)
    bits[bit / 8] = static_cast<unsigned char>(bits[bit / 8] | 0x80U >> bit % 8);
  entry->ifa_addr = &address->any;
  entry->ifa_netmask = &mask->any;
  return entry;
}

constexpr int kTypeFile = 100000;  // plus an index: the descriptor of gid_attrs/types/INDEX

}  // namespace

extern "C" {

int cudaGetDevice(int* number) {
  *number = 0;
  return 0;
}
void nccl_net_trap() {
  fprintf(stderr, "nccl_rules: NCCL called a function of CUDA or of its GPU kernels\n");
  abort();
}

void* __wrap_dlopen(const char* name, int) {
  static int verbs_library = 0;
  return name != nullptr && strncmp(name, "libibverbs", 10) == 0 ? &verbs_library : nullptr;
}
// NCCL reads it after a failed dlopen().
char* __wrap_dlerror() {
  static char text[] = "there is no such library";
  return text;
}
void* __wrap_dlvsym(void*, const char* name, const char*) {
  return verbs_function(name);
}

// As glibc: the addresses of all netdevs, first IPv4, then IPv6. An IPv6 address has the name of its netdev.
int __wrap_getifaddrs(ifaddrs** list) {
  *list = nullptr;
  ifaddrs** last = list;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const questions::Netdev& netdev : netdevs) {
      for (const questions::Address& own : netdev.addresses) {
        if ((own.text.find(':') != std::string::npos) != (family == AF_INET6)) continue;
        *last = new_entry(netdev, own, family);
        last = &(*last)->ifa_next;
      }
    }
  }
  return 0;
}
void __wrap_freeifaddrs(ifaddrs*) {}

passwd* __wrap_getpwuid(uid_t) {
  static char home[] = "/home/passwd";
  static passwd user{};
  user.pw_dir = home;
  return &user;
}

FILE* __real_fopen(const char*, const char*);
FILE* __wrap_fopen(const char* path, const char* mode) {
  const auto found = files.find(path);
  if (found != files.end()) return fmemopen(found->second.data(), found->second.size(), "r");
  const std::string suffix = "nccl.conf";
  const std::string text = path;
  const bool is_conf =
      text.size() >= suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
  if (!is_conf) return __real_fopen(path, mode);
  errno = ENOENT;
  return nullptr;
}

int __real_open(const char*, int, ...);
int __wrap_open(const char* path, int flags, ...) {
  const char* const types = strstr(path, "/gid_attrs/types/");
  return types == nullptr ? __real_open(path, flags, 0600) : kTypeFile + atoi(types + 17);
}
ssize_t __real_read(int, void*, std::size_t);
ssize_t __wrap_read(int file, void* into, std::size_t size) {
  if (file < kTypeFile) return __real_read(file, into, size);
  const auto found = table.find(file - kTypeFile);
  const char type = found == table.end() ? 'e' : found->second.type;
  if (type == 'e') {
    errno = EINVAL;
    return -1;
  }
  const std::string text = type == '1' ? "IB/RoCE v1\n" : "RoCE v2\n";
  const std::size_t length = std::min(size, text.size());
  memcpy(into, text.data(), length);
  return static_cast<ssize_t>(length);
}
int __real_close(int);
int __wrap_close(int file) {
  return file < kTypeFile ? __real_close(file) : 0;
}
}

int main(int count, char** arguments) {
  for (const Mode& mode : modes) {
    if (count != 2 || strcmp(arguments[1], mode.name) != 0) continue;
    std::string line;
    while (std::getline(std::cin, line))
      std::cout << answer_apart(mode, line) << "\n" << std::flush;
    return 0;
  }
  fprintf(stderr, "usage: nccl_rules devices|file|conf|bootstrap < QUESTIONS\n");
  return 2;
}
