/* The largest resident set of a command in KiB, on standard output: `shim_peak COMMAND [ARGUMENT...]`. A process begins
 * with the peak of who starts it, so this is a small static program. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  struct rusage usage;
  int status = 0;
  pid_t pid;
  if (argc < 2) return 2;
  pid = vfork();
  if (pid == 0) {
    execv(argv[1], argv + 1);
    _exit(127);
  }
  if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || status != 0) return 1;
  printf("%ld", usage.ru_maxrss);
  return 0;
}
