// Package panel opens the panel that a board's profile names and draws on it.
//
// The package promises:
//   - A [Panel] belongs to one goroutine at a time; whoever opened it closes it.
//   - Draw and SetPower block until the bus has taken the bytes: about 24 ms for a whole frame of 128x64 on I2C at
//     400 kHz, 96 ms at 100 kHz, less for a part. Nothing else in the process waits for them, so call them from a
//     goroutine of their own. A transfer cannot be interrupted from here: the kernel's driver ends a stuck one after
//     its own timeout (1 s for most), and the error then ends the frame. A driver that never returns holds that
//     goroutine for ever, and Close with it.
//   - After any error the device is dropped and the bus closed. The next Draw or SetPower looks for it anew, sets it up
//     and sends the whole frame, so what Draw reports as shown is shown. Whoever retries decides how often.
//   - An error's text stays the same while its cause does, so that absence is reported once: compare with the last one.
//
// A page that has changed in a corner costs only that corner on the bus.
package panel
