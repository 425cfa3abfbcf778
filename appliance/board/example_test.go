package board_test

import (
	"fmt"

	"linerate/appliance/board"
)

// Two kernels call the jacks of a NanoPi R5S differently; their roles stay.
func ExampleDetect() {
	for _, root := range []string{"testdata/trees/nanopi-r5s-mainline", "testdata/trees/nanopi-r5s-swapped"} {
		p, _ := board.Detect(root, board.Auto)
		paths, _ := board.DevicePaths(root)
		roles, _ := p.AssignRoles(paths)
		fmt.Println(p.Name, roles)
	}
	// Output:
	// nanopi-r5s map[eth0:lan1 eth1:lan2 eth2:wan]
	// nanopi-r5s map[eth0:wan eth1:lan2 eth2:lan1]
}
