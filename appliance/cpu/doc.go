// Package cpu keeps the processor as the config wants it and tells how it is.
//
// # Control
//
// A Control sets governor and clock limits of every cpufreq policy: big.LITTLE processors have several. It is
// level-triggered: what is right already is not written, so a second Apply changes nothing. What it found before its
// first change is kept on the disk, once a boot, and is never replaced by a value of its own, not even after kill -9 at
// any moment; Restore puts it back. Every value is read back after writing. It needs uid 0 (the files are root's) and no
// capability. Its methods may be called from any goroutine.
//
// # Health
//
// Sensors read temperature, clock, governor and load, and need no privilege. Watch is the Task that publishes them when
// something changed that a person would notice.
//
// All of it works below a root, so that a tree copied from another box can be read; what is read there is bounded.
package cpu
