// SPDX-License-Identifier: Apache-2.0

// Command openapi writes the OpenAPI description of the REST facade to the file
// that it is given.
package main

import (
	"fmt"
	"os"

	"github.com/agentplatform/agentplatform/apiserver"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give one file to write to")
	}
	document, err := apiserver.Document()
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], document, 0o644)
}
