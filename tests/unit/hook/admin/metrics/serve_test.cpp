// Requests and answers of `rdma-hook metrics --listen`, and the names of containers.
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "hook/admin/metrics/http_server.hpp"
#include "hook/admin/metrics/metrics.hpp"
#include "hook/admin/metrics/serve.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace hook;
using namespace test_support;

int status_of(const std::string& head) {
  const auto request = read_http_request(head + "\r\n\r\n");
  return request ? request->status : 0;
}

TEST(ServeMetrics, ParsesRequests) {
  const std::pair<const char*, int> rows[] = {{"GET /metrics HTTP/1.1\r\nHost: a", 200},
                                              {"GET /metrics?x=1 HTTP/1.0", 200},
                                              {"GET /metric HTTP/1.1", 404},
                                              {"GET /metrics/ HTTP/1.1", 404},
                                              {"GET http://a/metrics HTTP/1.1", 404},
                                              {"GET /../etc/passwd HTTP/1.1", 404},
                                              {"HEAD /metrics HTTP/1.1", 405},
                                              {"POST /metrics HTTP/1.1\r\nContent-Length: 5", 405},
                                              {"get /metrics HTTP/1.1", 405},
                                              {"GET /metrics HTTP/2.0", 505}};
  for (const auto& [head, status] : rows)
    EXPECT_EQ(status_of(head), status) << head;
  for (const char* bad :
       {"", "GET", "GET /metrics", "GET  /metrics HTTP/1.1", "GET /metrics HTTP/1.1 x", " GET / HTTP/1.1",
        "GET /met\trics HTTP/1.1", "GET /metrics SPDY/1", "\x16\x03\x01", "GET /\xff HTTP/1.1"})
    EXPECT_EQ(status_of(bad), 400) << bad;
  EXPECT_EQ(status_of(std::string("GET /\0 HTTP/1.1", 15)), 400);
  EXPECT_EQ(read_http_request("GET / HTTP/1.1\r\n\r\n")->target, HttpTarget::kIndex);
  EXPECT_EQ(read_http_request("GET /healthz HTTP/1.1\r\n\r\n")->target, HttpTarget::kHealth);
}

TEST(ServeMetrics, WaitsForEndOfHead) {
  EXPECT_FALSE(read_http_request(""));
  EXPECT_FALSE(read_http_request("GET /metrics HTTP/1.1\r\nA: b\r\n"));
  EXPECT_FALSE(read_http_request("GET /metrics HTTP/1.1\n\n"));
  const std::string line = "GET /metrics HTTP/1.1\r\nA: ";
  const auto padded = [&](std::size_t size) { return line + std::string(size - line.size(), 'x'); };
  EXPECT_FALSE(read_http_request(padded(hook::kLongestHttpHead - 1)));
  EXPECT_EQ(read_http_request(padded(hook::kLongestHttpHead))->status, 431);
  EXPECT_EQ(read_http_request(padded(hook::kLongestHttpHead - 4) + "\r\n\r\n")->status, 200);
  EXPECT_EQ(read_http_request(padded(hook::kLongestHttpHead - 3) + "\r\n\r\n")->status, 431);
  // Data after the head is ignored.
  EXPECT_EQ(read_http_request("GET / HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\n\r\n")->status, 200);
}

TEST(ServeMetrics, WritesAnswers) {
  EXPECT_EQ(hook::http_head(200, 7),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 7\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n");
  EXPECT_NE(hook::http_head(405, 0).find("\r\nAllow: GET\r\n"), std::string::npos);
  EXPECT_EQ(hook::http_body(503), "503 Service Unavailable\n");
}

TEST(ServeMetrics, ClosesOldestIdleClientWhenFull) {
  using hook::ClientState;
  std::vector<hook::ServedClient> clients;
  for (std::size_t i = 0; i < hook::kMostClients; ++i) {
    EXPECT_FALSE(hook::admit(clients, "new").closes);
    clients.push_back({std::to_string(i), ClientState::kWaits});
  }
  EXPECT_FALSE(hook::admit(clients, "new").admitted) << "all of them wait for the text";
  const auto closes = [&](std::size_t client, ClientState state) {
    clients[client].state = state;
    const auto admission = hook::admit(clients, "new");
    EXPECT_TRUE(admission.admitted);
    return admission.closes.value_or(SIZE_MAX);
  };
  EXPECT_EQ(closes(9, ClientState::kTakes), 9U);
  EXPECT_EQ(closes(7, ClientState::kTakes), 7U) << "the older client";
  EXPECT_EQ(closes(8, ClientState::kAsks), 8U) << "silent clients before clients that read an answer";
  EXPECT_EQ(closes(5, ClientState::kAsks), 5U);
  EXPECT_EQ(closes(30, ClientState::kEnds), 30U) << "clients with their whole answer first";
}

TEST(ServeMetrics, ReplacesClientOfSamePeerAtItsLimit) {
  using hook::ClientState;
  std::vector<hook::ServedClient> clients(3, {"other", ClientState::kAsks});
  clients.insert(clients.end(), hook::kMostOfOnePeer, {"flood", ClientState::kAsks});
  EXPECT_EQ(hook::admit(clients, "flood").closes, 3U);
  EXPECT_FALSE(hook::admit(clients, "new").closes);
  for (auto& client : clients)
    if (client.peer == "flood") client.state = ClientState::kWaits;
  EXPECT_FALSE(hook::admit(clients, "flood").admitted);
}

TEST(ServeMetrics, GroupsPeersByAddressOr64BitNetwork) {
  const auto peer = [](const char* text) { return hook::peer_of(hook::parse_listen_address(text)->address); };
  EXPECT_NE(peer("192.0.2.1:1"), peer("192.0.2.2:1"));
  EXPECT_EQ(peer("192.0.2.1:1"), peer("192.0.2.1:2"));
  EXPECT_EQ(peer("[2001:db8::1]:1"), peer("[2001:db8::ffff:1]:1"));
  EXPECT_NE(peer("[2001:db8::1]:1"), peer("[2001:db8:0:1::1]:1"));
  EXPECT_EQ(peer("unix:/a"), peer("unix:/b"));
}

TEST(ServeMetrics, FindsNameOfId) {
  const std::string text = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:\n#:x\nbad\n:::\n";
  EXPECT_FALSE(hook::name_of_id(text, hook::kServingUser));
  EXPECT_FALSE(hook::name_of_id("", hook::kServingUser));
  EXPECT_EQ(hook::name_of_id(text, 65534), "nobody");
  EXPECT_EQ(hook::name_of_id(text + "metrics:x:65526:", hook::kServingUser), "metrics");
}

TEST(ServeMetrics, ParsesListenAddresses) {
  const auto unix_path = [](const char* text) { return hook::parse_listen_address(text)->path; };
  EXPECT_EQ(unix_path("unix:/run/x.sock"), "/run/x.sock");
  EXPECT_EQ(unix_path("unix:"), "/run/rdma-init/metrics.sock");
  const auto four = hook::parse_listen_address("127.0.0.1:9100");
  ASSERT_TRUE(four);
  EXPECT_EQ(four->address.ss_family, AF_INET);
  EXPECT_EQ(four->length, sizeof(sockaddr_in));
  EXPECT_EQ(ntohs(reinterpret_cast<const sockaddr_in*>(&four->address)->sin_port), 9100);
  const auto six = hook::parse_listen_address("[::1]:9100");
  ASSERT_TRUE(six);
  EXPECT_EQ(six->address.ss_family, AF_INET6);
  for (const char* bad :
       {"", "unix", "unix:relative", "unix:/a/", "9100", ":9100", "localhost:9100", "127.0.0.1",
        "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "::1:9100", "[::1]", "[127.0.0.1]:1", "127.0.0.1:9100x"})
    EXPECT_FALSE(hook::parse_listen_address(bad)) << bad;
  EXPECT_FALSE(hook::parse_listen_address("unix:/" + std::string(200, 'a')));
}

constexpr const char* kPodConfig = R"({"annotations": {
  "io.kubernetes.cri.sandbox-namespace": "team-a", "io.kubernetes.cri.sandbox-name": "train-0",
  "io.kubernetes.cri.container-name": "trainer"}, "linux": {}})";

TEST(ServeMetrics, ReadsNamesOfPodContainer) {
  const TempDir root;
  const std::string bundle = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/abc";
  write_file(root / (bundle.substr(1) + "/config.json"), kPodConfig);
  write_file(root / "var/lib/mine/config.json", kPodConfig);
  hook::GrantNames names(root.path());
  const PodNames expected{"team-a", "train-0", "trainer"};
  hook::GrantUser user;
  user.id = "abc";
  EXPECT_EQ(names.of(user), expected) << "grants of rdma-nri have no bundle";
  user.bundle = bundle;
  EXPECT_EQ(names.of(user), expected);
  // An image could have written these: the bundle's path does not show that containerd wrote it.
  user.bundle = "/var/lib/mine";
  EXPECT_EQ(names.of(user), PodNames());
  user.bundle = "";
  user.id = "../../../../../var/lib/mine";
  EXPECT_EQ(names.of(user), PodNames());
  names.forget_others();
  names.forget_others();
  write_file(root / (bundle.substr(1) + "/config.json"), "{");
  user.id = "abc";
  EXPECT_EQ(names.of(user), PodNames()) << "forgotten, and no longer readable";
}

TEST(ServeMetrics, AddsLabelsOfPod) {
  hook::Grant grant;
  grant.owner.key = "k";
  grant.hcas.resize(1);
  grant.hcas.front().name = "mlx5_0";
  grant.users.resize(1);
  grant.users.front().id = "id";
  EXPECT_EQ(hook::grant_info(grant,
                             [](const hook::GrantUser&) {
                               return PodNames{"team-a", "train-0", "a\"b\\c\nd"};
                             }),
            "rdma_hook_grant_info{container=\"id\",container_name=\"a\\\"b\\\\c\\nd\",grant=\"k\",hca=\"mlx5_0\","
            "namespace=\"team-a\",netns=\"\",pod=\"train-0\"} 1\n");
  // A container outside of pods has no such label.
  EXPECT_EQ(hook::grant_info(grant, [](const hook::GrantUser&) { return PodNames(); }), hook::grant_info(grant));
}

}  // namespace
