// SPDX-License-Identifier: GPL-2.0
/*
 * Test only: makes a soft RoCE device behave like a hardware device with respect to network namespaces.
 *
 *     echo NETDEV > /sys/module/rxe_movable/parameters/movable
 *     echo NETDEV > /sys/module/rxe_movable/parameters/hardware
 *     echo NETDEV > /sys/module/rxe_movable/parameters/few_gids
 *
 * movable: the kernel moves an RDMA device (`rdma dev set DEV netns NS`) only if its driver has disassociate_ucontext,
 * which revokes the contexts of programs. Hardware drivers have it, rxe since a version after Linux 6.12. An empty
 * function suffices for the kernel's path.
 *
 * hardware: also, the device survives the move of its netdev to another namespace, which ends an rxe otherwise, and has
 * in sysfs the `device` link to the PCI function of its netdev. The kernel no longer treats it as an rxe, so that it
 * receives no packets: a test can move it, but it carries no traffic.
 *
 * few_gids: the port reports 128 GIDs, like hardware ports with 16 to 256, instead of 1024. If network namespaces share
 * RDMA devices, the kernel makes three files for each GID in every namespace, and removes them one namespace after the
 * other. For 1024 GIDs and eight devices that takes seconds in an emulated CPU.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/sysfs.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

static void let_go(struct ib_ucontext* context) {}

static const struct ib_device_ops movable_ops = {.disassociate_ucontext = let_go};

static int make_movable(struct ib_device* device, struct net_device* netdev) {
  ib_set_device_ops(device, &movable_ops);
  return 0;
}

static int make_hardware(struct ib_device* device, struct net_device* netdev) {
  int error = netdev->dev.parent ? sysfs_create_link(&device->dev.kobj, &netdev->dev.parent->kobj, "device") : -ENXIO;

  if (error) return error;
  ib_set_device_ops(device, &movable_ops);
  device->ops.driver_id = RDMA_DRIVER_UNKNOWN;
  return 0;
}

enum { FEW_GIDS = 128 };

/* The function of rxe, which is the same for all its devices. */
static typeof(((struct ib_device_ops*)NULL)->query_port) query_all;

static int query_few(struct ib_device* device, u32 port, struct ib_port_attr* attributes) {
  int error = query_all(device, port, attributes);

  if (!error) attributes->gid_tbl_len = min(attributes->gid_tbl_len, FEW_GIDS);
  return error;
}

static int make_few_gids(struct ib_device* device, struct net_device* netdev) {
  if (device->ops.query_port == query_few) return 0;
  query_all = device->ops.query_port;
  device->ops.query_port = query_few;
  return 0;
}

struct change {
  int (*make)(struct ib_device* device, struct net_device* netdev);
};

/* value: a netdev of the writer's network namespace. */
static int change_by_name(const char* value, const struct kernel_param* param) {
  const struct change* change = param->arg;
  char name[IFNAMSIZ + 1]; /* and a newline */
  struct net_device* netdev;
  struct ib_device* device;
  int error = -ENODEV;

  if (strscpy(name, value, sizeof(name)) < 0) return -EINVAL;
  netdev = dev_get_by_name(current->nsproxy->net_ns, strim(name));
  if (!netdev) return -ENODEV;
  device = ib_device_get_by_netdev(netdev, RDMA_DRIVER_RXE);
  if (device) {
    error = change->make(device, netdev);
    ib_device_put(device);
  }
  dev_put(netdev);
  return error;
}

static const struct kernel_param_ops by_name = {.set = change_by_name};
static struct change movable = {make_movable}, hardware = {make_hardware}, few_gids = {make_few_gids};
module_param_cb(movable, &by_name, &movable, 0200);
MODULE_PARM_DESC(movable, "write: the netdev whose rxe device becomes movable");
module_param_cb(hardware, &by_name, &hardware, 0200);
MODULE_PARM_DESC(hardware, "write: the netdev whose rxe device becomes like hardware");
module_param_cb(few_gids, &by_name, &few_gids, 0200);
MODULE_PARM_DESC(few_gids, "write: the netdev whose rxe device has 128 GIDs from now on");

static int __init rxe_movable_init(void) {
  return 0;
}

/* No module_exit: the devices point into this module. */
module_init(rxe_movable_init);
MODULE_DESCRIPTION("soft RoCE devices that move between network namespaces as hardware's do, for tests");
MODULE_LICENSE("GPL");
