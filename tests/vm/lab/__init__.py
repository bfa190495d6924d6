"""The host's side of the VM lab: cases, the guest's image, and one boot of it under QEMU."""
