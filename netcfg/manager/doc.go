// Package manager changes ports the way their network manager wants it.
//
// A [Manager] says which ports it owns, and has an [Override] in its own words as files of ours; who writes them tells it
// to load them. So far there is [Networkd]. Where no manager owns a port the kernel is told directly over netlink, by
// [None].
//
// There [DHCP] keeps a leased or link-local address.
//
// Every call of None does one thing to one interface, named as it is at that moment, and returns when the kernel has done it or
// refused it. Errors wrap the kernel's errno (errors.Is with fs.ErrPermission, unix.EBUSY ...) and what the kernel says
// about it; they do not repeat what was tried, which the caller knows better. Calls act on the network namespace of the
// process and may come from any goroutine. What is already as wanted is no error, so that a call may be repeated.
//
// Address and Route are what moves from a bridge to a port and what is kept on disk to be put back; they name
// interfaces, not their indexes, which do not outlive a boot.
package manager
