// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
)

// colour is how text stands out on a terminal.
type colour string

const (
	good    colour = "32"
	ongoing colour = "33"
	bad     colour = "31"
	place   colour = "1"
)

// paintAs colours text on a terminal, unless NO_COLOR is set.
func paintAs(out io.Writer, c colour, text string) string {
	if os.Getenv("NO_COLOR") != "" || !isTerminal(out) {
		return text
	}
	return control("["+string(c)+"m") + text + control("[0m")
}
