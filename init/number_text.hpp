// Numbers as text, for left_out.cpp: the parts of printf() and strtod() that the program uses.
#pragma once
#include <cstdarg>
#include <cstddef>

namespace init {

// Writes a format with unsigned numbers as snprintf() does: `to` gets at most `size` bytes, with a zero byte at the
// end. The format can have the conversions %u, %x and %X, and before the letter 0 or a dot with the least number of
// digits ("%04x", "%.2X"). Aborts the program at any other conversion, because a wrong text would go unnoticed. Returns
// the length of the whole text, without the zero byte.
int print_numbers(char* to, std::size_t size, const char* format, va_list arguments);

// Returns the decimal number at the start of a text as strtod() does. The text has the form of a number in JSON, with a
// point. A number of at most 15 digits with an exponent of at most 22 is rounded exactly, another one to the last bit
// of a double or the one next to it. A number beyond the range is infinite or 0. *end becomes the first character after
// the number.
double read_json_number(const char* text, char** end);

}  // namespace init
