/* The floor for a hook: a static program that reads its standard input to the end, as crun requires, and ends. */
#include <unistd.h>

int main(void) {
  char buffer[4096];
  while (read(STDIN_FILENO, buffer, sizeof buffer) > 0) {
  }
  return 0;
}
