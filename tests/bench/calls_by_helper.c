/* System calls that valgrind 3.19 does not support, made by counts_helper.py: functions for the linker's --wrap. Each
 * call is made with the descriptors and, for move_mount(2), in the mount namespace of this process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#if __has_include(<valgrind/callgrind.h>)
#include <pthread.h>
#include <valgrind/callgrind.h>

/* callgrind copies the count of the parent to a child: without this, both would count the start. */
static void count_from_zero(void) {
  CALLGRIND_ZERO_STATS;
}

__attribute__((constructor)) static void prepare_forks(void) {
  pthread_atfork(NULL, NULL, count_from_zero);
}
#endif

/* The layout is known to counts_helper.py. */
struct request {
  int call, pid;
  unsigned flags, size;
  unsigned long long words[4]; /* of struct mount_attr or struct open_how */
  char path[1024];
};

static const char kHelper[] = "\0rdma-bench-calls"; /* an abstract address, which every mount namespace reaches */

static void pass(struct msghdr* message, const int* descriptors, size_t count) {
  struct cmsghdr* header = CMSG_FIRSTHDR(message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(count * sizeof *descriptors);
  memcpy(CMSG_DATA(header), descriptors, count * sizeof *descriptors);
  message->msg_controllen = CMSG_SPACE(count * sizeof *descriptors);
}

/* Returns the result of the call, which is a descriptor of this process if the call opens one. */
static int ask(struct request* request, const int* descriptors, size_t count) {
  struct sockaddr_un helper = {.sun_family = AF_UNIX};
  int answer = ENOSYS;
  int result = -1;
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
  struct iovec data = {request, sizeof *request};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  memcpy(helper.sun_path, kHelper, sizeof kHelper - 1);
  request->pid = getpid();
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    pass(&message, descriptors, count);
  }
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof kHelper - 1);
  if (fd < 0 || connect(fd, (const struct sockaddr*)&helper, length) != 0 || sendmsg(fd, &message, 0) < 0) _exit(99);
  data = (struct iovec){&answer, sizeof answer};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof answer) _exit(99);
  close(fd);
  if (answer != 0) {
    errno = answer;
    return -1;
  }
  const struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (!header) return 0;
  memcpy(&result, CMSG_DATA(header), sizeof result);
  return result;
}

/* Returns the descriptor, or that of the working directory, which stays open, for AT_FDCWD. */
static int base(int dfd) {
  return dfd == AT_FDCWD ? open(".", O_PATH | O_DIRECTORY | O_CLOEXEC) : dfd;
}

static void set_path(struct request* request, const char* path) {
  if (strlen(path) >= sizeof request->path) _exit(99);
  strcpy(request->path, path);
}

int __wrap_open_tree(int dfd, const char* path, unsigned flags) {
  struct request request = {.call = SYS_open_tree, .flags = flags};
  const int from = base(dfd);
  set_path(&request, path);
  return ask(&request, &from, 1);
}

int __wrap_mount_setattr(int dfd, const char* path, unsigned flags, const struct mount_attr* attributes, size_t size) {
  struct request request = {.call = SYS_mount_setattr, .flags = flags, .size = (unsigned)size};
  set_path(&request, path);
  memcpy(request.words, attributes, size);
  return ask(&request, &dfd, 1);
}

int __wrap_move_mount(int from, const char* from_path, int to, const char* to_path, unsigned flags) {
  struct request request = {.call = SYS_move_mount, .flags = flags};
  const int both[] = {from, base(to)};
  if (*from_path) _exit(99);
  set_path(&request, to_path);
  return ask(&request, both, 2);
}

long __real_syscall(long number, ...);

long __wrap_syscall(long number, ...) {
  va_list list;
  long words[6];
  va_start(list, number);
  for (int i = 0; i < 6; ++i)
    words[i] = va_arg(list, long);
  va_end(list);
  struct request request = {.call = (int)number};
  if (number == SYS_openat2) {
    const int from = base((int)words[0]);
    set_path(&request, (const char*)words[1]);
    request.size = (unsigned)words[3];
    memcpy(request.words, (const void*)words[2], sizeof(struct open_how));
    return ask(&request, &from, 1);
  }
  if (number == SYS_pidfd_open) {
    request.flags = (unsigned)words[0];
    return ask(&request, NULL, 0);
  }
  return __real_syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
