// Package config turns the TOML files a person writes, and the settings that buttons and web write, into one checked
// Config.
//
// # Layers
//
// What is built in (Default) lies at the bottom, then the main file, then the file on the boot partition, then the
// settings. Tables merge key by key, [[port]] by match, [[target]] by name; other arrays replace. Load does all of it
// and keeps the origin of every key.
//
// # Promises
//
// Parsing is strict: an unknown key is an error that names file, line and the nearest known key. A file is read only if
// it is regular and at most MaxFileSize bytes; settings are read without following a link. An error never leaves a box
// without a config: Load returns beside it what remains without the files at fault.
//
// A Config is a value whose slices are never changed once it is returned. Load reads and changes nothing; only Settings
// writes, atomically, and Watch reads again when a file changed. Settings may be used from several goroutines; one
// process at a time may write.
package config
