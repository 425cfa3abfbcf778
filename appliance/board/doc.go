// Package board knows the boxes Linerate runs on: which jack is which port, which panel and keys are wired to which
// pins, and what the LEDs are called. All of it is data: one TOML file a board or HAT in profiles/, more of them in
// /etc/linerate/boards.
//
// The package promises:
//   - [Detect] always returns a usable Profile. What was wrong on the way (a file that does not parse, a name nobody
//     knows) comes back beside it, one line each; the built-in profiles and "generic" serve whatever happens.
//   - It reads files only: nothing is opened for writing, no bus is touched, nothing is kept open and nothing blocks.
//     Every file is read with a bound, below one root, with links resolved inside that root.
//   - A Profile is made new by each call; its owner may change it.
//
// # Detection
//
// A name in the config comes first, then the first line of /etc/wlanpi-model, then the strings of the device tree's
// compatible, most specific first, then the profile "generic". Within one step profiles from /etc/linerate/boards
// come before built-in ones, and a full string before a pattern.
//
// # Ports
//
// A port is known by the device behind it, never by its interface name and never by its MAC: both change from boot to
// boot on these boards. [Profile.AssignRoles] finds each jack by whole components of the device's path in sysfs.
//
// # HATs
//
// A file with `hat = true` describes what is plugged on top: a panel, keys, LEDs. A profile names those it always
// carries (`hats = [...]`); one that the user names takes the place of the panel and of the keys on GPIO lines.
package board
