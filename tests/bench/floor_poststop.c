/* The floor of rdma-hook poststop: removes the record of floor_create_runtime, if there is one. Left out: the owner of
 * the record, the pod's grant, rails, the sandbox, log and counters.
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
  read_file(path_of("%s/config.json", bundle), text,
            sizeof text); /* rdma-hook reads it, because the owner can be a pod */
  lock_ledger(argv[1]);
  if (unlink("floor.record") != 0) return errno != ENOENT;
  return 0;
}
