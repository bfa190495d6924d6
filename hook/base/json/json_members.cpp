#include "hook/base/json/json_members.hpp"

namespace hook {

using fabric::Result;

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

fabric::Error wrong_member(const char* name) {
  return fabric::make_error("`{}` is missing or wrong", name);
}

Result<std::string> text_at(const Json& object, const char* name) {
  const Json* value = member(object, name);
  const auto* text = value ? value->get_ptr<const std::string*>() : nullptr;
  if (!text) return wrong_member(name);
  return *text;
}

Result<std::uint64_t> number_at(const Json& object, const char* name, std::uint64_t most) {
  const Json* value = member(object, name);
  if (!value || !value->is_number_unsigned() || value->get<std::uint64_t>() > most) return wrong_member(name);
  return value->get<std::uint64_t>();
}

Result<bool> truth_at(const Json& object, const char* name) {
  const Json* value = member(object, name);
  if (!value || !value->is_boolean()) return wrong_member(name);
  return value->get<bool>();
}

}  // namespace hook
