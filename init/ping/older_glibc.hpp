// Names that fabric/ and init/ use and glibc 2.31 lacks. The compiler includes it before each file of rdma-ping, if
// RDMA_INIT_GLIBC_ROOT is set.
#pragma once

#include <asm/unistd.h>
#include <elf.h>

#ifndef DT_RELR  // glibc 2.36
#define DT_RELRSZ 35
#define DT_RELR 36
#endif
#ifndef SYS_openat2  // in step with the kernel's headers of glibc's own build
#define SYS_openat2 __NR_openat2
#endif
#ifndef SYS_close_range
#define SYS_close_range __NR_close_range
#endif

extern "C" const char* strerrorname_np(int code) noexcept;  // glibc 2.32
