#include "fabric/provider_abi.hpp"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fabric/elf_file.hpp"

namespace fabric {
namespace {

constexpr unsigned kMostNames = 64;  // limit of the places that look like the structure
constexpr std::uint64_t kWord = ElfFile::kWord;
constexpr std::size_t kStructWords = 9;  // words of verbs_device_ops

using Words = ElfFile::Words;

// Returns a copy of the entry, which may have any type.
template <typename Entry>
Entry entry_at(const Words& words, std::size_t index) {
  static_assert(sizeof(Entry) % kWord == 0);
  Entry entry;
  std::memcpy(&entry, words.data() + index * (sizeof(Entry) / kWord), sizeof entry);
  return entry;
}

template <typename Entry>
std::size_t count_of(const Words& words) {
  return words.size() * kWord / sizeof(Entry);
}

class ProviderFile {
 public:
  explicit ProviderFile(int file) : file_(file), elf_(file) {}

  std::optional<AbiRange> find(std::string_view name) {
    relative_ = elf_.machine() == EM_X86_64 ? R_X86_64_RELATIVE : R_AARCH64_RELATIVE;
    read_relocations();
    for (const Elf64_Phdr& header : elf_.headers())
      if (header.p_type == PT_LOAD && (header.p_flags & PF_W) != 0) search(header, name);
    return is_certain_ && names_ <= kMostNames ? found_ : std::nullopt;
  }

 private:
  void read_relocations() {
    const auto table = [&](std::int64_t start, std::int64_t size) {
      const std::uint64_t bytes = elf_.dynamic(size).value_or(0);
      return bytes > 0 ? elf_.read(elf_.offset_of(elf_.dynamic(start).value_or(0)), bytes) : Words();
    };
    rela_ = table(DT_RELA, DT_RELASZ);
    relr_ = table(DT_RELR, DT_RELRSZ);
  }

  // Marks the word at an address of the current segment as a pointer. value: the pointer; nullptr: the word has it.
  void mark(std::uint64_t address, const std::uint64_t* value) {
    const std::uint64_t distance = address - address_;
    if (distance % kWord != 0 || distance / kWord >= words_.size()) return;
    is_pointer_[distance / kWord] = 1;
    if (value) words_[distance / kWord] = *value;
  }

  // Relocates the current segment to the load address 0.
  void relocate() {
    for (std::size_t i = 0; i < count_of<Elf64_Rela>(rela_); ++i) {
      const auto entry = entry_at<Elf64_Rela>(rela_, i);
      // The value of another type depends on symbols. The pointer to the provider's name does not.
      const bool is_relative = ELF64_R_TYPE(entry.r_info) == relative_;
      const auto value = is_relative ? static_cast<std::uint64_t>(entry.r_addend) : UINT64_MAX;
      mark(entry.r_offset, &value);
    }
    // DT_RELR: an even entry is an address. An odd entry has one bit for each of the 63 words that follow.
    std::uint64_t next = 0;
    for (const std::uint64_t entry : relr_) {
      if (entry % 2 == 0) mark(entry, nullptr);
      for (unsigned bit = 1; entry % 2 == 1 && bit < 64; ++bit)
        if ((entry >> bit & 1) != 0) mark(next + (bit - 1) * kWord, nullptr);
      next = entry % 2 == 0 ? entry + kWord : next + 63 * kWord;
    }
  }

  // Searches a writable segment.
  void search(const Elf64_Phdr& header, std::string_view name) {
    address_ = header.p_vaddr;
    words_ = elf_.read(header.p_offset, header.p_filesz);
    is_pointer_.assign(words_.size(), 0);
    relocate();
    for (std::size_t at = 0; at + kStructWords <= words_.size(); ++at) {
      const auto range = range_at(at);
      if (!range || ++names_ > kMostNames || !is_name(words_[at], name)) continue;
      is_certain_ &= !found_ || found_ == range;
      found_ = range;
    }
  }

  // Returns the range if the words look like verbs_device_ops: a pointer, two small numbers, and another pointer.
  std::optional<AbiRange> range_at(std::size_t at) const {
    if (is_pointer_[at] == 0 || is_pointer_[at + 1] != 0) return std::nullopt;
    const AbiRange range{static_cast<unsigned>(words_[at + 1]), static_cast<unsigned>(words_[at + 1] >> 32)};
    // Zeros follow many pointers, and no provider accepts only version 0. INT_MAX: every version.
    const bool is_range = range.min <= range.max && range.max > 0 && (range.max < 256 || range.max == INT_MAX);
    const char* rest = is_pointer_.data() + at;
    const bool has_more = std::find(rest + 2, rest + kStructWords, 1) != rest + kStructWords;
    return is_range && has_more ? std::optional(range) : std::nullopt;
  }

  // Returns true if the address has the provider's name, or its last part: libvmw_pvrdma calls itself "pvrdma".
  bool is_name(std::uint64_t address, std::string_view name) const {
    char text[64];
    const ssize_t count = ::pread(file_, text, sizeof text - 1, static_cast<off_t>(elf_.offset_of(address)));
    if (count <= 0) return false;
    text[count] = '\0';
    // A name that the end of the file cuts off does not count: libibverbs would read on.
    const std::string_view read = text;
    if (read.size() == static_cast<std::size_t>(count)) return false;
    return read == name || read == name.substr(name.rfind('_') + 1);
  }

  int file_;
  ElfFile elf_;
  unsigned relative_ = 0;
  unsigned names_ = 0;
  bool is_certain_ = true;  // false: two structures have different ranges
  std::optional<AbiRange> found_;
  Words rela_;
  Words relr_;
  // The next members describe the current segment.
  std::uint64_t address_ = 0;
  Words words_;
  std::vector<char> is_pointer_;  // 1: a relocation changes the word
};

}  // namespace

std::optional<AbiRange> read_provider_abi(int file, std::string_view name) {
  return ProviderFile(file).find(name);
}

}  // namespace fabric
