// fmt's own functions, compiled once for all files: fmt/core.h only declares them. Debian 12 has no static libfmt, and
// fmt's header-only variant compiles them in each file.
#include <fmt/format-inl.h>

// fmt/format.h declares these instantiations as made in fmt's library (9.1.0, 10.1.1).
FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
