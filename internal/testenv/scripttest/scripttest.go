// SPDX-License-Identifier: Apache-2.0

// Package scripttest lets a test binary execute scripts: a pool of scripts starts the binary again as its child.
package scripttest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Main runs the tests, or executes scripts if a pool has started the binary. TestMain calls it.
func Main(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "script" {
		memory, err := strconv.ParseUint(strings.TrimPrefix(os.Args[2], "--memory="), 10, 64)
		if err == nil {
			err = runChild(memory)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
