/* The floor of rdma-runtime create, for a container that requests mlx5_0 to mlx5_HCAS-1: its record, its view of
 * /sys/class, and a new config.json in place of the engine's; then it executes the runtime. Left out: every decision,
 * the edit of config.json, the copy of the engine's file, the configuration, other owners, the log and counters.
 *
 * floor_runtime_create RUNTIME LEDGER HCAS BUNDLE */
#include "floor.h"

int main(int argc, char** argv) {
  static char text[65536];
  struct hca hcas[kMostHcas];
  unsigned cm_major = 0, cm_minor = 0;
  const unsigned count = argc == 5 ? (unsigned)atoi(argv[3]) : kMostHcas + 1;
  if (count > kMostHcas) return 2;
  must(chdir(argv[4]), argv[4]);
  read_file("config.json", text, sizeof text);
  if (count > 0) {
    write_new("config.json.new", text);
    must(rename("config.json.new", "config.json"), "config.json");
    book(argv[2], count, hcas, &cm_major, &cm_minor);
  }
  char* const arguments[] = {argv[1], NULL};
  execv(argv[1], arguments);
  return 127;
}
