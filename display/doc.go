// Package display turns the State into pictures and puts them on a panel, a terminal or into a PNG.
//
// # Promises
//
// Page is pure: the same State and size give the same pixels on every machine and in every time zone. What is too long
// for its place is never cut silently: it is turned over, piece by piece, as State.Now goes on, or ends in an ellipsis.
//
// Task owns the Panel it opened and closes it. It draws only when the picture has changed, and while a test runs at
// most five times a second. It blocks nobody: a slow panel skips pictures. Without a panel it goes on trying.
package display
