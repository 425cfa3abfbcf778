package config

import _ "embed"

// Reference is the manual of the config: a file with every key, its default and what it does. It parses, and says what
// Default says. A line that begins with # and no space is an example: remove the # to use it.
//
//go:embed reference.toml
var Reference string
