/* The floor of rdma-nri's answer to CreateContainer and to StopContainer: reads the request, makes record and view, or
 * removes the record, and writes an answer. Left out: every decision, waiting for the request, the worker that can be
 * killed in time, the configuration, other owners, log and counters.
 *
 * floor_nri LEDGER HCAS CREATES STOPS < REQUEST > /dev/null   a stop follows each of the first STOPS creates */
#include "floor.h"

static const char kAnswer[1024];
static char request[65536];

static void answer(void) {
  must((int)write(1, kAnswer, sizeof kAnswer), "answer");
}

static void create(const char* ledger, unsigned count) {
  struct hca hcas[kMostHcas];
  unsigned cm_major = 0, cm_minor = 0;
  must((int)pread(0, request, sizeof request, 0), "request");
  if (count > 0) book(ledger, count, hcas, &cm_major, &cm_minor);
  answer();
}

static void stop(const char* ledger, unsigned count) {
  must((int)pread(0, request, sizeof request, 0), "request");
  if (count > 0) {
    const int lock = lock_ledger(ledger);
    must(unlink("floor.record"), "floor.record");
    close(lock);
  }
  answer();
}

int main(int argc, char** argv) {
  const unsigned count = argc == 5 ? (unsigned)atoi(argv[2]) : kMostHcas + 1;
  if (count > kMostHcas) return 2;
  const int creates = atoi(argv[3]);
  for (int i = 0; i < creates; ++i) {
    create(argv[1], count);
    if (i < atoi(argv[4])) stop(argv[1], count);
  }
  return 0;
}
