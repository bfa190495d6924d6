/* The floor of rdma-hook poststop: removes the record that floor_create_runtime made, or nothing when it
 * made none. Left out: whose the record is, the pod's grant, rails, the sandbox, log and counters.
 *
 * floor_poststop LEDGER < STATE */
#include <errno.h>

#include "floor.h"

int main(int argc, char** argv) {
  static char text[65536];
  char bundle[1024];
  if (argc != 2) return 2;
  read_from(0, text, sizeof text);
  read_member(text, "bundle", bundle, sizeof bundle);
  read_file(path_of("%s/config.json", bundle), text, sizeof text); /* was it in a pod? */
  lock_ledger(argv[1]);
  if (unlink("floor.record") != 0) return errno != ENOENT;
  return 0;
}
