// Package vm is a virtual NanoPi R5S: Debian's arm64 kernel and a systemd root file system on an emulated machine whose
// device tree, ports, panel, keys and LEDs are the box's. `make e2e` tests the whole appliance on it from outside, `make vm`
// leaves it to a person, `make powercut` takes the power away from a small one.
//
// # What is what
//
//	emulated box                      this process
//	/dev/i2c-N (i2c-virtio)      <->  vhost-user back end -> display/panel/paneltest's SSD1306 -> Panel
//	/dev/vda (virtio-blk)        <->  Disk: a network block device with a write cache that a power cut empties
//	eth0 1000, eth1 and eth2 2500 <-> the emulator's own network; lan1's port 5201 is a port of 127.0.0.1
//	QEMU Virtio Keyboard         <-   Machine.Press
//	a root shell, for tests      <->  Machine.Run
//
// The device tree is that of QEMU's virt machine with files/r5s.dts behind it. A processor of fixed clock with three
// operating points starts on the governor powersave. networkd has the two fast ports in a bridge with a static address,
// as the boxes' images do. files/board.toml is the board's profile: what it calls itself is a NanoPi R5S, where its ports,
// panel and keys are differs.
//
// Kernel, modules and packages come from Debian by name, through a package manager of their own, and stay in a folder of the
// user's (LINERATE_VM_CACHE) under names that hold their versions. Modules that Debian's configuration leaves out are built
// from Debian's source package. Nothing uses hardware virtualisation.
//
// # Promises
//
// A Machine ends when it is told (Kill), when its Lifetime is over, and when this process ends, however that ends; Kill
// removes its sockets and files. A Box holds its disk's image in a folder of its own until Close. What a guest or an
// emulator sends is bounded and checked; it can end its own machine, and nothing else. Machines may run at the same time, each
// of one Box; Run and Press may be called from any goroutine and take turns.
//
// # What it does not show
//
// Drivers of real ports (QEMU has no RTL8125), changes of frequency, temperatures, panels on SPI, and any rate worth
// mentioning.
package vm
