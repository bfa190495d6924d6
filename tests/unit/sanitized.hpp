#pragma once

// Whether this is a build with AddressSanitizer. Its run-time library maps memory, opens descriptors and makes system
// calls of its own; a test that counts or forbids these skips.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kIsSanitized = __has_feature(address_sanitizer);
#else
inline constexpr bool kIsSanitized = false;
#endif
