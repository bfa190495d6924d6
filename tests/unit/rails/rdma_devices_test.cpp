// What is said to RDMA netlink, byte for byte, and what its refusals mean. The kernel's own answers are tested in
// guests, which have RDMA.
#include "hook/rails/netlink/rdma_devices.hpp"

#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include <cerrno>
#include <string>

namespace {

using fabric::Error;

// Type, then each attribute as "type=hex".
std::string shown(const hook::NetlinkMessage& message) {
  if (!message) return "none";
  const nlmsghdr* header = nlmsg_hdr(message.get());
  std::string text = fmt::format("client {} command {}:", header->nlmsg_type >> 10, header->nlmsg_type & 1023);
  int rest = nlmsg_datalen(header);
  const auto* attribute = static_cast<const nlattr*>(nlmsg_data(header));
  for (; nla_ok(attribute, rest); attribute = nla_next(attribute, &rest)) {
    text += fmt::format(" {}=", nla_type(attribute));
    const auto* bytes = static_cast<const unsigned char*>(nla_data(attribute));
    for (int i = 0; i < nla_len(attribute); ++i)
      text += fmt::format("{:02x}", bytes[i]);
  }
  return rest == 0 ? text : text + " and a rest";
}

// Numbers of include/uapi/rdma/rdma_netlink.h: NLDEV is client 5; SET 2, NEWLINK 3, DELLINK 4; DEV_INDEX 1, DEV_NAME 2,
// NDEV_NAME 51, LINK_TYPE 65, NET_NS_FD 68.
TEST(RdmaDevices, Requests) {
  EXPECT_EQ(shown(hook::rdma_move_request(3, 17)), "client 5 command 2: 1=03000000 68=11000000");
  EXPECT_EQ(shown(hook::rdma_rename_request(3, "mlx5_0")), "client 5 command 2: 1=03000000 2=6d6c78355f3000");
  EXPECT_EQ(shown(hook::rdma_link_request("rxe0", "rxe", "net1")),
            "client 5 command 3: 2=7278653000 65=72786500 51=6e65743100");
  EXPECT_EQ(shown(hook::rdma_unlink_request(258)), "client 5 command 4: 1=02010000");
}

TEST(RdmaDevices, RefusalsOfAMove) {
  const auto hint = [](int code, std::optional<bool> shared) {
    return hook::explain_rdma_move(Error{"cannot move RDMA device 3", code, {}}, shared).hint;
  };
  EXPECT_NE(hint(EOPNOTSUPP, true).find("netns_mode=0"), std::string::npos);
  EXPECT_NE(hint(EOPNOTSUPP, false).find("netns shared"), std::string::npos);
  EXPECT_NE(hint(EOPNOTSUPP, std::nullopt).find("netns shared"), std::string::npos);
  EXPECT_NE(hint(EBUSY, false).find("rdma resource show"), std::string::npos);
  EXPECT_NE(hint(EPERM, false).find("CAP_NET_ADMIN"), std::string::npos);
  EXPECT_NE(hint(EEXIST, false).find("rdma dev set"), std::string::npos);
  EXPECT_EQ(hint(EIO, false), "");
  const Error shared = hook::explain_rdma_move(Error{"cannot move RDMA device 3", EOPNOTSUPP, {}}, true);
  EXPECT_EQ(shared.message, "cannot move RDMA device 3; the RDMA subsystem is shared between network namespaces");
  EXPECT_EQ(shared.code, EOPNOTSUPP);
}

TEST(RdmaDevices, RefusalsOfALink) {
  EXPECT_EQ(hook::explain_rdma_link(Error{"x", EINVAL, {}}, "rxe").hint, "`modprobe rdma_rxe`, or `modprobe rxe`");
  EXPECT_NE(hook::explain_rdma_link(Error{"x", ENODEV, {}}, "rxe").hint.find("another network namespace"),
            std::string::npos);
  EXPECT_NE(hook::explain_rdma_link(Error{"x", EEXIST, {}}, "siw").hint.find("rdma link"), std::string::npos);
}

TEST(RdmaDevices, NodeGuidOfSoftwareDevices) {
  EXPECT_EQ(hook::parse_node_guid("5054:00ff:fe12:3456"), 0x505400fffe123456U);
  EXPECT_EQ(hook::parse_node_guid("0000:0000:0000:0000"), 0U);
  EXPECT_EQ(hook::parse_node_guid(""), 0U);
  EXPECT_EQ(hook::node_guid_of_mac({0x52, 0x54, 0x00, 0x12, 0x34, 0x56}), 0x505400fffe123456U);
  EXPECT_EQ(hook::node_guid_of_mac(std::vector<std::uint8_t>(20)), 0U) << "IPoIB";
}

// assign_name() of the kernel says ENFILE: "Too many open files in system".
TEST(RdmaDevices, ATakenNameIsNamedAsOne) {
  const auto refusal = [](const char* what) { return fabric::sys_error(ENFILE, "cannot {}", what); };
  const std::string meant = "an RDMA device has this name, and names are unique over all network namespaces";
  for (const Error& error : {hook::explain_rdma_link(refusal("make rxe device `rxe0` on `net1`"), "rxe"),
                             hook::explain_rdma_rename(refusal("rename RDMA device 3 to `rxe0`")),
                             hook::explain_rdma_move(refusal("move RDMA device 3"), false)}) {
    EXPECT_TRUE(error.message.ends_with(": " + meant)) << error.message;
    EXPECT_EQ(error.code, ENFILE);
    EXPECT_NE(error.hint.find("rdma dev set OLD name NEW"), std::string::npos) << error.hint;
  }
}

// The kernel would cut what is too long, and rename or make another device.
TEST(RdmaDevices, NamesAreCheckedBeforeAnythingIsSent) {
  auto socket = hook::Netlink::open(NETLINK_ROUTE);  // of another protocol: nothing may reach it
  if (!socket) GTEST_SKIP() << socket.error().message;
  for (const std::string& name : {std::string(), std::string(64, 'a'), std::string("a b"), std::string("../a"),
                                  std::string("rxe%d"), std::string(".."), std::string("a\n")}) {
    const auto renamed = hook::rename_rdma_device(*socket, 1, name);
    const auto made = hook::create_rdma_link(*socket, name, "rxe", "net1");
    ASSERT_FALSE(renamed || made) << name;
    EXPECT_NE(renamed.error().message.find("is no name of an RDMA device"), std::string::npos);
    EXPECT_EQ(made.error().message, renamed.error().message);
  }
  const auto made = hook::create_rdma_link(*socket, "rxe0", "rxe", "a-netdev-of-16-b");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "cannot use `a-netdev-of-16-`: that is no name of a netdev");
}

}  // namespace
