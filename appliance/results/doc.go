// Package results keeps the results of tests in an append-only log.
//
// # The file
//
// Each line is a JSON object that carries its own check: the length in bytes and the CRC-32C (Castagnoli, RFC 3720) of
// what follows.
//
//	{"crc32c":"8a2c9f01","length":1432,"record":{"id":"12","seq":12, ...}}
//	{"crc32c":"03f5b7e4","length":97,"clock":{"boot_id":"...","time":"...","uptime_s":812.4}}
//
// A clock line says what time it really was at an uptime: by it the records of a boot are corrected that were written
// before the clock was set. These boxes have no clock battery.
//
// # Promises
//
// A record is on the disk when Append returns without an error. Records are ordered by seq, never by the clock, and seq
// goes on above everything seen. What is damaged costs itself alone: a bad tail is cut off, a bad line is skipped, and
// both are said. Readers need no lock: they see a whole file at any moment, since the log only grows and is replaced by
// rename. One Store at a time writes; it holds a lock on the folder.
//
// A Store is usable even while its disk is not: results stay in memory and follow when writing works again.
package results
