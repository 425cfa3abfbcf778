// Package paneltest holds models of panels: bytes in, picture out. Unit tests put one on a fake I2C bus; the virtual box
// feeds the same model with the messages that the guest's kernel sends.
//
// The package promises:
//   - A model obeys the controller's data sheet, not any driver: what the driver did wrong shows in the picture as it
//     would on the glass, or in [SSD1306.Faults] where the data sheet forbids it and the glass would not tell.
//   - Models and [Bus] are safe for concurrent use: a test may look at the picture while a driver draws.
//   - Nothing waits. A bus error is an error of that transfer, as from the kernel, never a delay.
package paneltest
