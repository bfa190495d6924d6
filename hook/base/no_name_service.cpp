// libnl-3 can resolve names, and in a static program glibc does that with libraries that it loads at run time
// (nsswitch.conf): code from the file system in a process of root's that must hold none but its own. The hook resolves
// nothing; these take the place of the C library's functions, and 160 kB with them.
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
