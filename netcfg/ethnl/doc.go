// Package ethnl asks the kernel what an Ethernet port can do and what it does: ethtool over generic netlink
// (Linux 5.6 and newer), and the driver's name and firmware, which only the old ioctl tells.
//
// It only reads, and needs no privilege except for WoL. A Conn belongs to the network namespace of the thread that
// opened it; its calls may come from any goroutine, one is served at a time, none takes longer than Timeout, and who
// opened it closes it. "The driver does not say" (ErrNotSupported) and "there is no such interface" (ErrNoDevice) are
// told apart by errors.Is. Names of link modes, features and wake-up reasons are the kernel's own, as ethtool prints
// them, so a mode newer than this package needs no change here.
//
// Message numbers and attributes are those of the kernel's uapi/linux/ethtool_netlink.h.
package ethnl
