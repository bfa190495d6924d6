#include "fabric/elf_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace fabric {
namespace {

constexpr std::uint64_t kMostBytes = 256 << 10;  // limit of a table or a segment in bytes; libmlx5 has 8 kB
constexpr unsigned kMostHeaders = 64;            // limit of program headers; libmlx5 has 9
constexpr unsigned kMostSections = 128;          // limit of sections; libibverbs has 31
constexpr unsigned kMostVersions = 1024;         // limit for one file; libc of glibc 2.41 has 46
constexpr std::size_t kLongestName = 255;

}  // namespace

template <typename Part>
std::optional<Part> ElfFile::part_at(std::uint64_t offset) const {
  Part part;
  if (offset > INT64_MAX) return std::nullopt;
  const ssize_t count = ::pread(file_, &part, sizeof part, static_cast<off_t>(offset));
  return count == static_cast<ssize_t>(sizeof part) ? std::optional(part) : std::nullopt;
}

ElfFile::ElfFile(int file) : file_(file) {
  const auto header = part_at<Elf64_Ehdr>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_phentsize != sizeof(Elf64_Phdr) ||
      header->e_phnum > kMostHeaders || (header->e_machine != EM_X86_64 && header->e_machine != EM_AARCH64)) {
    return;
  }
  machine_ = header->e_machine;
  sections_ = header->e_shoff;
  section_count_ = header->e_shentsize == sizeof(Elf64_Shdr) ? header->e_shnum : 0;
  headers_.resize(header->e_phnum);
  const auto size = static_cast<ssize_t>(headers_.size() * sizeof(Elf64_Phdr));
  if (::pread(file_, headers_.data(), headers_.size() * sizeof(Elf64_Phdr), static_cast<off_t>(header->e_phoff)) !=
      size)
    headers_.clear();
  const auto dynamic = std::ranges::find(headers_, static_cast<Elf64_Word>(PT_DYNAMIC), &Elf64_Phdr::p_type);
  if (dynamic == headers_.end()) return;
  const Words words = read(dynamic->p_offset, dynamic->p_filesz);
  for (std::size_t i = 0; i + 1 < words.size() && words[i] != DT_NULL; i += 2) {
    Elf64_Dyn entry{};
    entry.d_tag = static_cast<Elf64_Sxword>(words[i]);
    entry.d_un.d_val = words[i + 1];
    dynamic_.push_back(entry);
  }
}

ElfFile::Words ElfFile::read(std::uint64_t offset, std::uint64_t bytes) const {
  if (bytes > kMostBytes) return {};
  Words words(bytes / kWord);
  const auto size = static_cast<ssize_t>(words.size() * kWord);
  if (::pread(file_, words.data(), words.size() * kWord, static_cast<off_t>(offset)) != size) words.clear();
  return words;
}

std::uint64_t ElfFile::offset_of(std::uint64_t address) const {
  for (const Elf64_Phdr& header : headers_) {
    if (header.p_type == PT_LOAD && address - header.p_vaddr < header.p_filesz)
      return header.p_offset + (address - header.p_vaddr);
  }
  return UINT64_MAX;
}

std::optional<std::uint64_t> ElfFile::dynamic(std::int64_t tag) const {
  const auto found = std::ranges::find(dynamic_, tag, &Elf64_Dyn::d_tag);
  return found == dynamic_.end() ? std::nullopt : std::optional<std::uint64_t>(found->d_un.d_val);
}

// Reads the strings when the first name is wanted: a search of a structure wants none.
const std::string& ElfFile::strings() {
  const std::uint64_t size = strings_.empty() ? dynamic(DT_STRSZ).value_or(0) : 0;
  if (size == 0 || size > kMostBytes) return strings_;
  strings_.resize(size);
  const std::uint64_t start = offset_of(dynamic(DT_STRTAB).value_or(UINT64_MAX));
  if (::pread(file_, strings_.data(), size, static_cast<off_t>(start)) != static_cast<ssize_t>(size)) strings_.clear();
  return strings_;
}

std::string ElfFile::name_at(std::uint64_t index) {
  const std::string& names = strings();
  if (index >= names.size()) return {};
  const std::size_t end = names.find('\0', index);
  return end == std::string::npos || end - index > kLongestName ? std::string() : names.substr(index, end - index);
}

std::vector<std::string> ElfFile::needed() {
  std::vector<std::string> names;
  for (const Elf64_Dyn& entry : dynamic_)
    if (entry.d_tag == DT_NEEDED) names.push_back(name_at(entry.d_un.d_val));
  return names;
}

std::vector<ElfFile::Need> ElfFile::needed_versions() {
  std::vector<Need> needs;
  std::uint64_t at = offset_of(dynamic(DT_VERNEED).value_or(UINT64_MAX));
  for (std::uint64_t left = dynamic(DT_VERNEEDNUM).value_or(0); left > 0; --left) {
    const auto library = part_at<Elf64_Verneed>(at);
    if (!library) break;
    std::uint64_t aux = at + library->vn_aux;
    for (unsigned i = 0; i < library->vn_cnt && needs.size() < kMostVersions; ++i) {
      const auto version = part_at<Elf64_Vernaux>(aux);
      if (!version) break;
      needs.push_back({name_at(library->vn_file), name_at(version->vna_name), version->vna_other});
      aux += version->vna_next;
    }
    if (library->vn_next == 0 || needs.size() >= kMostVersions) break;
    at += library->vn_next;
  }
  return needs;
}

std::vector<std::string> ElfFile::versions() {
  std::vector<std::string> names;
  std::uint64_t at = offset_of(dynamic(DT_VERDEF).value_or(UINT64_MAX));
  for (std::uint64_t left = dynamic(DT_VERDEFNUM).value_or(0); left > 0 && names.size() < kMostVersions; --left) {
    const auto definition = part_at<Elf64_Verdef>(at);
    const auto name = definition ? part_at<Elf64_Verdaux>(at + definition->vd_aux) : std::nullopt;
    if (!name) break;
    names.push_back(name_at(name->vda_name));
    if (definition->vd_next == 0) break;
    at += definition->vd_next;
  }
  return names;
}

std::string ElfFile::soname() {
  const auto index = dynamic(DT_SONAME);
  return index ? name_at(*index) : std::string();
}

// The dynamic section does not state the number of symbols, so it is taken from the section header.
std::vector<Elf64_Sym> ElfFile::symbol_table() const {
  std::vector<Elf64_Sym> symbols;
  for (unsigned i = 0; i < std::min(section_count_, kMostSections); ++i) {
    const auto section = part_at<Elf64_Shdr>(sections_ + i * sizeof(Elf64_Shdr));
    if (!section || section->sh_type != SHT_DYNSYM) continue;
    const Words words = read(section->sh_offset, section->sh_size);
    symbols.resize(words.size() * kWord / sizeof(Elf64_Sym));
    if (!symbols.empty()) std::memcpy(symbols.data(), words.data(), symbols.size() * sizeof(Elf64_Sym));
    break;
  }
  return symbols;
}

std::set<std::string> ElfFile::symbols_of(const std::string& library) {
  std::set<unsigned> versions;
  for (const Need& need : needed_versions())
    if (need.library == library) versions.insert(need.index);
  const auto table = symbol_table();
  constexpr std::size_t kPerWord = kWord / sizeof(Elf64_Half);
  const Words indexes =
      read(offset_of(dynamic(DT_VERSYM).value_or(UINT64_MAX)), (table.size() + kPerWord - 1) / kPerWord * kWord);
  std::set<std::string> names;
  for (std::size_t i = 0; i < table.size() && i / kPerWord < indexes.size(); ++i) {
    constexpr unsigned kHidden = 0x8000;  // bit of a symbol's version that is not the default version
    const unsigned index = (indexes[i / kPerWord] >> (i % kPerWord * 16)) & 0xffff & ~kHidden;
    const bool is_needed = table[i].st_shndx == SHN_UNDEF && ELF64_ST_BIND(table[i].st_info) == STB_GLOBAL;
    if (is_needed && versions.contains(index)) names.insert(name_at(table[i].st_name));
  }
  return names;
}

std::set<std::string> ElfFile::symbols() {
  std::set<std::string> names;
  for (const Elf64_Sym& symbol : symbol_table())
    if (symbol.st_shndx != SHN_UNDEF) names.insert(name_at(symbol.st_name));
  return names;
}

}  // namespace fabric
