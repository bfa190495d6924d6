// Keeps the search path of shared objects out of the static programs, which open none. Each start would set it up: 20
// kB and memory for the names, and a readlink(2) of the program's own directory ($ORIGIN). The definitions are weak. If
// another glibc has other names, or a program opens shared objects anyway, glibc's own are used.
// Source: elf/dl-support.c of glibc 2.36.

// NOLINTBEGIN(bugprone-reserved-identifier)

extern "C" {

[[gnu::weak]] void _dl_init_paths(const char* preload, const char* source, const char* hwcaps, const char* mask);
[[gnu::weak]] void _dl_init_paths(const char*, const char*, const char*, const char*) {}

[[gnu::weak]] const char* _dl_get_origin();
[[gnu::weak]] const char* _dl_get_origin() {
  return reinterpret_cast<const char*>(-1);  // unknown
}

}  // extern "C"

// NOLINTEND(bugprone-reserved-identifier)
