// Reads the parts of a shared library that name what it needs: other libraries, and versions of their symbols. The
// author of an image may control the file, so each read is bounded. ELF of 64 bits, little-endian, x86-64 and AArch64
// (System V ABI, "Program Header", "Dynamic Section"; Linux Standard Base 5.0, "Symbol Versioning").
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fabric {

class ElfFile {
 public:
  // A part of the file in words of one type, because each structure of ELF that is read consists of whole words.
  using Words = std::vector<std::uint64_t>;
  static constexpr std::uint64_t kWord = sizeof(std::uint64_t);

  // file: an open regular file, which must outlive the object. If the file is no such ELF file, the object has no
  // parts.
  explicit ElfFile(int file);

  unsigned machine() const { return machine_; }  // EM_X86_64, ...; EM_NONE: the file is no such ELF file
  const std::vector<Elf64_Phdr>& headers() const { return headers_; }

  // Reads a part of the file. Returns no words if the file is shorter, or the part is larger than 256 KiB.
  Words read(std::uint64_t offset, std::uint64_t bytes) const;
  // Returns the offset in the file of an address, UINT64_MAX if no segment has it.
  std::uint64_t offset_of(std::uint64_t address) const;
  // Returns the value of the first entry with this tag in the dynamic section, nullopt if there is none.
  std::optional<std::uint64_t> dynamic(std::int64_t tag) const;

  // Returns the names of the libraries that the file needs (DT_NEEDED).
  std::vector<std::string> needed();

  // A version that the library needs of another one: {"libc.so.6", "GLIBC_2.34"}.
  struct Need {
    std::string library;
    std::string version;
    unsigned index = 0;  // the number by which the file's symbols refer to this version
    friend bool operator==(const Need&, const Need&) = default;
  };
  std::vector<Need> needed_versions();
  // Returns the versions of the file's own symbols: "GLIBC_2.2.5", ..., and its SONAME, which is the first by
  // convention.
  std::vector<std::string> versions();
  std::string soname();  // empty: the file has no SONAME

  // Returns the names of the symbols that the file needs of this library, without weak symbols.
  std::set<std::string> symbols_of(const std::string& library);
  // Returns the names of the symbols that the file defines.
  std::set<std::string> symbols();

 private:
  template <typename Part>
  std::optional<Part> part_at(std::uint64_t offset) const;
  std::vector<Elf64_Sym> symbol_table() const;
  const std::string& strings();
  std::string name_at(std::uint64_t index);  // the name at this index of strings(); empty: none

  int file_;
  unsigned machine_ = EM_NONE;
  std::uint64_t sections_ = 0;  // offset of the section headers
  unsigned section_count_ = 0;
  std::vector<Elf64_Phdr> headers_;
  std::vector<Elf64_Dyn> dynamic_;
  std::string strings_;
};

}  // namespace fabric
