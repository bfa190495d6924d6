// Any bytes as an answer of the API server: as HTTP in pieces of any size, and its body as a list of ResourceSlices.
#include "require.hpp"
#include "shim/dra/api/http_answer.hpp"
#include "shim/dra/api/publication.hpp"
#include "shim/dra/slices.hpp"

namespace {

using base::Json;
using fuzz::require;

// Returns the body of the first answer; an empty text for an answer that is refused or not complete.
std::string body_of(std::string_view text, std::size_t piece) {
  shim::HttpReader reader;
  std::string body;
  for (std::size_t at = 0; at < text.size() && !reader.is_complete(); at += piece) {
    if (const auto done = reader.add(text.substr(at, piece)); !done) {
      fuzz::require_refusal(done.error(), "the refusal of an answer");
      return {};
    }
    body += reader.take_body();
    require(body.size() <= at + piece, "a body has no more bytes than came");
  }
  return reader.is_complete() ? body : std::string();
}

// Applies the changes, and demands that no further one follows.
void check_changes(const std::vector<Json>& wanted, std::vector<Json> listed) {
  std::map<std::string, Json> slices;
  for (Json& slice : listed)
    slices.insert_or_assign(slice["metadata"]["name"].get<std::string>(), std::move(slice));
  std::vector<Json> before;
  for (const auto& [name, slice] : slices)
    before.push_back(slice);
  for (shim::SliceChange& change : shim::slice_changes(wanted, before)) {
    slices.erase(change.name);
    if (change.kind == shim::SliceChange::Kind::kDelete) continue;
    change.body["metadata"]["resourceVersion"] = "1";
    slices.emplace(change.name, std::move(change.body));
  }
  std::vector<Json> after;
  for (const auto& [name, slice] : slices)
    after.push_back(slice);
  require(after.size() == wanted.size(), "as many slices as wanted");
  require(shim::slice_changes(wanted, after).empty(), "nothing is left to change");
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider data) {
  const auto piece = data.ConsumeIntegralInRange<std::size_t>(1, 64);
  require(body_of(text, piece) == body_of(text, text.size() + 1), "pieces do not change the body");
  const auto listed = shim::parse_slice_list(text);
  if (!listed) return require_refusal(listed.error(), "the refusal of a list");
  const std::vector<shim::PublishedDevice> devices{{"a", "a", Json{{"name", "a"}, {"attributes", Json::object()}}}};
  check_changes(shim::resource_slices(devices, {.node = "n1"}), listed->slices);
}
