// SPDX-License-Identifier: GPL-2.0
/*
 * Test only: makes a soft RoCE device behave like hardware's where network namespaces are concerned.
 *
 *     echo NETDEV > /sys/module/rxe_movable/parameters/movable
 *     echo NETDEV > /sys/module/rxe_movable/parameters/hardware
 *
 * movable: the kernel moves an RDMA device (`rdma dev set DEV netns NS`) only when its driver can take back what
 * programs have open, which it says by having disassociate_ucontext. Drivers of hardware have it, rxe got it after
 * Linux 6.12. An empty one is all that the kernel's own path asks for.
 *
 * hardware: also, the device outlives its netdev's move to another namespace, which ends an rxe otherwise, and has in
 * sysfs the `device` link to its netdev's PCI function. It does so by not being known as an rxe any more, so from then
 * on no packet finds it: moving can be shown, traffic cannot.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/sysfs.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

static void let_go(struct ib_ucontext* context) {}

static const struct ib_device_ops movable_ops = {.disassociate_ucontext = let_go};

static int change(struct net_device* netdev, bool as_hardware) {
  struct ib_device* device = ib_device_get_by_netdev(netdev, RDMA_DRIVER_RXE);
  int error = 0;

  if (!device) return -ENODEV;
  ib_set_device_ops(device, &movable_ops);
  if (as_hardware) {
    error = netdev->dev.parent ? sysfs_create_link(&device->dev.kobj, &netdev->dev.parent->kobj, "device") : -ENXIO;
    if (!error) device->ops.driver_id = RDMA_DRIVER_UNKNOWN;
  }
  ib_device_put(device);
  return error;
}

/* value: a netdev of the writer's network namespace. */
static int change_by_name(const char* value, const struct kernel_param* param) {
  char name[IFNAMSIZ + 1]; /* and a newline */
  struct net_device* netdev;
  int error;

  if (strscpy(name, value, sizeof(name)) < 0) return -EINVAL;
  netdev = dev_get_by_name(current->nsproxy->net_ns, strim(name));
  if (!netdev) return -ENODEV;
  error = change(netdev, param->arg != NULL);
  dev_put(netdev);
  return error;
}

static const struct kernel_param_ops by_name = {.set = change_by_name};
static bool yes = true;
module_param_cb(movable, &by_name, NULL, 0200);
MODULE_PARM_DESC(movable, "write: the netdev whose rxe device becomes movable");
module_param_cb(hardware, &by_name, &yes, 0200);
MODULE_PARM_DESC(hardware, "write: the netdev whose rxe device becomes like hardware");

static int __init rxe_movable_init(void) {
  return 0;
}

/* No module_exit: the devices point into this module. */
module_init(rxe_movable_init);
MODULE_DESCRIPTION("soft RoCE devices that move between network namespaces as hardware's do, for tests");
MODULE_LICENSE("GPL");
