// Functions that glibc 2.31 lacks. The static libstdc++ and libgcc of the compiler, and fabric/, call them.
#include "init/ping/older_glibc.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

// NOLINTBEGIN(bugprone-reserved-identifier)

extern "C" {

#if !__GLIBC_PREREQ(2, 35)  // dlfcn.h
struct dl_find_object {
  unsigned long long dlfo_flags;
  void* dlfo_map_start;
  void* dlfo_map_end;
  link_map* dlfo_link_map;
  void* dlfo_eh_frame;
  unsigned long long reserved[7];
};
int _dl_find_object(void* address, dl_find_object* found) noexcept;
#endif

}  // extern "C"

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* found;
};

int visit_object(dl_phdr_info* object, std::size_t, void* data) {
  const auto* search = static_cast<const Search*>(data);
  const ElfW(Phdr)* eh_frame = nullptr;
  const ElfW(Phdr)* segment = nullptr;
  for (const ElfW(Phdr)* header = object->dlpi_phdr; header != object->dlpi_phdr + object->dlpi_phnum; ++header) {
    const std::uintptr_t start = object->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_GNU_EH_FRAME) eh_frame = header;
    if (header->p_type == PT_LOAD && search->address - start < header->p_memsz) segment = header;
  }
  if (!eh_frame || !segment) return 0;
  const auto at = [object](std::uintptr_t address) { return reinterpret_cast<void*>(object->dlpi_addr + address); };
  *search->found = {};
  search->found->dlfo_map_start = at(segment->p_vaddr);
  search->found->dlfo_map_end = at(segment->p_vaddr + segment->p_memsz);
  search->found->dlfo_eh_frame = at(eh_frame->p_vaddr);
  return 1;
}

}  // namespace

extern "C" {

// rdma-ping prints no name of an error number. The caller writes the number in place of a missing name.
const char* strerrorname_np(int /*code*/) noexcept {
  return nullptr;
}

// glibc 2.32. Non-zero permits libstdc++ to count references without atomic instructions.
extern char __libc_single_threaded;
char __libc_single_threaded = 0;

// glibc 2.35. The unwinder of libgcc 12 finds the tables of an address with it.
int _dl_find_object(void* address, dl_find_object* found) noexcept {
  Search search{reinterpret_cast<std::uintptr_t>(address), found};
  return dl_iterate_phdr(visit_object, &search) == 1 ? 0 : -1;
}

}  // extern "C"

// NOLINTEND(bugprone-reserved-identifier)
