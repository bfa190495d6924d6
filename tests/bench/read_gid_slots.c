// The floor of rdma-init: reads GID, type and netdev of every slot of every GID table, with one open, read and close
// each, relative to open directories. The first GID that cannot be opened ends a table. Nothing is interpreted or
// printed.
//
// read_gid_slots [--count]   --count prints the number of slots
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int open_directory(int parent, const char* name) {
  return openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// Returns the number of bytes, or -1 if there is no such file.
static ssize_t read_attribute(int directory, const char* name, char* buffer, size_t size) {
  const int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t count = read(fd, buffer, size);
  close(fd);
  return count;
}

static unsigned read_table(int port) {
  const int gids = open_directory(port, "gids");
  const int types = open_directory(port, "gid_attrs/types");
  const int ndevs = open_directory(port, "gid_attrs/ndevs");
  unsigned slots = 0;
  if (gids >= 0) {
    for (;; ++slots) {
      char name[16];
      char value[4096];
      snprintf(name, sizeof name, "%u", slots);
      if (read_attribute(gids, name, value, sizeof value) < 0) break;
      read_attribute(types, name, value, sizeof value);
      read_attribute(ndevs, name, value, sizeof value);
    }
  }
  close(gids);
  close(types);
  close(ndevs);
  return slots;
}

static unsigned read_below(int parent, const char* name, unsigned (*read_entry)(int, const char*)) {
  const int fd = open_directory(parent, name);
  DIR* directory = fd < 0 ? NULL : fdopendir(fd);
  if (!directory) return 0;
  unsigned slots = 0;
  for (const struct dirent* entry = readdir(directory); entry; entry = readdir(directory)) {
    if (entry->d_name[0] != '.') slots += read_entry(fd, entry->d_name);
  }
  closedir(directory);
  return slots;
}

static unsigned read_port(int ports, const char* name) {
  const int port = open_directory(ports, name);
  if (port < 0) return 0;
  const unsigned slots = read_table(port);
  close(port);
  return slots;
}

static unsigned read_hca(int infiniband, const char* name) {
  const int hca = open_directory(infiniband, name);
  if (hca < 0) return 0;
  const unsigned slots = read_below(hca, "ports", read_port);
  close(hca);
  return slots;
}

int main(int argc, char** argv) {
  const unsigned slots = read_below(AT_FDCWD, "/sys/class/infiniband", read_hca);
  if (argc > 1 && strcmp(argv[1], "--count") == 0) printf("%u\n", slots);
  return 0;
}
