// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
)

// color is the parameter of a terminal sequence: a color, or bold.
type color string

const (
	green  color = "32"
	yellow color = "33"
	red    color = "31"
	gray   color = "90"
	bold   color = "1"
)

// paintAs colors text on a terminal, unless NO_COLOR is set.
func paintAs(out io.Writer, c color, text string) string {
	if os.Getenv("NO_COLOR") != "" || !isTerminal(out) {
		return text
	}
	return control("["+string(c)+"m") + text + control("[0m")
}
