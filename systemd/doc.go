// Package systemd is Linerate's side of its service manager: the unit files, the notify protocol with the watchdog, and
// the listeners that outlive the process.
//
// # Units
//
// [Files] holds the units and the sysusers.d, tmpfiles.d and udev files as they lie below /usr, [Links] what enables them;
// [Install] writes both into a tree, [Print] shows them. The server's unit has no privilege, the keeper's one: the network.
//
// # Notify
//
// [Notify] is a Task: READY=1 once the box serves, STATUS= with what it did last, WATCHDOG=1 after each round trip through
// the Hub, STOPPING=1 at the end. A Hub that hangs gets no more pings, and systemd starts the process anew.
//
// # Listeners
//
// [Store] keeps sockets in systemd's file descriptor store: the kernel goes on queueing connections while there is no
// process, so a restart or a crash refuses nobody. Without systemd it only listens.
//
// # Promises
//
// Open takes what systemd hands over out of the environment, once for a process. A Store may be used from several
// goroutines. Whoever gets a socket closes it; systemd's copy stays until another address is asked for under the same
// name, or until Forget. No call waits for systemd longer than a second; the process goes on where systemd does not
// answer.
package systemd
