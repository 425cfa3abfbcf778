// Package netcfg looks at the box's Ethernet ports, plans what has to change so that they are as the config wants them,
// does it, and keeps it so.
//
// # Look, plan, do
//
// [Look] shows the ports as the kernel does and needs no privilege. A plan is a pure function of what was seen, what
// is wanted and what was found before the first change; it is a list of steps, each with a sentence for a person.
// Doing it needs CAP_NET_ADMIN. Everything is level-triggered: what is already so makes no step, so a second plan is
// empty, and a run that broke off half-way is finished by the next.
//
// # Bridges
//
// A port that is wanted alone leaves its bridge; bridges are found by membership, never by name. Steps that belong to
// one bridge stand or fall together: its ports leave, come up, and take over its addresses and routes, or all of it is
// undone and the bridge is as before. So the box is never left without a way to an address. An address is on the port
// before it is taken from the bridge. Left alone are bonds, teams and VRFs, and, unless bridge = "free" asks for it, a
// bridge that also holds a tap, a veth or Wi-Fi or has interfaces on top of it. A bridge whose last port has left is
// removed once it has no address left; what it was is kept on the disk first and [Keeper.Restore] makes it again.
//
// # Network managers
//
// What is done to a port that a network manager owns does not last: systemd-networkd puts it back into its bridge within
// a second. So such a port gets a file of ours in the manager's own words first ([manager.Override]), which keeps it
// alone and carries its addresses, routes, MTU and, where the driver makes up another at each boot, a stable MAC. It is
// matched by the port's place, else by its name, and no file of the user's is touched. A port that stood alone all the
// time, and of which the config asks nothing special, is left to its manager as it is. The emptied bridge stays, without
// an address, since its manager would make it anew. [Keeper.Restore] removes our files and has the managers make
// everything as their own say; a MAC stays until the next boot.
//
// Where no manager owns a port, [Keeper.Keep] asks a DHCP server for its address ([manager.DHCP]), with a link-local one
// until somebody answers. It leaves the address on the port when it ends. IPv6 is the kernel's.
//
// # Nobody is locked out
//
// At boot everything is applied at once. Later, a change that touches a port with a TCP connection is on trial
// ([ConfirmWithin]): its record and linerate-rollback.timer come before the first step, what managers are told lies in
// /run, and unless somebody confirms (a request, or who could have been cut off by a new connection) everything is put
// back as found, by the timer though the keeper has died, else by the keeper, else by a restart of the box. The config
// that asked for it is then left alone until it differs or a person runs --once; one that was confirmed, or applied at
// boot, is not put on trial again. [Keeper.Safe] leaves the network alone altogether, and [Keeper.Early] then takes our
// files away, so that the box boots as if we were not there. While a test runs no step is done.
//
// # Tasks
//
// [Watch] publishes PortsSeen and needs no privilege. [Keeper.Keep] also acts, and writes what it saw, did and could
// not do to netcfg.json, which [Follow] turns into faults in the process that has no privilege. All of them sleep
// until the kernel reports a change of a link, an address or a default route (and look once a minute all the same);
// they gather what comes within [Settle]. Each returns nil when its context ends and may be started again at any time.
//
// A Keeper may be used from several goroutines and processes at once: changes are made under a lock in its folder.
package netcfg
