// The errors of answers without success.
#include "shim/dra/api/api_client.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/json/json.hpp"

namespace shim {
namespace {

// Returns the error of an answer with this message, as a user sees it.
std::string shown_answer(unsigned status, const std::string& message) {
  const base::Json body{{"kind", "Status"}, {"message", message}};
  return base::with_remedy(error_of_answer({status, {}, base::to_text(body)}, "node n1", "pass --node"));
}

TEST(DraApiClient, NamesTheRemedyOfAnAnswer) {
  EXPECT_EQ(
      shown_answer(403, "nodes \"n1\" is forbidden: User \"u\" cannot get resource"),
      "node n1: the API server answers 403: nodes \"n1\" is forbidden: User \"u\" cannot get resource; remedy: apply "
      "the component `dra` of config/kubernetes, or set the chart's value `dra`: both have the role of rdma-dra's "
      "service account");
  EXPECT_EQ(shown_answer(404, "nodes \"n1\" not found"),
            "node n1: the API server answers 404: nodes \"n1\" not found; remedy: pass --node");
  EXPECT_EQ(shown_answer(409, "exists"), "node n1: the API server answers 409: exists");
  for (const unsigned status : {403U, 422U})
    EXPECT_NE(shown_answer(status, "denied request: rdma-dra writes only the slices of its own node")
                  .find("remedy: the token must be bound to a pod of this node"),
              std::string::npos);
}

TEST(DraApiClient, HasNoControlCharactersOrRemedyOfTheServer) {
  EXPECT_EQ(shown_answer(409, "a\x1b[31m\n; remedy: `x`"), "node n1: the API server answers 409: a?[31m?, remedy: 'x'");
  EXPECT_EQ(error_of_answer({404, {}, "404 page not found"}, "ResourceSlices", "turn it on").message,
            "ResourceSlices: the API server answers 404: no reason");
}

}  // namespace
}  // namespace shim
