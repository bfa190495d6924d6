/* The floor of rdma-hook createRuntime, for a container that requests mlx5_0 to mlx5_HCAS-1: its record, its view of
 * /sys/class, device nodes, rules of its device cgroup (v1) and RLIMIT_MEMLOCK. Left out: every decision, the
 * configuration, other owners, the proof that process and rootfs are the container's, the sandbox, log and counters.
 *
 * floor_create_runtime LEDGER HCAS MEMLOCK < STATE */
#include "floor.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>

enum { kClasses = 3 };
static const char* const kSeen[kClasses] = {"sys/class/infiniband", "sys/class/infiniband_verbs",
                                            "sys/class/infiniband_mad"};
static char text[65536];

static void allow(int rules, unsigned major, unsigned minor) {
  char rule[64];
  const int length = snprintf(rule, sizeof rule, "c %u:%u rwm", major, minor);
  must((int)write(rules, rule, (size_t)length), "devices.allow");
}

/* The group is between "N:devices:" and the end of the line. */
static int open_rules(int pid) {
  const char* path = path_of("/proc/%d/cgroup", pid);
  read_file(path, text, sizeof text);
  const char* group = strstr(text, ":devices:");
  if (!group) must(-1, path);
  group += strlen(":devices:");
  path = path_of("/sys/fs/cgroup/devices%.*s/devices.allow", (int)strcspn(group, "\n"), group);
  return must(open(path, O_WRONLY), path);
}

static void enter(int pid, const char* bundle) {
  const char* path = path_of("/proc/%d/ns/mnt", pid);
  must(setns(must(open(path, O_RDONLY), path), CLONE_NEWNS), path);
  path = path_of("%s/rootfs", bundle);
  must(chdir(path), path);
}

static void make_node(const char* name, unsigned major_number, unsigned minor_number) {
  const char* path = path_of("dev/infiniband/%s", name);
  must(mknod(path, S_IFCHR | 0666, makedev(major_number, minor_number)), path);
}

int main(int argc, char** argv) {
  struct hca hcas[kMostHcas];
  char bundle[1024];
  int trees[kClasses];
  unsigned cm_major = 0, cm_minor = 0;
  const unsigned count = argc == 4 ? (unsigned)atoi(argv[2]) : kMostHcas + 1;
  if (count > kMostHcas) return 2;
  read_from(0, text, sizeof text);
  const char* pid_at = strstr(text, "\"pid\": ");
  if (!pid_at) return 2;
  const int pid = atoi(pid_at + strlen("\"pid\": "));
  read_member(text, "bundle", bundle, sizeof bundle);
  read_file(path_of("%s/config.json", bundle), text, sizeof text);
  if (count == 0) return 0;

  book(argv[1], count, hcas, &cm_major, &cm_minor);
  const int rules = open_rules(pid);
  for (unsigned i = 0; i < count; ++i)
    allow(rules, hcas[i].major, hcas[i].minor);
  allow(rules, cm_major, cm_minor);
  const rlim_t bytes = (rlim_t)strtoull(argv[3], NULL, 10);
  const struct rlimit limit = {bytes, bytes};
  must(prlimit(pid, RLIMIT_MEMLOCK, &limit, NULL), "prlimit");

  struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
  for (int i = 0; i < kClasses; ++i)
    trees[i] = must(open_tree(AT_FDCWD, kViews[i], OPEN_TREE_CLONE), kViews[i]);
  enter(pid, bundle);
  umask(0);
  must(mkdir("dev/infiniband", 0755), "dev/infiniband");
  for (unsigned i = 0; i < count; ++i)
    make_node(hcas[i].uverbs, hcas[i].major, hcas[i].minor);
  make_node("rdma_cm", cm_major, cm_minor);
  for (int i = 0; i < kClasses; ++i) {
    must(mount_setattr(trees[i], "", AT_EMPTY_PATH, &read_only, sizeof read_only), kViews[i]);
    must(move_mount(trees[i], "", AT_FDCWD, kSeen[i], MOVE_MOUNT_F_EMPTY_PATH), kSeen[i]);
  }
  return 0;
}
