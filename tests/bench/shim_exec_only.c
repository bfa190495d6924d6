/* The floor for a wrapper of a runtime: a static program that executes $EXEC_ONLY_RUNTIME with its own arguments. */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const char* runtime = getenv("EXEC_ONLY_RUNTIME");
  (void)argc;
  if (runtime == NULL) return 127;
  execv(runtime, argv);
  return 127;
}
