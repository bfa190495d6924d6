// Answers of an HTTP server, cut at any place.
#include "shim/dra/api/http_answer.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/text.hpp"

namespace shim {
namespace {

// Returns "STATUS BODY" of each answer, joined by " | "; or the error. piece: number of bytes that arrive at once.
std::string read_pieces(const std::string& text, std::size_t piece, bool is_closed = true) {
  HttpReader reader;
  std::vector<std::string> answers;
  std::string body;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    if (const auto done = reader.add(text.substr(at, piece)); !done) return done.error().message;
    body += reader.take_body();
    while (reader.is_complete()) {
      answers.push_back(fmt::format("{} {}", reader.head()->status, std::exchange(body, {})));
      if (const auto done = reader.next(); !done) return done.error().message;
      body += reader.take_body();
    }
  }
  if (is_closed && (reader.head() || !body.empty())) {
    const auto done = reader.end();
    if (!done) return done.error().message;
    answers.push_back(fmt::format("{} {}", reader.head()->status, body));
  }
  return base::join(answers, " | ");
}

// The same for each size of the pieces.
std::string read_all(const std::string& text) {
  const std::string whole = read_pieces(text, text.size());
  for (std::size_t piece = 1; piece < text.size(); ++piece)
    EXPECT_EQ(read_pieces(text, piece), whole) << piece;
  return whole;
}

TEST(HttpAnswer, HasTheBodyHoweverItArrives) {
  EXPECT_EQ(read_all("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), "200 hello");
  EXPECT_EQ(read_all("HTTP/1.1 409 Conflict\r\ncontent-length:0\r\n\r\n"), "409 ");
  EXPECT_EQ(read_all("HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"),
            "200 abc0123456789");
  EXPECT_EQ(read_all("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nX: y\r\n\r\n"), "200 ");
  EXPECT_EQ(read_all("HTTP/1.1 200 OK\r\n\r\nuntil the end"), "200 until the end");
  EXPECT_EQ(read_all("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"), "204  | 200 x");
  EXPECT_EQ(read_all("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"),
            "100  | 201 {}");
}

TEST(HttpAnswer, RefusesWhatHasTwoMeanings) {
  for (const char* text : {"HTTP/2 200\r\n\r\n",
                           "200 OK\r\n\r\n",
                           "HTTP/1.1 20 OK\r\n\r\n",
                           "HTTP/1.1 2000\r\n\r\n",
                           "HTTP/1.1  200\r\n\r\n",
                           "HTTP/1.1 099 X\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
                           "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
                           "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\na",
                           "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\na",
                           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\na",
                           "HTTP/1.1 200 OK\r\n: 1\r\n\r\na",
                           "HTTP/1.1 200 OK\r\nx\r\n\r\na",
                           "HTTP/1.1 200 OK\r\na: b\rContent-Length: 1\r\n\r\na",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n"}) {
    const std::string answer = read_all(text);
    EXPECT_TRUE(answer.starts_with("the API server's answer has ")) << text << answer;
    EXPECT_EQ(answer.find_first_of("\r\n"), std::string::npos) << answer;
  }
}

TEST(HttpAnswer, HasLimits) {
  const std::string head = "HTTP/1.1 200 OK\r\nx: " + std::string(std::size_t{70} << 10, 'y');
  EXPECT_TRUE(read_pieces(head, 1000).starts_with("the API server's answer has a head that is too long"));
  EXPECT_TRUE(read_pieces("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(300, '0'), 7)
                  .starts_with("the API server's answer has a wrong chunk"));
}

TEST(HttpAnswer, ReportsAnAnswerThatWasCut) {
  const std::string cut = "the API server closed the connection within an answer";
  EXPECT_EQ(read_all("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"), cut);
  EXPECT_EQ(read_all("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"), cut);
}

TEST(HttpAnswer, StatesWhenToComeBack) {
  const auto head = parse_http_head("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nConnection: Close");
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->retry_after, 7U);
  EXPECT_TRUE(head->closes);
  EXPECT_EQ(parse_http_head("HTTP/1.1 503 x\r\nRetry-After: Fri, 31 Dec")->retry_after, std::nullopt);
  EXPECT_FALSE(parse_http_head("HTTP/1.1 200 x\r\nContent-Length: 0")->closes);
  EXPECT_TRUE(parse_http_head("HTTP/1.0 200 x\r\nContent-Length: 0")->closes);
}

TEST(HttpLines, AreWholeHoweverTheyArrive) {
  const std::string text = "{\"a\": 1}\n\n{\"b\": 2}\n{\"c\"";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    LineReader reader(10);
    std::vector<std::string> all;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      const auto lines = reader.add(text.substr(at, piece));
      ASSERT_TRUE(lines);
      all.insert(all.end(), lines->begin(), lines->end());
    }
    EXPECT_EQ(base::join(all, "|"), R"({"a": 1}|{"b": 2})") << piece;
  }
  LineReader reader(10);
  EXPECT_FALSE(reader.add("01234567890"));
  LineReader other(10);
  EXPECT_FALSE(other.add("01234567890\n"));
}

}  // namespace
}  // namespace shim
