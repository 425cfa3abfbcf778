package main

import "flag"

// update writes the golden pictures anew: go test ./cmd/... -update.
var update = flag.Bool("update", false, "write the golden pictures anew")
