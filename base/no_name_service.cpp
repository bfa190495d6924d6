// Replaces the resolver functions of the C library by stubs. libnl-3 can resolve names. In a static program, glibc does
// so with libraries that it loads at run time (nsswitch.conf). A process of root must not load code from the file
// system. The hook resolves no names, and the stubs save 160 kB.
#include <netdb.h>

extern "C" {

int getaddrinfo(const char*, const char*, const addrinfo*, addrinfo**) {
  return EAI_FAIL;
}

void freeaddrinfo(addrinfo*) noexcept {}

int getnameinfo(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int) {
  return EAI_FAIL;
}

const char* gai_strerror(int) noexcept {
  return "names are not resolved here";
}

protoent* getprotobyname(const char*) {
  return nullptr;
}

protoent* getprotobynumber(int) {
  return nullptr;
}

}  // extern "C"
