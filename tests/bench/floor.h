/* Functions of the floors: the work with the kernel that a start needs, with the fewest system calls that are safe.
 * They trust node and engine, print nothing, and leave open descriptors to the end of the process. A failure ends the
 * program, so that a floor that does less than its task is detected. */
#pragma once

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { kMostHcas = 8 };

static const char* const kViews[] = {"floor.view/infiniband", "floor.view/infiniband_verbs",
                                     "floor.view/infiniband_mad"};

struct hca {
  char name[16];
  char uverbs[64];
  char link[256];       /* target of /sys/class/infiniband/NAME */
  char verbs_link[256]; /* target of /sys/class/infiniband_verbs/UVERBS */
  unsigned major, minor;
};

static inline int must(int result, const char* what) {
  if (result < 0) {
    perror(what);
    exit(1);
  }
  return result;
}

/* Returns a path that is valid until the next call. */
static inline const char* path_of(const char* format, ...) {
  static char path[2048];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(path, sizeof path, format, arguments) >= (int)sizeof path) exit(1);
  va_end(arguments);
  return path;
}

/* Reads up to the end of the file, or size - 1 bytes, and appends a zero byte. */
static inline void read_from(int fd, char* text, size_t size) {
  size_t have = 0;
  ssize_t count = 0;
  while (have < size - 1 && (count = read(fd, text + have, size - 1 - have)) > 0)
    have += (size_t)count;
  text[have] = '\0';
}

static inline void read_file(const char* path, char* text, size_t size) {
  const int fd = must(open(path, O_RDONLY), path);
  read_from(fd, text, size);
  close(fd);
}

/* Reads the text between the quotes after "NAME": in one level of JSON. */
static inline void read_member(const char* json, const char* name, char* value, size_t size) {
  char key[64];
  snprintf(key, sizeof key, "\"%s\": \"", name);
  const char* at = strstr(json, key);
  if (!at) exit(2);
  at += strlen(key);
  snprintf(value, size, "%.*s", (int)strcspn(at, "\""), at);
}

/* Reads an attribute of sysfs, which needs only one read. */
static inline void read_attribute(const char* path, char* text, size_t size) {
  const int fd = must(open(path, O_RDONLY), path);
  text[must((int)read(fd, text, size - 1), path)] = '\0';
  close(fd);
}

static inline void read_link(const char* path, char* text, size_t size) {
  text[must((int)readlink(path, text, size - 1), path)] = '\0';
}

/* Reads a device number of sysfs. */
static inline void read_number(const char* path, unsigned* major, unsigned* minor) {
  char text[64];
  read_attribute(path, text, sizeof text);
  if (sscanf(text, "%u:%u", major, minor) != 2) exit(1);
}

/* Reads mlx5_NUMBER: its uverbs device, the device number, and the state of its port. */
static inline void read_hca(unsigned number, struct hca* hca) {
  char state[64];
  snprintf(hca->name, sizeof hca->name, "mlx5_%u", number);
  const char* path = path_of("/sys/class/infiniband/%s", hca->name);
  read_link(path, hca->link, sizeof hca->link);
  path = path_of("/sys/class/infiniband/%s/device/infiniband_verbs", hca->name);
  DIR* verbs = opendir(path);
  if (!verbs) must(-1, path);
  for (const struct dirent* entry = readdir(verbs); entry; entry = readdir(verbs)) {
    if (entry->d_name[0] != '.') snprintf(hca->uverbs, sizeof hca->uverbs, "%.32s", entry->d_name);
  }
  closedir(verbs);
  path = path_of("/sys/class/infiniband_verbs/%s", hca->uverbs);
  read_link(path, hca->verbs_link, sizeof hca->verbs_link);
  path = path_of("/sys/class/infiniband_verbs/%s/dev", hca->uverbs);
  read_number(path, &hca->major, &hca->minor);
  path = path_of("/sys/class/infiniband/%s/ports/1/state", hca->name);
  read_attribute(path, state, sizeof state);
}

/* Reads mlx5_0 to mlx5_COUNT-1, and the device number of rdma_cm. */
static inline void read_node(unsigned count, struct hca* hcas, unsigned* major, unsigned* minor) {
  for (unsigned i = 0; i < count; ++i)
    read_hca(i, &hcas[i]);
  const char* path = "/sys/class/misc/rdma_cm/dev";
  read_number(path, major, minor);
}

static inline void write_new(const char* path, const char* text) {
  const int fd = must(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), path);
  must((int)write(fd, text, strlen(text)), path);
  close(fd);
}

/* Locks the ledger in this directory until the returned descriptor is closed. The directory becomes the working
 * directory. */
static inline int lock_ledger(const char* directory) {
  must(chdir(directory), directory);
  const int lock = must(open("floor.lock", O_RDWR | O_CREAT, 0600), "floor.lock");
  must(flock(lock, LOCK_EX), "floor.lock");
  return lock;
}

/* Writes one record of the owner of these HCAs, atomically. */
static inline void write_record(const struct hca* hcas, unsigned count) {
  char text[4096] = "container:";
  for (unsigned i = 0; i < count; ++i) {
    strcat(text, " ");
    strcat(text, hcas[i].name);
  }
  write_new("floor.new", text);
  must(rename("floor.new", "floor.record"), "floor.record");
}

/* The ctimes of the view's directories: a change of their content changes them. */
static inline void view_state(char* text, size_t size) {
  size_t length = 0;
  for (unsigned i = 0; i < sizeof kViews / sizeof *kViews; ++i) {
    struct stat status;
    must(stat(kViews[i], &status), kViews[i]);
    length +=
        (size_t)snprintf(text + length, size - length, "%ld.%ld ", (long)status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
  }
}

/* Checks the view of /sys/class for containers with these HCAs: directories in the ledger with links to these HCAs. The
 * first run, which is not counted, makes it. */
static inline void use_view(const struct hca* hcas, unsigned count) {
  char now[256];
  char made[256];
  const int fd = open("floor.made", O_RDONLY);
  if (fd >= 0) {
    read_from(fd, made, sizeof made);
    close(fd);
    view_state(now, sizeof now);
    if (strcmp(now, made) != 0) exit(1);
    return;
  }
  must(mkdir("floor.view", 0755), "floor.view");
  for (unsigned i = 0; i < sizeof kViews / sizeof *kViews; ++i)
    must(mkdir(kViews[i], 0755), kViews[i]);
  write_new("floor.view/infiniband_verbs/abi_version", "6\n");
  write_new("floor.view/infiniband_mad/abi_version", "5\n");
  for (unsigned i = 0; i < count; ++i) {
    const char* path = path_of("floor.view/infiniband/%s", hcas[i].name);
    must(symlink(hcas[i].link, path), path);
    path = path_of("floor.view/infiniband_verbs/%s", hcas[i].uverbs);
    must(symlink(hcas[i].verbs_link, path), path);
  }
  view_state(made, sizeof made);
  write_new("floor.made", made);
}

/* Reads mlx5_0 to mlx5_COUNT-1 and the device number of rdma_cm, makes the record and checks the view, under the
 * ledger's lock. */
static inline void book(const char* ledger, unsigned count, struct hca* hcas, unsigned* major, unsigned* minor) {
  read_node(count, hcas, major, minor);
  const int lock = lock_ledger(ledger);
  write_record(hcas, count);
  use_view(hcas, count);
  close(lock);
}
