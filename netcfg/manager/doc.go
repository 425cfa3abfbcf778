// Package manager changes ports the way their network manager wants it: so far None, for boxes where no manager owns
// the port and the kernel is told directly over netlink.
//
// Every call does one thing to one interface, named as it is at that moment, and returns when the kernel has done it or
// refused it. Errors wrap the kernel's errno (errors.Is with fs.ErrPermission, unix.EBUSY ...) and what the kernel says
// about it; they do not repeat what was tried, which the caller knows better. Calls act on the network namespace of the
// process and may come from any goroutine. What is already as wanted is no error, so that a call may be repeated.
//
// Address and Route are what moves from a bridge to a port and what is kept on disk to be put back; they name
// interfaces, not their indexes, which do not outlive a boot.
package manager
