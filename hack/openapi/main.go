// SPDX-License-Identifier: Apache-2.0

// Command openapi writes the OpenAPI descriptions of the REST facade and of webhooks to
// the two files that it is given.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/webhooks"
)

func main() {
	if err := writeDocuments(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func writeDocuments(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("give two files to write to")
	}
	document, err := apiserver.Document()
	if err != nil {
		return err
	}
	deliveries, err := webhooks.Document("")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(args[0], document, 0o644), os.WriteFile(args[1], deliveries, 0o644))
}
